"""Select the available clients that rank first by a record of past rounds."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from turnout.base import RecordingSelection
from turnout.core.candidates import Candidates
from turnout.core.types import State
from turnout.pieces.selection.draws import first_available, lowest
from turnout.pieces.selection.fixed_size import FixedSize

_SMALL = 1024


@dataclass(frozen=True)
class ByRecord(FixedSize, RecordingSelection):
    """Select the `cohort_size` available clients of lowest rank; all if fewer are available. Ties are broken at random.

    Clients that never took part may have the lowest rank. While enough of them are available, they are drawn as by
    `Uniform`, and the cost of a round depends on the cohort alone. Otherwise, after an eighth of all clients was asked
    for its availability, all N clients are asked and ranked. In federations of at most 1,024 clients, all clients are
    always asked and ranked.
    """

    @abstractmethod
    def rank(self, clients: np.ndarray, version: int, record: State) -> np.ndarray:
        """Return the rank of each of `clients` (int64 ``[n]``), ``[n]``; the lowest rank is selected first."""

    def new(self, clients: np.ndarray, record: State) -> np.ndarray:
        """Return a mask of the clients whose rank is the lowest possible, bool ``[n]``; by default, all False.

        It is called with a few clients at a time.
        """
        return np.zeros(len(clients), dtype=bool)

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort, ascending, int64 ``[B]``."""
        size = self.size(candidates.num_clients)
        if candidates.num_clients > _SMALL:
            available = candidates.available
            new = replace(
                candidates, available=lambda clients: available(clients) & self.new(clients, candidates.record)
            )
            cohort = first_available(new, size, candidates.num_clients // 8)
            if len(cohort) == size:
                return np.sort(cohort)
        everyone = candidates.everyone()
        rank = self.rank(everyone, candidates.round, candidates.record)
        return lowest(candidates, everyone, rank, size, "selection")
