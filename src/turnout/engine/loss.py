"""Losses and scores of examples."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from turnout.core.checks import ConfigurationError
from turnout.core.registry import Family
from turnout.data.targets import IGNORED

__all__ = ["cross_entropy", "squared_error"]

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Function from outputs ``[b, ...]`` and targets ``[b, ...]`` to one loss for each example, ``[b]``."""


LOSSES = Family("loss", "losses", ("turnout.engine.loss",), returns=torch.Tensor)
"""Registry of losses by name."""


@LOSSES.register
def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the softmax cross-entropy of each example, ``[b]``, from logits ``[b, C]`` and labels ``[b]``.

    From logits ``[b, T, C]`` and token labels ``[b, T]``, the loss of an example is the mean over its tokens, without
    those whose label is `turnout.data.targets.IGNORED`.

    >>> cross_entropy(torch.tensor([[[0.0, 0.0], [9.0, 0.0]]]), torch.tensor([[1, -100]]))
    tensor([0.6931])
    """
    if targets.dim() > 1:
        counts = targets != IGNORED
        losses = -outputs.log_softmax(dim=-1).gather(-1, targets.where(counts, 0).unsqueeze(-1)).squeeze(-1)
        return (losses * counts).sum(dim=-1) / counts.sum(dim=-1)
    # As torch.nn.functional.cross_entropy, without its handling of ignored labels, which costs more than a small model.
    return -outputs.log_softmax(dim=-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


@LOSSES.register
def squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean squared error of each example, ``[b]``, from outputs and targets ``[b, D]``.

    The mean of ``(output - target)^2`` is over the D numbers. Outputs ``[b, 1]`` fit targets ``[b]``.

    Raises:
        ConfigurationError: if outputs and targets differ in number.

    >>> squared_error(torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 3.0]))
    tensor([1., 0.])
    """
    if outputs.numel() != targets.numel():
        raise ConfigurationError(
            f"loss: squared_error needs an output for each number to predict, got outputs {tuple(outputs.shape)} and targets "
            f"{tuple(targets.shape)}: give floating-point targets if labels are numbers, or leave the loss out for classes"
        )
    return (outputs.reshape(targets.shape) - targets).square().reshape(len(targets), -1).mean(dim=1)


class OfExamples:
    """Turn a loss module of torch into one loss for each example, ``[b]``: the mean over all other dimensions.

    The mean of these losses is the loss of the module with ``reduction="mean"``. For several labels of an example, the mean
    is over those that are not ignored. `nn.BCEWithLogitsLoss`, `nn.BCELoss` and `nn.MultiLabelSoftMarginLoss` take labels 0
    and 1 of any type, and the first two also outputs ``[b, 1]`` for labels ``[b]``.

    Args:
        module: a loss module, such as ``nn.CrossEntropyLoss()``; it is copied.

    Attributes:
        module: the module, which returns a loss for each element.
        is_binary: True if it compares each output with a label 0 or 1.
        ignored: the label that it ignores.

    Raises:
        ConfigurationError: if the module has ``reduction="sum"``, a mean weighted by class, or parameters.
    """

    def __init__(self, module: nn.Module) -> None:
        name, reduction = type(module).__name__, getattr(module, "reduction", "none")
        if reduction == "sum":
            raise ConfigurationError(f"loss: {name} gives the sum over a minibatch: write {name}(reduction='none')")
        by_class = isinstance(module, nn.CrossEntropyLoss | nn.NLLLoss) and module.weight is not None
        if reduction == "mean" and by_class:
            raise ConfigurationError(
                f"loss: {name}(weight=...) divides by the weights of a minibatch, which is no mean of losses of examples: "
                f"write {name}(weight=..., reduction='none'), which divides by their number"
            )
        if any(True for _ in module.parameters()):
            raise ConfigurationError(f"loss: {name} has parameters, which are not trained: put them into the model")
        self.module = copy.deepcopy(module)
        self.is_binary = isinstance(module, nn.BCEWithLogitsLoss | nn.BCELoss | nn.MultiLabelSoftMarginLoss)
        self.ignored = int(getattr(module, "ignore_index", IGNORED))
        if reduction == "mean":
            self.module.reduction = "none"  # type: ignore[assignment]

    def __call__(self, outputs: Any, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of each example, ``[b]``."""
        if self.is_binary:
            targets = self._as_binary(outputs, targets)
        losses = self.module(outputs, targets)
        if losses.dim() < 2:
            return losses
        losses = losses.reshape(len(losses), -1)
        if targets.is_floating_point() or losses.shape[1] != targets[0].numel():
            return losses.mean(dim=1)
        return losses.sum(dim=1) / (targets != self.ignored).reshape(len(targets), -1).sum(dim=1)

    def _as_binary(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return labels 0 and 1 in the type and the shape of the outputs."""
        if outputs.shape not in (targets.shape, (*targets.shape, 1)):
            name = type(self.module).__name__
            raise ConfigurationError(
                f"loss: {name} needs one output for each label, got outputs {tuple(outputs.shape)} and targets "
                f"{tuple(targets.shape)}: write a last layer with one output, or loss=torch.nn.CrossEntropyLoss() for an "
                "output for each class"
            )
        return targets.to(outputs.dtype).reshape(outputs.shape)
