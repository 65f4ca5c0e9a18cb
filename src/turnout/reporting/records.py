"""Hold finished runs, and group them by algorithm for reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from turnout.core.checks import ConfigurationError, counted, refuse
from turnout.record.query import History


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One finished run.

    Attributes:
        algorithm: what reports call it; runs of one algorithm differ in their seed only.
        seed: the run's seed.
        history: what it recorded.
        config: its whole configuration as plain values.
        rates: known participation rates ``[N]``, if there are any; else those in the table of clients.

    Raises:
        ConfigurationError: for a name that cannot be printed or starts with neither letter nor digit, or rates that do
            not fit the clients.
    """

    algorithm: str
    seed: int
    history: History
    config: dict[str, Any] = field(default_factory=dict)
    rates: np.ndarray | None = None

    def __post_init__(self) -> None:
        if not (self.algorithm[:1].isalnum() and self.algorithm.isprintable()):  # no picture holds control characters
            needed = "a name of printable characters that starts with a letter or a digit"
            raise refuse("algorithm", given=self.algorithm, needed=needed)
        clients = len(self.history.clients)
        if self.rates is not None and clients and np.shape(self.rates) != (clients,):
            raise refuse("rates", given=np.shape(self.rates), needed=f"one rate for each client, shape ({clients},)")

    def __repr__(self) -> str:
        return f"RunRecord({self.algorithm!r}, seed {self.seed}, {counted(self.history.last_round, 'round')})"

    @property
    def known_rates(self) -> np.ndarray | None:
        """Known participation rates ``[N]``, NaN where unknown; None if none is known."""
        rates = self.history.client_column("known_rate") if self.rates is None else np.asarray(self.rates, np.float64)
        return None if np.isnan(rates).all() else rates


def by_algorithm(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Group runs by algorithm, in the order in which the algorithms first appear.

    Raises:
        ConfigurationError: where there is no run, or an algorithm has two with the same seed.
    """
    if not records:
        raise ConfigurationError("there are no runs to report: give at least one RunRecord")
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        group = groups.setdefault(record.algorithm, [])
        if any(other.seed == record.seed for other in group):
            raise ConfigurationError(
                f"two runs of {record.algorithm!r} have seed {record.seed}: give them different names, or leave one out"
            )
        group.append(record)
    return groups


def has_column(records: Iterable[RunRecord], name: str) -> bool:
    """Return whether any of the runs recorded values of a column of the table of rounds."""
    return any(record.history.has_values(name) for record in records)


def client_split(records: Sequence[RunRecord]) -> str:
    """Return whose client-wise accuracy is compared in all runs: ``"test"`` if any has it, else ``"train"``."""
    tested = (~np.isnan(record.history.client_column("test_accuracy")) for record in records)
    return "test" if any(known.any() for known in tested) else "train"
