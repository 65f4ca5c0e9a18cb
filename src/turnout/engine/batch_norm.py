"""Batch normalization with running statistics in the model's vector, so that every client trains its own statistics."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import nn

from turnout.core.checks import ConfigurationError
from turnout.engine.plain_layers import check_plain, with_layers

_LAYERS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_LAZY = (nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d)
BATCH_NORMS = (*_LAYERS, *_LAZY)

Statistics = Literal["own", "average"]
"""Treatments of running statistics: each client keeps its own, or they are averaged with the parameters."""


class _Follow(torch.autograd.Function):
    """Return the first argument; in the backward pass, the gradient of the second is `step`, for any loss."""

    generate_vmap_rule = True

    @staticmethod
    def forward(used: torch.Tensor, running: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """Return a copy, because an output must not be an input."""
        del running, step
        return used.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        """Save `step` for the backward pass."""
        del output
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        """Pass the gradient on to the first argument, and return `step` for the second."""
        return gradients[0], ctx.saved_tensors[0], None


class OwnBatchNorm(nn.Module):
    """Batch normalization in place of `nn.BatchNorm1d` and its relatives.

    Its parameters and statistics have the same names.

    In training, a minibatch is normalized by its own mean and variance, without padding. The "gradient" of a running
    statistic s is ``momentum (s - s')``, where s' is the statistic of the minibatch (with the variance over n - 1): a
    step of size 1 is then the moving average (see `turnout.pieces.local.local_step`). In evaluation, running statistics
    are used.

    There is no `num_batches_tracked`, which torch reads only without momentum, so trained models do not contain it;
    torch loads them into its own layers, which keep theirs.

    Args:
        layer: the layer to replace.
    """

    mask: torch.Tensor

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.eps, self.momentum = layer.eps, layer.momentum
        self.weight, self.bias = layer.weight, layer.bias
        self.running_mean, self.running_var = (nn.Parameter(s.clone()) for s in (layer.running_mean, layer.running_var))
        self.register_buffer("mask", torch.ones(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize inputs ``[b, C, ...]``."""
        # Statistics are moving averages of small differences, which bfloat16 would round to zero.
        x = x.to(self.running_mean.dtype)
        shape = (1, -1) + (1,) * (x.dim() - 2)
        mean, var = self._statistics(x) if self.training else (self.running_mean.detach(), self.running_var.detach())
        y = (x - mean.view(shape)) * torch.rsqrt(var.view(shape) + self.eps)
        return y if self.weight is None else y * self.weight.view(shape) + self.bias.view(shape)

    def _statistics(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean and variance ``[C]`` of a minibatch, and let the running statistics follow them."""
        axes = [axis for axis in range(x.dim()) if axis != 1]
        # The mask is a scalar if no example is padding.
        counts = self.mask.to(x.dtype) if self.mask.dim() else x.new_ones(len(x))
        counts = counts.view((-1,) + (1,) * (x.dim() - 1)).expand(-1, 1, *x.shape[2:])
        n = counts.sum()
        mean = (x * counts).sum(dim=axes) / n
        centered = x - mean.view((1, -1) + (1,) * (x.dim() - 2))
        var = (centered.square() * counts).sum(dim=axes) / n
        steps = self.running_mean - mean, self.running_var - var * n / (n - 1).clamp(min=1)
        small, wide = (self.momentum * step.detach() for step in steps)
        return _Follow.apply(mean, self.running_mean, small), _Follow.apply(var, self.running_var, wide)  # type: ignore[return-value]


def following(module: nn.Module) -> dict[str, nn.Module]:
    """Return the batch normalization layers whose statistics are those of minibatches in training, by all of their names.

    The others stay in evaluation mode in training, because they or a module around them override ``train()``: they
    normalize by constants. The module is put in training mode to find out, and back.
    """
    named = [pair for pair in module.named_modules(remove_duplicate=False) if isinstance(pair[1], BATCH_NORMS)]
    if not named:
        return {}
    modes = [(layer, layer.training) for layer in module.modules()]
    module.train()
    layers: dict[str, nn.Module] = {
        name: layer for name, layer in named if layer.training or not layer.track_running_stats
    }
    for layer, mode in modes:
        layer.training = mode
    return layers


def _refuse(name: str, layer: Any, personal: bool) -> None:
    """Raise an error for a batch normalization layer whose statistics cannot be personal."""
    kind = type(layer).__name__
    if not personal:
        raise ConfigurationError(
            f"layer {name!r} is a {kind}: its running statistics are buffers rather than parameters, and its output for an "
            "example depends on the other examples of the minibatch. Write "
            f"GroupNorm(num_groups, {layer.num_features}) instead, which "
            "to.models.group_norm(model) does for all layers; or let clients keep the statistics to themselves, with "
            "to.fedbn(), or to.personalization.Personal('norms') in another algorithm; or average them with the parameters, "
            "as published baselines of FedAvg do: statistics='average'. A pretrained layer may keep its statistics if it "
            "stays in evaluation mode, because the model's train() calls eval() of the layer"
        )
    if not layer.track_running_stats or layer.momentum is None:
        raise ConfigurationError(
            f"layer {name!r} is a {kind} without running statistics that follow by a momentum: leave its momentum and "
            "track_running_stats at their defaults"
        )
    check_plain(
        name, layer, _LAYERS, "a layer with statistics of each client", "write what it adds as a layer behind it"
    )


def with_own_batch_norm(
    module: nn.Module, personal: bool = True, statistics: Statistics = "own"
) -> tuple[nn.Module, frozenset[str], list[str]]:
    """Replace batch normalization layers, in place, unless they stay in evaluation mode in training.

    Args:
        module: the model.
        personal: whether clients keep parameters to themselves, which own running statistics need.
        statistics: whether clients keep running statistics, or average them.

    Returns:
        The module, the names of the parameters that are running statistics, and the names of the buffers for a
        minibatch's mask.

    Raises:
        ConfigurationError: if statistics cannot be personal, or if a layer computes something else than a class of torch.
    """
    layers = following(module)
    for name, layer in layers.items():
        _refuse(name, layer, personal or statistics == "average")
    module, prefixes = with_layers(module, layers.items(), lambda layer, _: OwnBatchNorm(layer))
    running = (f"{prefix}{name}" for prefix in prefixes for name in ("running_mean", "running_var"))
    return module, frozenset(running), [f"{prefix}mask" for prefix in prefixes]
