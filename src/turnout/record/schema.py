"""Define the columns of the tables of a run, their types, and the direction in which they improve."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from turnout.core.checks import ConfigurationError

_INT, _FLOAT = pa.int64(), pa.float64()

ROUND_COLUMNS: Mapping[str, pa.DataType] = {
    "round": _INT,
    "num_participants": _INT,
    "num_dropped": _INT,
    "local_loss": _FLOAT,
    "weight_min": _FLOAT,
    "weight_mean": _FLOAT,
    "weight_max": _FLOAT,
    "weight_sum": _FLOAT,
    "update_norm": _FLOAT,
    "seconds": _FLOAT,
    "bytes_up": _INT,
    "bytes_down": _INT,
    "train_loss": _FLOAT,
    "train_accuracy": _FLOAT,
    "test_loss": _FLOAT,
    "test_accuracy": _FLOAT,
}
"""The columns every table of rounds has, and their types; others may follow, as float64."""

CLIENT_COLUMNS: Mapping[str, pa.DataType] = {
    "client": _INT,
    "name": pa.string(),
    "num_examples": _INT,
    "participations": _INT,
    "realized_rate": _FLOAT,
    "known_rate": _FLOAT,
    "mean_interval": _FLOAT,
    "weight": _FLOAT,
    "train_loss": _FLOAT,
    "train_accuracy": _FLOAT,
    "test_loss": _FLOAT,
    "test_accuracy": _FLOAT,
}
"""The columns every table of clients has, and their types; others may follow, as float64."""

PARTICIPATION_COLUMNS: Mapping[str, pa.DataType] = {"round": _INT, "client": _INT}
"""The columns every table of participation has, and their types; ``weight`` follows if it was recorded."""

EVALUATION_COLUMNS: Mapping[str, pa.DataType] = {
    "evaluation": _INT,
    "version": _INT,
    "asked": _INT,
    "answered": _INT,
    "examples": _INT,
}
"""The columns every table of evaluations by clients has, and their types; figures follow, as float64."""

ANSWERED = ("evaluation_asked", "evaluation_answered")
"""The columns of the table of rounds with the numbers of clients that were asked in an evaluation, and that answered."""

METRICS = ("accuracy", "rmse")
"""The metrics of a model beside its loss: for labels, and for numbers."""

HEADLINES = ("perplexity", *METRICS)
"""Metrics by importance: the first that was recorded is the result of a run."""

CHOOSING = ("validation_accuracy", "test_accuracy", "train_accuracy")
"""The columns by which settings and the end of a run are chosen: the first that was recorded counts."""

APPEAL_COLUMNS = ("appeal_test", "appeal_train", "client_accuracy", "preferred_accuracy")
"""The columns that `AppealMetrics` records of each kind of clients."""

JUDGED = {
    "": "",
    "unseen_": "unseen",
    "tuned_": "tuned",
    "unseen_tuned_": "unseen, tuned",
}
"""The kinds of clients of `AppealMetrics`: the prefix of their columns, and a description; no prefix is all that train."""

COSTS: Mapping[str, tuple[str, ...]] = {
    "bytes": ("bytes_up", "bytes_down", "bytes_measured"),
    "simulated_seconds": ("simulated_seconds",),
}
"""The costs of a run, and the columns of the table of rounds whose sum each of them is."""

SPENT: Mapping[str, tuple[str, ...]] = {**COSTS, "bytes_up": ("bytes_up",)}
"""The quantities against which curves are drawn, beside rounds: costs, and the bytes that clients send."""


def is_of_test_examples(metric: str) -> bool:
    """Return whether a column has figures of test examples, of all clients or of some.

    >>> is_of_test_examples("test_accuracy_of_0_1"), is_of_test_examples("validation_accuracy")
    (True, False)
    """
    return "test" in metric.split("_") or metric.endswith(("client_accuracy", "preferred_accuracy"))


def explain(column: str) -> str:
    """Say that test examples ended a run, and what to do instead; empty for other columns."""
    if not is_of_test_examples(column):
        return ""
    return (
        f"the {column.replace('_', ' ')} ended the run, so figures of test examples are biased: hold out validation "
        "examples (validation_fraction=0.1 in split, or data.validation_fraction=0.1)"
    )


def has_direction(metric: str) -> bool:
    """Return whether it is known if lower or higher values of a column are better; the names of users' metrics say so.

    >>> has_direction("test_hamming_distance"), has_direction("test_top_3_accuracy"), has_direction("test_top_3")
    (True, True, False)
    """
    name = f"_{metric.partition('_of_')[0]}"
    return not metric.startswith(("train_", "validation_", "test_")) or name.endswith((*_LESS, *_MORE))


def less_is_better(metric: str) -> bool:
    """Return whether lower values of a column are better: true of losses, errors, norms and costs, false of accuracies.

    Raises:
        ConfigurationError: if that is unknown, as of a user's metric with another name.

    >>> less_is_better("validation_mse"), less_is_better("validation_brier_score"), less_is_better("validation_f1")
    (True, True, False)
    """
    if not has_direction(metric):
        raise ConfigurationError(
            f"{metric}: its name does not say whether less or more is better: end the name of the function in _error or "
            "_loss if less is better, and in _score if more is"
        )
    return metric.endswith(_LESS) or metric.startswith("bytes")


_LESS = (
    "loss", "error", "error_rate", "perplexity", "norm", "seconds", "mse", "rmse", "mae", "mape", "msle", "rmsle", "nll",
    "entropy", "deviance", "brier", "brier_score", "ece", "hinge", "distance", "divergence", "regret",
)  # fmt: skip
"""Ends of the names of columns whose lower values are better."""

_MORE = tuple(f"_{end}" for end in (
    "accuracy", "score", "auc", "auroc", "auprc", "average_precision", "f1", "r2", "precision", "recall", "sensitivity",
    "specificity", "kappa", "mcc", "iou", "dice", "jaccard", "bleu", "rouge", "ndcg", "mrr", "correlation", "similarity",
    "likelihood",
))  # fmt: skip
"""Ends of the names of metrics whose higher values are better."""
