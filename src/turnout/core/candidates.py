"""Define the clients that a selection can choose from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from turnout.core.types import Report, State


@dataclass(frozen=True, eq=False)
class Candidates:
    """The clients that a selection can choose from in a round, and the key of its random choice.

    Attributes:
        available: function that returns which clients are available, bool ``[n]`` from client numbers, int64 ``[n]``.
        num_clients: N.
        round: number of completed rounds.
        seed: the seed of the run.
        measured: reports of the clients that measured before the selection; None if none did, or not yet.
        record: the selection's record of past rounds, if it has one.
    """

    available: Callable[[np.ndarray], np.ndarray]
    num_clients: int
    round: int
    seed: int
    measured: Report | None = None
    record: State = field(default_factory=dict)

    def everyone(self) -> np.ndarray:
        """Return all available clients, ascending, int64. Looks up all N."""
        return np.flatnonzero(self.available(np.arange(self.num_clients)))

    def screened(self) -> Report:
        """Return the measured reports without NaN and infinity, for a selection that measures."""
        assert self.measured is not None  # it is asked after its measurements
        return self.measured.screened()[0]
