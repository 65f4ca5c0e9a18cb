"""Replace layers of a module: batch by group normalization, and frozen linear layers by ones that hold weights in 4 bits."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from turnout.core.checks import ConfigurationError, count, counted
from turnout.core.extras import imported
from turnout.engine.batch_norm import BATCH_NORMS
from turnout.engine.plain_layers import check_plain, is_plain, with_layers


def group_norm(module: nn.Module, groups: int = 32, *, tell: bool = True) -> nn.Module:
    """Return a copy of a module with GroupNorm in place of BatchNorm, and print which layers these are.

    Statistics are those of single examples and not of minibatches, so that clients have none to average. A layer's weights
    and biases stay; running statistics are dropped, so a network that was trained with them has to be trained further. A
    layer has as many groups as divide both its channels and `groups`, of two channels or more.

    Args:
        module: the module, which is not changed.
        groups: the most groups a layer gets (32 in the paper).
        tell: print the layers.

    Raises:
        ConfigurationError: if a layer is of a subclass with methods of its own, which GroupNorm would lose.

    Reference: Wu and He, "Group normalization", ECCV 2018.

    Example:
        >>> from torch import nn
        >>> module = group_norm(nn.Sequential(nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12), nn.ReLU()), groups=8)
        replaced 1 BatchNorm layer by GroupNorm: 1 (12 channels in 4 groups)
        >>> type(module[1]).__name__
        'GroupNorm'
    """
    count("groups", groups)
    module, done = copy.deepcopy(module), []
    layers: list[tuple[str, Any]] = [
        (name, layer) for name, layer in module.named_modules(remove_duplicate=False) if isinstance(layer, BATCH_NORMS)
    ]
    for name, layer in layers:
        check_plain(name, layer, BATCH_NORMS, "GroupNorm", "write GroupNorm and what the class adds in its place")
    module, _ = with_layers(module, layers, lambda layer, _: _of_groups(layer, groups))
    for name, _ in layers:
        new: Any = module.get_submodule(name)
        done.append(f"{name or 'the module'} ({new.num_channels} channels in {counted(new.num_groups, 'group')})")
    if tell:
        print(f"replaced {counted(len(done), 'BatchNorm layer')} by GroupNorm{': ' if done else ''}{', '.join(done)}")
    return module


def _of_groups(layer: Any, groups: int) -> nn.GroupNorm:
    """Return the GroupNorm that takes the place of a BatchNorm, with its weights and biases."""
    channels = layer.num_features
    parts = math.gcd(groups, channels)
    while parts > 1 and channels // parts < 2:
        parts = max(number for number in range(1, parts) if channels % number == 0)
    new = nn.GroupNorm(parts, channels, eps=layer.eps, affine=layer.affine)
    if layer.affine:
        new.weight, new.bias = layer.weight, layer.bias
    return new.train(layer.training)


BLOCK = 64
"""The number of weights that share a scale, as in QLoRA."""


class QuantizedLinear(nn.Module):
    """Compute ``x W^T + b`` with frozen weights W in 4-bit NormalFloat (NF4), one scale for each block of 64.

    W is dequantized in every call, and again for derivatives, so that no layer keeps it in full between the two. Unlike the
    layer of `bitsandbytes`, it can be batched over clients and traced.

    Args:
        weight: W, ``[m, n]``.
        bias: b, ``[m]``, or None.

    Raises:
        ConfigurationError: if `bitsandbytes` is not installed.

    Reference: Dettmers et al., "QLoRA: efficient finetuning of quantized LLMs", NeurIPS 2023 (arXiv 2305.14314).
    """

    packed: torch.Tensor
    scales: torch.Tensor
    code: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.shape, self.dtype = tuple(weight.shape), weight.dtype
        # As one row: on a CPU, bitsandbytes 0.50 misreads matrices whose rows are no multiple of a block.
        row = weight.detach().reshape(-1)
        packed, state = _functions().quantize_4bit(row, blocksize=BLOCK, quant_type="nf4")
        self.register_buffer("packed", packed)
        self.register_buffer("scales", state.absmax)
        self.register_buffer("code", state.code)
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs, ``[..., m]``."""
        y = _Product.apply(x, self.packed, self.scales, self.code, self.shape, self.dtype)
        return y if self.bias is None else y + self.bias


class _Product(torch.autograd.Function):
    """``x W^T``, which keeps W in 4 bits for its derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: torch.Tensor,
        packed: torch.Tensor,
        scales: torch.Tensor,
        code: torch.Tensor,
        shape: tuple[int, ...],
        dtype: torch.dtype,
    ) -> torch.Tensor:
        return F.linear(x.to(dtype), _dequantized(packed, scales, code, shape, dtype))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        del output
        x, packed, scales, code, ctx.shape, ctx.dtype = inputs
        ctx.input_dtype = x.dtype
        ctx.save_for_backward(packed, scales, code)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        packed, scales, code = ctx.saved_tensors
        weight = _dequantized(packed, scales, code, ctx.shape, ctx.dtype)
        return (gradients[0].to(ctx.dtype) @ weight).to(ctx.input_dtype), None, None, None, None, None


def _functions() -> Any:
    """Return the functions of `bitsandbytes`."""
    return imported("bitsandbytes.functional", "load_in_4bit", "bitsandbytes", "bitsandbytes")


def _dequantized(
    packed: torch.Tensor, scales: torch.Tensor, code: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """Return W ``[m, n]``."""
    functions = _functions()
    state = functions.QuantState(
        absmax=scales, shape=torch.Size([math.prod(shape)]), code=code, blocksize=BLOCK, quant_type="nf4", dtype=dtype
    )
    return functions.dequantize_4bit(packed, state).reshape(shape)


def quantize(network: Any) -> None:
    """Replace every frozen linear layer by a `QuantizedLinear`, except the last one, whose weights are often tied.

    Raises:
        ConfigurationError: if there is no such layer.
    """
    last, number = network.get_output_embeddings(), 0
    for parent in list(network.modules()):
        for name, layer in list(parent.named_children()):
            transposed = type(layer).__name__ == "Conv1D"  # GPT-2's, whose weights are [n, m]
            if layer is last or not (transposed or is_plain(layer, (nn.Linear,))):
                continue
            if any(parameter.requires_grad for parameter in layer.parameters()):
                continue
            weight, number = layer.weight.T if transposed else layer.weight, number + 1
            setattr(parent, name, QuantizedLinear(weight, layer.bias))
    if not number:
        raise ConfigurationError(
            f"load_in_4bit: {type(network).__name__} has no frozen linear layer: leave load_in_4bit out"
        )
