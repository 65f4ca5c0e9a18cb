"""Compute metrics beside loss and accuracy from the outputs of a model and the targets of a split, or of one client."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import torch

from turnout.core.checks import ConfigurationError, nearest, refuse
from turnout.engine.loss import Loss
from turnout.engine.reading import as_logits

__all__ = ["auc", "balanced_accuracy", "calibration_error", "f1", "mae", "perplexity", "r2", "worst_class_accuracy"]

Metric = Callable[[torch.Tensor, torch.Tensor], float | torch.Tensor]
"""A function from outputs ``[n, ...]`` and targets ``[n, ...]`` to a number; NaN if it is undefined, such as AUC with one
class. Or to one number for each example, ``[n]``, whose mean is the metric: clients of a server can send their sum."""

_BINS = 15  # of the calibration error


def auc(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the area under the ROC curve, from logits ``[n, C]`` and labels ``[n]``.

    It is the fraction of pairs of a positive and a negative example in which the positive one has the larger score; ties
    count half. With two classes, the score is the difference of the logits. With more, it is the probability of a class in
    float64, and the result is the mean over classes, one against the rest (macro), without classes that all or no examples
    have.

    >>> auc(torch.tensor([[0.0, 0.1], [0.0, 0.3], [0.0, 0.2]]), torch.tensor([0, 1, 1]))
    1.0
    """
    if outputs.shape[1] == 2:
        return _auc(outputs[:, 1].double() - outputs[:, 0], targets == 1)
    areas = [_auc(scores, targets == k) for k, scores in enumerate(outputs.double().softmax(dim=1).T)]
    known = [area for area in areas if not math.isnan(area)]
    return sum(known) / len(known) if known else math.nan


def _auc(scores: torch.Tensor, positive: torch.Tensor) -> float:
    """Return the area under the ROC curve of one class; NaN without positive or negative examples, or with NaN scores."""
    if scores.isnan().any():
        return math.nan
    negative, scores = scores[~positive].sort().values, scores[positive]
    if not len(negative) or not len(scores):
        return math.nan
    below = torch.searchsorted(negative, scores) + torch.searchsorted(negative, scores, right=True)
    return float(below.double().mean()) / 2 / len(negative)


def f1(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the F1 score, from logits ``[n, C]`` and labels ``[n]``, as a mean over classes (macro).

    It is ``2 TP / (2 TP + FP + FN)`` for each class that is the label or the prediction of an example.

    >>> round(f1(torch.eye(2)[[0, 1, 1]], torch.tensor([0, 0, 1])), 3)
    0.667
    """
    right, predicted, labeled = _counts(outputs, targets)
    occurs = predicted + labeled > 0
    return float((2 * right[occurs] / (predicted + labeled)[occurs]).mean()) if occurs.any() else math.nan


def balanced_accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the mean recall over classes with examples.

    >>> balanced_accuracy(torch.eye(2)[[0, 0, 0, 1]], torch.tensor([0, 0, 1, 1]))
    0.75
    """
    return float(_recalls(outputs, targets).mean())


def worst_class_accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the smallest recall of a class with examples.

    >>> worst_class_accuracy(torch.eye(2)[[0, 0, 0, 1]], torch.tensor([0, 0, 1, 1]))
    0.5
    """
    recalls = _recalls(outputs, targets)
    return float(recalls.min()) if len(recalls) else math.nan


def perplexity(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the exponential of the mean cross-entropy over all labels or tokens, without ignored ones, from logits ``[...,
    C]``.

    >>> perplexity(torch.zeros(3, 4), torch.tensor([0, 1, 2]))
    4.0
    """
    flat = outputs.reshape(-1, outputs.shape[-1]).double(), targets.reshape(-1)
    return round(float(torch.nn.functional.cross_entropy(*flat).exp()), 12)


def calibration_error(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the expected calibration error, from logits ``[n, C]`` and labels ``[n]``.

    It is the mean over examples of ``|accuracy - confidence|`` of their bin, with 15 bins of equal width over the probability
    of the predicted class.

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", equation 3.

    >>> calibration_error(torch.tensor([[100.0, 0.0], [100.0, 0.0]]), torch.tensor([0, 1]))
    0.5
    """
    confidence = outputs.double().nan_to_num(torch.nan).softmax(dim=1).max(dim=1).values  # without infinity
    predicted = outputs.argmax(dim=1)
    bins = (confidence * _BINS).ceil().long().clamp(1, _BINS) - 1
    gap = (predicted == targets).double() - confidence
    return float(torch.zeros(_BINS, dtype=torch.float64).index_add_(0, bins.cpu(), gap.cpu()).abs().sum()) / len(
        targets
    )


def mae(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the mean absolute error.

    >>> mae(torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 3.0]))
    0.5
    """
    return float((outputs.double().reshape(targets.shape) - targets).abs().mean())


def r2(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the coefficient of determination, ``1 - sum (y - f)^2 / sum (y - mean y)^2``; NaN for equal targets.

    >>> r2(torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 4.0]))
    0.75
    """
    targets = targets.double()
    total = float((targets - targets.mean(dim=0)).square().sum())
    return (
        1.0 - float((outputs.double().reshape(targets.shape) - targets).square().sum()) / total if total else math.nan
    )


def _recalls(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the recall of each class with examples."""
    right, _, labeled = _counts(outputs, targets)
    return right[labeled > 0] / labeled[labeled > 0]


def _counts(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the numbers of correct predictions, predictions and labels of each class, ``[C]`` each."""
    num_classes, (best, predicted) = outputs.shape[1], outputs.max(dim=1)
    predicted = predicted.masked_fill(best.isnan(), num_classes)  # outputs with NaN predict no class
    numbers = (targets[predicted == targets], predicted, targets)
    right, predictions, labels = (torch.bincount(of, minlength=num_classes)[:num_classes].double() for of in numbers)
    return right, predictions, labels


METRICS: Mapping[str, Metric] = {
    metric.__name__: metric
    for metric in (auc, f1, balanced_accuracy, worst_class_accuracy, perplexity, calibration_error, mae, r2)
}
"""Metrics by name. `mae` and `r2` are for regression, `perplexity` is for labels or tokens, the others are for one label."""

_ALWAYS = ("loss", "accuracy", "rmse")
_OF_NUMBERS, _OF_SEQUENCES = ("mae", "r2"), ("perplexity",)


def of_logits(metric: Metric, loss: Loss, outputs: torch.Tensor, targets: torch.Tensor) -> float | torch.Tensor:
    """Return a metric of outputs that are read as logits for the loss; see `turnout.engine.reading.as_logits`."""
    return metric(*as_logits(loss, outputs, targets))


def named(metrics: Any, has_labels: bool, has_numbers: bool) -> dict[str, Metric]:
    """Return metrics by the names of their columns.

    Args:
        metrics: names of `METRICS`, or functions of outputs and targets, which are named as the functions.
        has_labels: True if each example has one label.
        has_numbers: True if targets are numbers (regression).

    Raises:
        ConfigurationError: if a name is unknown or repeated, an object is no function, or a metric is of other targets.
    """
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise refuse("metrics", given=metrics, needed="a sequence of names and functions, such as ('auc', 'f1')")
    functions: dict[str, Metric] = {}
    for name, function in map(_named, metrics):
        if name in functions or name in _ALWAYS:
            raise refuse("metrics", given=name, needed="names that no other column has")
        fits = has_numbers if name in _OF_NUMBERS else not has_numbers if name in _OF_SEQUENCES else has_labels
        if METRICS.get(name) is function and not fits:
            raise ConfigurationError(
                f"metrics: {name} needs {'numeric targets' if name in _OF_NUMBERS else 'class labels'}, which the data do "
                f"not have: remove it{'' if name in _OF_NUMBERS else ', or give labels as whole numbers'}"
            )
        functions[name] = function
    return functions


def _named(metric: Any) -> tuple[str, Metric]:
    """Return the name of a metric and its function."""
    if metric in _ALWAYS:
        raise ConfigurationError(
            f"metrics: every evaluation records {metric} where it is defined, for every split, as in test_{metric}: leave it "
            f"out, or write one of {', '.join(METRICS)}"
        )
    if isinstance(metric, str):
        if metric in METRICS:
            return metric, METRICS[metric]
        raise ConfigurationError(
            f"unknown metric {metric!r}: {nearest(metric, METRICS)}; {', '.join(_ALWAYS)} are recorded always"
        )
    name = getattr(metric, "__name__", "")
    if not callable(metric) or not name.isidentifier():
        raise refuse(
            "metrics", given=metric, needed="a name, or a function of outputs and targets that def gave a name"
        )
    return name, cast(Metric, metric)


def measured(functions: Mapping[str, Metric], outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
    """Compute metrics, by name.

    Raises:
        ConfigurationError: if a metric fails, changes what it receives, or does not return a number.
    """
    figures, versions = {}, (outputs._version, targets._version)
    for name, function in functions.items():
        try:
            value = function(outputs, targets)
        except ConfigurationError:
            raise
        except Exception as error:  # functions of users may raise any exception
            raise ConfigurationError(
                f"metric {name} failed on outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)} with: {error}; "
                "write a function of logits and targets, tensors, that returns nan where it is undefined"
            ) from error
        if (outputs._version, targets._version) != versions:
            raise ConfigurationError(
                f"metric {name} changes its outputs or targets in place, of which other figures are computed: write a "
                "function that leaves them unchanged, such as -outputs in place of outputs.neg_()"
            )
        try:
            by_example = isinstance(value, torch.Tensor) and value.shape == (len(targets),)
            figures[name] = float(value.double().mean() if by_example else value)  # type: ignore[union-attr]
        except (TypeError, ValueError, RuntimeError) as error:
            raise refuse(
                f"metric {name}", given=value, needed="a number for all examples together, or one for each"
            ) from error
    return figures
