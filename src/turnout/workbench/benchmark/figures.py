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
    rounds, clients = result.rounds, result.clients
    accuracy = rounds["test_accuracy"].to_numpy(zero_copy_only=False).astype(float)
    updates = np.cumsum(rounds["num_participants"].to_numpy(zero_copy_only=False))
    reached = np.flatnonzero((accuracy >= target) & (not personal))
    own = clients["test_accuracy"].to_numpy(zero_copy_only=False).astype(float)
    share = clients["participations"].to_numpy(zero_copy_only=False) / len(rounds)
    away = own[(share < 1 - ABSENT) & ~np.isnan(own)]
    known = np.sort(own[~np.isnan(own)])
    sent = sum(float(np.nansum(rounds[name].to_numpy(zero_copy_only=False))) for name in ("bytes_up", "bytes_down"))
    found = {
        "test_accuracy": math.nan if personal else float(accuracy[~np.isnan(accuracy)][-1]),
        "client_accuracy": float(known.mean()) if len(known) else math.nan,
        "worst_tenth": float(known[: max(1, len(known) // 10)].mean()) if len(known) else math.nan,
        "absent": float(away.mean()) if len(away) else math.nan,
        "rounds_to_target": float(reached[0] + 1) if len(reached) else math.nan,
        "updates_to_target": float(updates[reached[0]]) if len(reached) else math.nan,
        "bytes": sent,
        "server_bytes": float(np.nanmax(rounds["server_bytes"].to_numpy(zero_copy_only=False))),
    }
    return {name: value if math.isfinite(value) else None for name, value in found.items()}
