"""Compute metrics beside loss and accuracy from the outputs of a model and the targets of a split, or of one client."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import torch

from turnout.core.checks import ConfigurationError, known_name, refuse

__all__ = ["auc", "balanced_accuracy", "calibration_error", "f1", "mae", "perplexity", "r2", "worst_class_accuracy"]

Metric = Callable[[torch.Tensor, torch.Tensor], float | torch.Tensor]
"""From outputs ``[n, ...]`` and targets ``[n, ...]`` to a figure; NaN where there is none, such as AUC with one class. Or to
one number for each example, ``[n]``, whose mean is the figure: clients of a server can give its sum."""

_BINS = 15


def auc(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the area under the ROC curve, from logits ``[n, C]`` and labels ``[n]``.

    The share of pairs of a positive and a negative example in which the positive one has the larger score, ties counting
    half. With two classes the score is the difference of the logits. With more it is the probability of a class, and the
    result the mean over the classes that some examples have and others have not (macro, one against the rest).

    >>> auc(torch.tensor([[0.0, 0.1], [0.0, 0.3], [0.0, 0.2]]), torch.tensor([0, 1, 1]))
    1.0
    """
    if outputs.shape[1] == 2:
        return _auc(outputs[:, 1] - outputs[:, 0], targets == 1)
    areas = [_auc(scores, targets == k) for k, scores in enumerate(outputs.softmax(dim=1).T)]
    known = [area for area in areas if not math.isnan(area)]
    return sum(known) / len(known) if known else math.nan


def _auc(scores: torch.Tensor, positive: torch.Tensor) -> float:
    """Return the area under the ROC curve of one class; NaN without positive or without negative examples."""
    negative, scores = scores[~positive].sort().values, scores[positive]
    if not len(negative) or not len(scores):
        return math.nan
    below = torch.searchsorted(negative, scores) + torch.searchsorted(negative, scores, right=True)
    return float(below.double().mean()) / 2 / len(negative)


def f1(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the F1 score, from logits ``[n, C]`` and labels ``[n]``, as a mean over classes (macro).

    ``2 TP / (2 TP + FP + FN)`` of each class that is a label or a prediction of some example.

    >>> round(f1(torch.eye(2)[[0, 1, 1]], torch.tensor([0, 0, 1])), 3)
    0.667
    """
    right, predicted, labelled = _counts(outputs, targets)
    some = predicted + labelled > 0
    return float((2 * right[some] / (predicted + labelled)[some]).mean()) if some.any() else math.nan


def balanced_accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the mean over classes of the share of their examples that are predicted right, of classes with examples.

    >>> balanced_accuracy(torch.eye(2)[[0, 0, 0, 1]], torch.tensor([0, 0, 1, 1]))
    0.75
    """
    recalls = _recalls(outputs, targets)
    return float(recalls.mean()) if len(recalls) else math.nan


def worst_class_accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the smallest share of the examples of a class that are predicted right, of classes with examples.

    >>> worst_class_accuracy(torch.eye(2)[[0, 0, 0, 1]], torch.tensor([0, 0, 1, 1]))
    0.5
    """
    recalls = _recalls(outputs, targets)
    return float(recalls.min()) if len(recalls) else math.nan


def perplexity(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the exponential of the mean cross-entropy over all labels, or all tokens that count, from logits ``[..., C]``.

    >>> perplexity(torch.zeros(3, 4), torch.tensor([0, 1, 2]))
    4.0
    """
    flat = outputs.reshape(-1, outputs.shape[-1]).double(), targets.reshape(-1)
    return round(math.exp(float(torch.nn.functional.cross_entropy(*flat))), 12)


def calibration_error(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the expected calibration error, from logits ``[n, C]`` and labels ``[n]``.

    The mean over examples of ``|accuracy - confidence|`` of their bin, with 15 bins of equal width over the probability of
    the predicted class.

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", equation 3.

    >>> calibration_error(torch.tensor([[100.0, 0.0], [100.0, 0.0]]), torch.tensor([0, 1]))
    0.5
    """
    confidence, predicted = outputs.double().softmax(dim=1).max(dim=1)
    bins = (confidence * _BINS).ceil().long().clamp(1, _BINS) - 1
    gap = (predicted == targets).double() - confidence
    return float(torch.zeros(_BINS, dtype=torch.float64).index_add_(0, bins.cpu(), gap.cpu()).abs().sum()) / len(
        targets
    )


def mae(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the mean absolute error of numbers.

    >>> mae(torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 3.0]))
    0.5
    """
    return float((outputs.reshape(targets.shape) - targets).abs().double().mean())


def r2(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the coefficient of determination of numbers, ``1 - sum (y - f)^2 / sum (y - mean y)^2``; NaN for equal targets.

    >>> r2(torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 4.0]))
    0.75
    """
    targets = targets.double()
    total = float((targets - targets.mean(dim=0)).square().sum())
    return (
        1.0 - float((outputs.double().reshape(targets.shape) - targets).square().sum()) / total if total else math.nan
    )


def _recalls(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the share of right predictions of each class that has examples."""
    right, _, labelled = _counts(outputs, targets)
    return right[labelled > 0] / labelled[labelled > 0]


def _counts(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return how often each class is predicted right, is predicted, and is the label, ``[C]`` each."""
    num_classes, predicted = outputs.shape[1], outputs.argmax(dim=1)
    numbers = (targets[predicted == targets], predicted, targets)
    right, predictions, labels = (torch.bincount(each, minlength=num_classes).double() for each in numbers)
    return right, predictions, labels


METRICS: Mapping[str, Metric] = {
    each.__name__: each
    for each in (auc, f1, balanced_accuracy, worst_class_accuracy, perplexity, calibration_error, mae, r2)
}
"""Metrics by name. All but `mae`, `r2` and `perplexity` are of one label for each example; `mae` and `r2` are of numbers."""

_OF_NUMBERS, _OF_SEQUENCES = ("mae", "r2"), ("perplexity",)


def named(metrics: Any, has_labels: bool, has_numbers: bool) -> dict[str, Metric]:
    """Return metrics by the names of their columns.

    Args:
        metrics: names of `METRICS`, and functions of outputs and targets, whose names they have.
        has_labels: whether each example has one label.
        has_numbers: whether targets are numbers to predict.

    Raises:
        ConfigurationError: for an unknown name, what is no function, two of one name, and metrics of other targets.
    """
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise refuse("metrics", given=metrics, needed="a sequence of names and functions, such as ('auc', 'f1')")
    functions: dict[str, Metric] = {}
    for metric in metrics:
        name = metric if isinstance(metric, str) else getattr(metric, "__name__", "")
        function = METRICS[known_name("metric", metric, METRICS)] if isinstance(metric, str) else metric
        if not callable(function) or not name.isidentifier():
            raise refuse("metrics", given=metric, needed="a function with a name, of outputs and targets")
        if name in functions or name in ("loss", "accuracy", "rmse"):
            raise refuse("metrics", given=name, needed="names that no other column has")
        fits = has_numbers if name in _OF_NUMBERS else not has_numbers if name in _OF_SEQUENCES else has_labels
        if METRICS.get(name) is function and not fits:
            raise ConfigurationError(
                f"metrics: {name} is about {'numbers to predict' if name in _OF_NUMBERS else 'class labels'}, and the "
                "targets of these data are others: leave it out"
            )
        functions[name] = cast(Metric, function)
    return functions


def measured(functions: Mapping[str, Metric], outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
    """Return the figures of metrics, by name.

    Raises:
        ConfigurationError: for a metric that returns no number.
    """
    figures = {}
    for name, function in functions.items():
        value = function(outputs, targets)
        try:
            each = isinstance(value, torch.Tensor) and value.shape == (len(targets),)
            figures[name] = float(value.double().mean() if each else value)  # type: ignore[union-attr]
        except (TypeError, ValueError, RuntimeError) as error:
            raise refuse(
                f"metric {name}", given=value, needed="a number for all examples together, or one for each"
            ) from error
    return figures
