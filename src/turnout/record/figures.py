"""Compute figures of a run from its tables: final metrics, costs, and the round in which a target was reached."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnout.core.checks import count, known_name
from turnout.evaluation.fairness import fairness
from turnout.record.schema import ANSWERED, COSTS, METRICS, SPENT, less_is_better

_REDUCED: Mapping[str, Callable[[np.ndarray], np.number]] = {
    **dict.fromkeys(("seconds", "bytes_up", "bytes_down", "num_dropped"), np.sum),
    "num_participants": np.mean,
    "server_bytes": np.max,
    **dict.fromkeys(("epsilon", "poisson_rate", "fixed_size_rate", *ANSWERED), lambda values: values[-1]),
}
"""Functions that reduce the values of a column by round to one of the whole run."""
_EVALUATIONS = tuple(f"{split}_{figure}" for split in ("train", "validation", "test") for figure in ("loss", *METRICS))


@dataclass(frozen=True)
class Reached:
    """The round in which a run first reached a target, and the costs until then.

    Attributes:
        rounds: number of rounds up to and including the first evaluated one that reached it.
        bytes: bytes sent until then in both directions, including measurements; None if not recorded.
        simulated_seconds: simulated seconds until then; None if not recorded.
    """

    rounds: int
    bytes: float | None = None
    simulated_seconds: float | None = None


class Figures(ABC):
    """Figures of a run, computed from the columns of its tables.

    Attributes:
        stopped_by: column whose values ended the run early; None for a run that ended otherwise.
    """

    stopped_by: str | None = None

    @property
    @abstractmethod
    def last_round(self) -> int:
        """The last recorded round, 0 if there is none."""

    @property
    @abstractmethod
    def column_names(self) -> tuple[str, ...]:
        """The columns of the table of rounds."""

    @abstractmethod
    def column(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the rounds in which `name` was recorded, and its values there."""

    @abstractmethod
    def client_column(self, name: str) -> np.ndarray:
        """Return a column of the table of clients as float64 ``[N]``, NaN where null."""

    def final(self, metric: str, window: int | None = None) -> float:
        """Return the mean of a metric over its evaluations in the last `window` rounds; NaN if it was never evaluated.

        FedAU reports accuracies with ``window=200`` (20 evaluations, one every 10 rounds). The default is the last 10 %
        of the rounds. If there is no evaluation in the window, the result is the last one.
        """
        if window is not None:
            count("window", window)
        rounds, values = self.column(metric)
        if not len(values):
            return math.nan
        first = self.last_round - (window or math.ceil(self.last_round / 10))
        return float(values[min(int(np.searchsorted(rounds, first, side="right")), len(values) - 1) :].mean())

    def spent(self, cost: str) -> np.ndarray | None:
        """Return the cumulative cost at the end of each recorded round, float64; None if unknown.

        Args:
            cost: one of `SPENT`: ``"bytes"``, ``"bytes_up"`` or ``"simulated_seconds"``.
        """
        names = SPENT[known_name("cost", cost, SPENT)]
        known = [self.column(name) for name in names if self.has_values(name)]
        rounds = self.column("round")[0]
        spent = np.zeros(len(rounds))
        for recorded, values in known:
            spent[np.searchsorted(rounds, recorded)] += values
        return np.cumsum(spent) if known else None

    def reached(self, metric: str, target: float) -> Reached | None:
        """Return the first evaluated round in which `metric` reached `target`, with its costs; None if none did.

        An accuracy reaches a target from below, a loss from above (`less_is_better`). NaN reaches none.

        Raises:
            ConfigurationError: if a column is unknown, with the most similar name.
        """
        rounds, values = self.column(metric)
        met = values <= target if less_is_better(metric) else values >= target
        if not met.any():
            return None
        first = int(rounds[met.argmax()])
        row = int(np.searchsorted(self.column("round")[0], first))
        spent = {cost: self.spent(cost) for cost in COSTS}
        return Reached(first, **{cost: float(sums[row]) for cost, sums in spent.items() if sums is not None})

    def total(self, name: str) -> int | float:
        """Return the sum of a column over all recorded rounds; 0 if it was never recorded."""
        return self.column(name)[1].sum().item()

    def evaluation_names(self) -> list[str]:
        """Return the columns of evaluations: those of the schema, and further metrics that were recorded."""
        prefixes = tuple(f"{split}_" for split in ("train", "validation", "test"))
        more = [name for name in self.column_names if name.startswith(prefixes) and "_of_" not in name]
        return list(dict.fromkeys([*_EVALUATIONS, *more]))

    def has_values(self, name: str) -> bool:
        """Return whether a column of the table of rounds exists and has a value."""
        return name in self.column_names and len(self.column(name)[1]) > 0

    def empty_rounds(self) -> dict[str, int]:
        """Return the number of rounds in which no client took part, and the first round with one; empty if there are none.

        The keys are ``empty_rounds`` and ``first_participation``, which is missing if no client ever took part.
        """
        if not self.has_values("num_participants"):
            return {}
        rounds, numbers = self.column("num_participants")
        if (numbers > 0).all():
            return {}
        figures = {"empty_rounds": int((numbers == 0).sum())}
        if (numbers > 0).any():
            figures["first_participation"] = int(rounds[numbers > 0][0])
        return figures

    def summary(self, window: int | None = None) -> dict[str, Any]:
        """Return final figures as plain numbers, without those that were never recorded.

        They are ``rounds``; if nobody took part in some, ``empty_rounds`` and ``first_participation`` (see `empty_rounds`);
        totals of ``seconds``, ``bytes_up``, ``bytes_down`` and ``num_dropped``; mean ``num_participants``; maximum
        ``server_bytes``; ``epsilon`` and the rate of the sampling that amplifies it (``poisson_rate`` or
        ``fixed_size_rate``); the clients in the last evaluation of a server (``evaluation_asked``, ``evaluation_answered``);
        final losses and accuracies (root-mean-square errors for regression); and ``fairness`` over
        clients, of their test accuracies or, if no client has any, of their training accuracies. ``stopped_by`` is the
        column whose values ended the run early: figures of test examples are biased if it is one of theirs.
        """
        figures: dict[str, Any] = {"rounds": self.last_round, **self.empty_rounds()}
        if self.stopped_by is not None:
            figures["stopped_by"] = self.stopped_by
        for name, reduce in _REDUCED.items():
            if self.has_values(name):
                figures[name] = reduce(self.column(name)[1]).item()
        figures |= {name: self.final(name, window) for name in self.evaluation_names() if self.has_values(name)}
        for name in ("test_accuracy", "train_accuracy"):
            if not np.isnan(values := self.client_column(name)).all():
                return {**figures, "fairness": {"of": name, **fairness(values)}}
        return figures
