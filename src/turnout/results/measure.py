"""Reduce runs to single figures: the final value of a metric, its mean, its largest fall, or the cost of a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnout.core.checks import ConfigurationError, is_finite, known_name, refuse
from turnout.evaluation.fairness import spread
from turnout.record.query import History
from turnout.record.schema import CHOOSING, less_is_better
from turnout.results.names import name_of, scale_of
from turnout.results.records import RunRecord, by_algorithm, has_column, recorded_columns
from turnout.results.statistics import Quartiles, number

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


def _largest_fall(history: History, metric: str) -> float:
    """Return the largest deterioration from one evaluation to the next in the second half of the rounds."""
    rounds, values = history.column(metric)
    late = values[rounds > history.last_round / 2]
    with np.errstate(invalid="ignore"):
        worse = np.diff(late if less_is_better(metric) else -late)
    return float(np.maximum(0.0, worse.max())) if len(worse) else 0.0  # NaN if the run diverged


def _recorded(history: History, metric: str, of_clients: bool) -> int:
    """Return the number of values of a column of the table of clients, or of rounds, that were recorded; NaN is a value."""
    if not of_clients:
        return len(history.column(metric)[1])
    return len(history.client_column(metric)) - history.clients[metric].null_count


ALONG: dict[str, tuple[str, Callable[[History, str], float]]] = {
    "final": ("{}", lambda history, metric: history.final(metric)),
    "average": ("{}, mean over rounds", lambda history, metric: float(history.column(metric)[1].mean())),
    "largest_fall": ("largest fall of {}, second half", _largest_fall),
    "spread": ("standard deviation over clients of {}", lambda history, metric: spread(history.client_column(metric))),
}
"""Titles and functions of the figures of a metric."""


@dataclass(frozen=True)
class Measure:
    """One figure of a run, written as ``"final test_accuracy"``, ``"average train_loss"`` or ``"rounds"``.

    Args:
        kind: ``"final"`` (mean over the last 10 % of the rounds), ``"average"`` (over all evaluations, for the speed of
            convergence), ``"largest_fall"`` (in the second half, for instability), ``"spread"`` (standard deviation over
            clients at the end); or, until a target is reached, ``"rounds"``, ``"bytes"`` and ``"simulated_seconds"``.
        metric: the recorded column, for ``"spread"`` of the table of clients; None for the last three.

    Raises:
        ConfigurationError: if a kind is unknown, or a metric is missing or superfluous.
    """

    kind: str
    metric: str | None = None

    def __post_init__(self) -> None:
        known_name("measure", self.kind, [*ALONG, *COSTS])
        if (self.metric is None) == (self.kind in ALONG):
            example = f"{self.kind} test_accuracy" if self.kind in ALONG else self.kind
            raise ConfigurationError(f"measure {str(self)!r}: write {example!r}")

    @classmethod
    def read(cls, text: str) -> Measure:
        """Parse a measure."""
        if not isinstance(text, str):
            raise refuse("measure", given=text, needed="a text, such as 'final test_accuracy'")
        kind, _, metric = text.strip().partition(" ")
        return cls(kind, metric.strip() or None)

    def __str__(self) -> str:
        return self.kind if self.metric is None else f"{self.kind} {self.metric}"

    @property
    def title(self) -> str:
        """The name in tables and figures."""
        if self.metric is None:
            return COSTS[self.kind][0]
        return ALONG[self.kind][0].format(name_of(self.metric)) + (" (%)" if self.scale == 100.0 else "")

    @property
    def scale(self) -> float:
        """The factor of figures in tables and plots."""
        if self.metric is None:
            return COSTS[self.kind][1]
        return scale_of(self.metric)

    @property
    def less_is_better(self) -> bool:
        """True if smaller figures are better.

        Raises:
            ConfigurationError: if the name of a user's metric does not say so.
        """
        return self.metric is None or self.kind in ("largest_fall", "spread") or less_is_better(self.metric)

    def of(self, record: RunRecord, target: Target | None = None) -> float:
        """Return the figure of a run, which is `worst` if it diverged or did not reach the target.

        Raises:
            ConfigurationError: if the run did not record the column, or the target is missing.
        """
        if self.metric is None:
            return self._until(record, target)
        history = record.history
        if not _recorded(history, self.metric, of_clients=self.kind == "spread"):
            raise ConfigurationError(f"{self}: the run of {record.algorithm} recorded no {self.metric}")
        figure = ALONG[self.kind][1](history, self.metric)
        return figure if math.isfinite(figure) else self.worst

    @property
    def worst(self) -> float:
        """The figure of a run that diverged: plus or minus infinity."""
        return math.inf if self.less_is_better else -math.inf

    def shown(self, figure: Quartiles) -> str:
        """Format median and quartiles: ``77.1 (76.8 to 77.5)``."""
        if self.metric is None:
            return figure.shown(self.scale)
        if not math.isfinite(figure.median):
            return "diverged"
        middle, low, high = (self.number(value) for value in (figure.median, figure.low, figure.high))
        return middle if figure.num == 1 else f"{middle} ({low} to {high})"

    def number(self, value: float) -> str:
        """Format a figure: accuracies with one decimal, the size of the pool as a whole number."""
        if not math.isfinite(value):
            return "–"
        if self.metric == "pool":
            return f"{value:,.0f}"
        return f"{self.scale * value:.1f}" if self.scale == 100.0 else number(self.scale * value)

    def _until(self, record: RunRecord, target: Target | None) -> float:
        if target is None:
            raise ConfigurationError(f"measure {str(self)!r} needs a target: write to_accuracy = 0.7")
        reached = record.history.reached(target.metric, target.value)
        if reached is None:
            return math.inf
        spent = getattr(reached, self.kind)
        if spent is None:
            raise ConfigurationError(f"the run of {record.algorithm} recorded no {self.kind}")
        return float(spent)
