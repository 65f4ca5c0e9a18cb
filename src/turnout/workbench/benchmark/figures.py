"""Compute the figures of a finished run that a row of the benchmark contains."""

from __future__ import annotations

import math

import numpy as np

from turnout.result import Result

FIGURES = {
    "test_accuracy": "test accuracy",
    "client_accuracy": "accuracy of clients on their own examples",
    "worst_tenth": "accuracy of the worst tenth of clients",
    "absent": "accuracy at clients absent in more than 80 % of rounds",
    "rounds_to_target": "rounds to the target",
    "updates_to_target": "client updates to the target",
    "bytes": "bytes sent both ways",
    "server_bytes": "memory of the server",
}
"""The figures by name, with their titles."""

ACCURACIES = ("test_accuracy", "client_accuracy", "worst_tenth", "absent")
"""The figures that are accuracies."""

ABSENT = 0.8
"""The share of rounds above which a client counts as absent."""


def figures_of(result: Result, target: float, personal: bool = False) -> dict[str, float | None]:
    """Return the figures of a run; None where there is none: no such client, or a target that is not reached.

    Args:
        result: the run.
        target: the test accuracy whose cost is counted.
        personal: whether each client is served by a model of its own. Then there is no test accuracy, because no model is
            meant for the examples of all.
    """
    history = result.history
    accuracy, own = history.column("test_accuracy")[1], history.client_column("test_accuracy")
    reached = None if personal else history.reached("test_accuracy", target)
    share = history.client_column("participations") / len(history)
    known = np.sort(own[~np.isnan(own)])
    found = {
        "test_accuracy": math.nan if personal else float(accuracy[~np.isnan(accuracy)][-1]),
        "client_accuracy": _mean(known),
        "worst_tenth": _mean(known[: max(1, len(known) // 10)]),
        "absent": _mean(own[(share < 1 - ABSENT) & ~np.isnan(own)]),
        "rounds_to_target": math.nan,
        "updates_to_target": math.nan,
        "bytes": float(history.total("bytes_up") + history.total("bytes_down")),
        "server_bytes": float(history.column("server_bytes")[1].max()),
    }
    if reached is not None:
        found["rounds_to_target"] = float(reached.rounds)
        found["updates_to_target"] = float(history.column("num_participants")[1][: reached.rounds].sum())
    return {name: value if math.isfinite(value) else None for name, value in found.items()}


def _mean(values: np.ndarray) -> float:
    """Return the mean of values; NaN without any."""
    return float(values.mean()) if len(values) else math.nan
