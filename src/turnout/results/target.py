"""Compute the costs of reaching a target: rounds, bytes and simulated time of each algorithm over its seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turnout.core.checks import ConfigurationError, is_finite, refuse
from turnout.record.schema import CHOOSING
from turnout.results.names import name_of, scale_of
from turnout.results.records import RunRecord, by_algorithm, has_column, recorded_columns
from turnout.results.statistics import Quartiles

COSTS = {"rounds": ("rounds", 1.0), "bytes": ("sent (MB)", 1e-6), "simulated_seconds": ("simulated time (s)", 1.0)}
"""The costs of reaching a target: title and display scale."""

TO_TARGET = {cost: f"{cost}_to_target" for cost in COSTS}
"""The column of each cost in a comparison."""


@dataclass(frozen=True)
class Target:
    """A target value of a recorded column: ``Target("test_accuracy", 0.7)``."""

    metric: str
    value: float

    def __str__(self) -> str:
        unit = " %" if scale_of(self.metric) == 100.0 else ""
        return f"{name_of(self.metric)} {scale_of(self.metric) * self.value:g}{unit}"


def accuracy_target(records: Sequence[RunRecord], accuracy: float) -> Target:
    """Return a target for the first recorded column of `CHOOSING`, which begins with the validation accuracy.

    Raises:
        ConfigurationError: if an accuracy is outside (0, 1].
    """
    check_accuracy(accuracy)
    recorded = (name for name in CHOOSING if has_column(records, name))
    return Target(next(recorded, CHOOSING[-1]), float(accuracy))


def check_accuracy(accuracy: Any, name: str = "to_accuracy") -> None:
    """Raise an error for a value that is not an accuracy, 0 < accuracy <= 1."""
    if not is_finite(accuracy) or not 0.0 < accuracy <= 1.0:
        instead = f"Write {accuracy / 100:g} for {accuracy:g} %" if is_finite(accuracy) and 1 < accuracy <= 100 else ""
        raise refuse(name, given=accuracy, needed="a share of the examples, 0 < accuracy <= 1", instead=instead)


def costs(records: Sequence[RunRecord], target: Target) -> dict[str, dict[str, Quartiles]]:
    """Return the costs of reaching `target`, by algorithm and column.

    Returns:
        Quartiles over seeds of ``rounds_to_target`` and, where recorded, of ``bytes_to_target`` and
        ``simulated_seconds_to_target``, infinite if the target was not reached. ``reached`` equals ``rounds_to_target``;
        its column shows the number of seeds that reached the target.

    Raises:
        ConfigurationError: if no run has the column.
    """
    known = recorded_columns(records)
    if target.metric not in known:
        raise ConfigurationError(f"no run recorded {target.metric}: needed one of {', '.join(sorted(known))}")
    return {name: _over_seeds(group, target) for name, group in by_algorithm(records).items()}


def _over_seeds(group: Sequence[RunRecord], target: Target) -> dict[str, Quartiles]:
    """Return the quartiles of the costs of one algorithm by column; costs that no seed recorded are left out."""
    reached = [
        record.history.reached(target.metric, target.value) if record.history.has_values(target.metric) else None
        for record in group
    ]
    figures = {}
    for cost, column in TO_TARGET.items():
        if cost == "rounds" or any(record.history.spent(cost) is not None for record in group):
            spent = [getattr(until, cost, None) for until in reached]
            figures[column] = Quartiles.over([math.inf if value is None else value for value in spent])
    return {"reached": figures["rounds_to_target"], **figures}
