"""Read the outputs of a model as its loss does: where the classes are, or what a single output for two classes means."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import nn

from turnout.core.checks import ConfigurationError
from turnout.data.targets import IGNORED
from turnout.engine.loss import Loss, OfExamples, cross_entropy, squared_error

Kind = Literal["last", "second", "logit", "probability", "number"]
"""Outputs with a column for each class, on the last axis or on axis 1 as in `torch.nn.CrossEntropyLoss`; or one output for
two classes: a logit, the probability of class 1, or a number that approaches the label."""

_SURE = 8.0  # a logit of which one class has nearly all of the probability


def reading_of(loss: Loss, outputs: Any, targets: torch.Tensor) -> Kind | None:
    """Return how outputs are read as predictions of labels; None if they cannot be.

    If shapes leave a choice, the loss is evaluated on a few outputs: it is the smaller where an output is right.

    >>> reading_of(cross_entropy, torch.zeros(5, 3), torch.zeros(5, dtype=torch.int64))
    'last'
    >>> loss = OfExamples(torch.nn.BCEWithLogitsLoss())
    >>> reading_of(loss, torch.zeros(5, 1), torch.zeros(5, dtype=torch.int64))
    'logit'
    """
    if not isinstance(outputs, torch.Tensor) or outputs.shape[:1] != targets.shape[:1]:
        return None
    targets = _most_probable(loss, targets)
    if outputs.shape in (targets.shape, (*targets.shape, 1)) and (kind := _of_one_output(loss, outputs, targets)):
        return kind
    if outputs.dim() != targets.dim() + 1 or targets.is_floating_point():
        return None
    last, second = outputs.shape[:-1] == targets.shape, (len(targets), *outputs.shape[2:]) == tuple(targets.shape)
    if last and second and targets.dim() > 1:
        return _axis_of_classes(loss, outputs, targets)
    return "last" if last else "second" if second else None


def score(outputs: Any, targets: torch.Tensor, loss: Loss = cross_entropy) -> torch.Tensor:
    """Return the score of each output, float64 ``[b]``; NaN if outputs and targets cannot be compared.

    For a label, the score is 1 if the model predicts it, else 0; for several labels, it is the mean over those that are
    not ignored (see `cross_entropy`). A model with one output for two classes predicts class 1 if the output is above 0,
    or above 1/2 if it is a probability. If `nn.CrossEntropyLoss` has probabilities of classes as targets, the label is the
    most probable one. Outputs with NaN predict no label. For numbers, the score is the mean squared error, unless the loss
    compares the targets with something else than the outputs, such as their exponential.
    """
    if isinstance(outputs, torch.Tensor):
        targets = _most_probable(loss, targets)
        if targets.is_floating_point() and not is_of_labels(loss):
            fits = outputs.shape in (targets.shape, (*targets.shape, 1))
            if fits and _is_of_numbers(loss, outputs, targets):
                return squared_error(outputs.double(), targets.double())
        elif (kind := reading_of(loss, outputs, targets)) is not None:
            labels = targets if not targets.is_floating_point() else (targets > 0.5).to(targets.dtype)
            right = (_predicted(kind, outputs, targets) == labels).double()
            if targets.dim() == 1:
                return right
            counts = (targets != ignored(loss)).reshape(len(targets), -1)
            return (right.reshape(len(targets), -1) * counts).sum(dim=1) / counts.sum(dim=1)
    return torch.full((len(targets),), torch.nan, dtype=torch.float64, device=targets.device)


def as_logits(loss: Loss, outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return outputs as logits with classes on the last axis, ``[n, ..., C]``, and targets with `IGNORED` labels.

    Raises:
        ConfigurationError: if outputs cannot be read as predictions of labels.
    """
    targets = _most_probable(loss, targets)
    if targets.is_floating_point() and not is_of_labels(loss):
        if not _is_of_numbers(loss, outputs, targets):
            raise ConfigurationError(
                "metrics: mae and r2 compare outputs with targets, and the loss takes outputs for something else, such as "
                "logarithms: give functions of your own, such as def mae(outputs, targets) of outputs.exp()"
            )
        return outputs, targets
    kind = reading_of(loss, outputs, targets)
    if kind is None:
        raise ConfigurationError(
            f"metrics: outputs {tuple(outputs.shape)} cannot be read as predictions of targets {tuple(targets.shape)}: "
            "remove metrics, or give functions of your own"
        )
    targets = (targets > 0.5).long() if targets.is_floating_point() else targets.long()
    targets = targets.where(targets != ignored(loss), IGNORED)
    if kind == "last":
        return outputs, targets
    if kind == "second":
        return outputs.movedim(1, -1), targets
    targets = targets[:, 0] if targets.shape[1:] == (1,) else targets
    one = outputs.reshape(targets.shape).double()
    one = torch.special.logit(one) if kind == "probability" else one - 0.5 if kind == "number" else one
    return torch.stack([torch.zeros_like(one), one], dim=-1), targets


def check_columns(loss: Loss, outputs: Any, targets: torch.Tensor, num_classes: int | None) -> None:
    """Check that a model has an output for each class.

    Args:
        loss: the loss.
        outputs, targets: those of a minibatch.
        num_classes: C; None for numbers to predict.

    Raises:
        ConfigurationError: if it has fewer outputs.
    """
    if num_classes is None or not isinstance(outputs, torch.Tensor) or targets.is_floating_point():
        return
    kind = reading_of(loss, outputs, targets)
    if kind is None:
        return
    columns = 2 if kind in ("logit", "probability", "number") else outputs.shape[-1 if kind == "last" else 1]
    if columns < num_classes:
        what = f"{columns} outputs" if outputs.shape != targets.shape and outputs.shape[-1] > 1 else "one output"
        instead = ", or one output with loss=torch.nn.BCEWithLogitsLoss()" if num_classes == 2 else ""
        if what == "one output" and num_classes > 2:
            instead = ", or give floating-point targets if they are numbers to predict"
        raise ConfigurationError(
            f"the model does not fit the data: it has {what} for {num_classes} classes (outputs {tuple(outputs.shape)}, "
            f"targets {tuple(targets.shape)}): write a last layer with {num_classes} outputs{instead}"
        )


def is_of_labels(loss: Loss) -> bool:
    """Return True if a loss module compares outputs with labels 0 and 1 or with probabilities of classes, as numbers."""
    return isinstance(loss, OfExamples) and (loss.is_binary or isinstance(loss.module, nn.CrossEntropyLoss))


def has_one_label(loss: Loss, targets: torch.Tensor) -> bool:
    """Return True if each example has one label, also if the loss takes labels or probabilities of classes as numbers."""
    if not targets.is_floating_point():
        return targets.dim() == 1
    return is_of_labels(loss) and (targets.numel() == len(targets) or _most_probable(loss, targets).dim() == 1)


def _most_probable(loss: Loss, targets: torch.Tensor) -> torch.Tensor:
    """Return the labels of probabilities of classes ``[b, C, ...]``, which `nn.CrossEntropyLoss` takes; others unchanged."""
    if not (isinstance(loss, OfExamples) and isinstance(loss.module, nn.CrossEntropyLoss)):
        return targets
    return targets.argmax(dim=1) if targets.is_floating_point() and targets.dim() > 1 else targets


def metric_of(targets: torch.Tensor, loss: Loss) -> str:
    """Return the metric for predictions of these targets: ``"accuracy"`` for labels, ``"rmse"`` for numbers.

    ``"rmse"`` is the root mean squared error.
    """
    return "rmse" if targets.is_floating_point() and not is_of_labels(loss) else "accuracy"


def ignored(loss: Loss) -> int:
    """Return the label that a loss ignores."""
    return loss.ignored if isinstance(loss, OfExamples) else IGNORED


def _predicted(kind: Kind, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the predicted labels, of the shape of the targets; -1, which is no label, where outputs are NaN."""
    if kind in ("last", "second"):
        best, labels = outputs.max(dim=-1 if kind == "last" else 1)
    else:
        best = outputs.reshape(targets.shape)
        labels = (best > (0.0 if kind == "logit" else 0.5)).to(targets.dtype)
    return labels.masked_fill(best.isnan(), -1)


def _of_one_output(loss: Loss, outputs: torch.Tensor, targets: torch.Tensor) -> Kind | None:
    """Return the meaning of a single output for two classes; None if the loss does not compare it with labels 0 and 1."""
    if isinstance(loss, OfExamples) and loss.is_binary:
        return "probability" if isinstance(loss.module, nn.BCELoss) else "logit"
    labels = torch.zeros(2, *targets.shape[1:], dtype=targets.dtype)
    labels[1] = 1

    def losses(value: float) -> list[float] | None:
        """Return the losses of an output for the labels 0 and 1; None if they are not finite."""
        found = _tried(loss, torch.full((2, *outputs.shape[1:]), value, dtype=outputs.dtype), labels)
        return None if found is None else found.tolist()

    inside, half, zero = losses(0.9), losses(0.5), losses(0.0)
    if inside is None or inside[1] >= inside[0]:
        return None
    if losses(-1.0) is None:
        return "probability"
    is_even = half is not None and abs(half[0] - half[1]) < 1e-6
    return "number" if is_even and zero is not None and zero[0] < zero[1] else "logit"


def _axis_of_classes(loss: Loss, outputs: torch.Tensor, targets: torch.Tensor) -> Kind:
    """Return the axis of the classes where shapes fit both, from losses of outputs that are right on one of them."""
    labels = torch.full((2, *targets.shape[1:]), int(ignored(loss) == 0))
    right = (nn.functional.one_hot(labels, outputs.shape[-1]) * _SURE).to(outputs.dtype)
    last, second = (_tried(loss, values, labels) for values in (right, right.movedim(-1, 1)))
    return "second" if last is not None and second is not None and second.sum() < last.sum() else "last"


def _is_of_numbers(loss: Loss, outputs: torch.Tensor, targets: torch.Tensor) -> bool:
    """Return True unless a loss is smaller at other outputs than at the targets, as that of a logarithm or of logits is.

    The targets are numbers between 0 and 1, and 1 and -1.
    """
    if loss is squared_error:
        return True
    width = max(1, math.prod(targets.shape[1:]))
    between = torch.linspace(0.1, 0.9, width + 1, dtype=targets.dtype)[1:].repeat(2)
    signs = torch.tensor([1.0, -1.0], dtype=targets.dtype).repeat_interleave(width)
    for numbers in (between, signs):
        tried = [
            _tried(loss, values.reshape(2, *outputs.shape[1:]), numbers.reshape(2, *targets.shape[1:]))
            for values in (numbers, numbers + 0.3, numbers - 0.3, 2 * numbers, 3 * numbers)
        ]
        if tried[0] is not None and any(other is not None and (other < tried[0]).any() for other in tried[1:]):
            return False
    return True


def _tried(loss: Loss, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor | None:
    """Return the losses of two made-up examples, ``[2]``; None if the loss fails or is not finite."""
    try:
        with torch.no_grad():
            losses = loss(outputs, targets)
        return losses if losses.shape == (2,) and losses.isfinite().all() else None
    except Exception:  # losses of users may raise any exception
        return None
