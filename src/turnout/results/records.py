"""Define the records of finished runs, and group them by algorithm."""

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
        algorithm: the name in reports; runs of one algorithm differ only in their seed.
        seed: seed of the run.
        history: the recorded tables.
        config: the configuration as plain values.

    Raises:
        ConfigurationError: if a name is not printable or does not begin with a letter or digit.
    """

    algorithm: str
    seed: int
    history: History
    config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Figures cannot contain control characters.
        if not (self.algorithm[:1].isalnum() and self.algorithm.isprintable()):
            needed = "a name of printable characters that starts with a letter or a digit"
            raise refuse("algorithm", given=self.algorithm, needed=needed)

    def __repr__(self) -> str:
        return f"RunRecord({self.algorithm!r}, seed {self.seed}, {counted(self.history.last_round, 'round')})"

    @property
    def known_rates(self) -> np.ndarray | None:
        """Known participation rates ``[N]``, NaN where unknown; None if all are unknown."""
        rates = self.history.client_column("known_rate")
        return None if np.isnan(rates).all() else rates


def by_algorithm(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Group runs by algorithm, in the order in which the algorithms first appear.

    Raises:
        ConfigurationError: if there are no runs, or an algorithm has two runs with the same seed.
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


def recorded_columns(records: Iterable[RunRecord]) -> set[str]:
    """Return the columns of the tables of rounds of all runs."""
    return {name for record in records for name in record.history.column_names}


def has_column(records: Iterable[RunRecord], name: str) -> bool:
    """Return whether a run recorded values of a column of the table of rounds."""
    return any(record.history.has_values(name) for record in records)


def client_split(records: Sequence[RunRecord]) -> str:
    """Return the split of client-wise accuracies in comparisons: ``"test"`` if a run has it, else ``"train"``."""
    tested = (~np.isnan(record.history.client_column("test_accuracy")) for record in records)
    return "test" if any(known.any() for known in tested) else "train"
