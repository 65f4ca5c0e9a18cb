"""Choose the available clients that the record of past rounds ranks first."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import numpy as np

from turnout.core.checks import count
from turnout.core.random import fold, stream
from turnout.core.types import Candidates, State
from turnout.pieces.base import RecordingSelection
from turnout.pieces.selection.uniform import Uniform, first_available

_SMALL = 1024


class ByRecord(RecordingSelection):
    """Take the `cohort_size` available clients who come first by the record, at random among equals; all if fewer are there.

    As long as enough of those who never took part are there, who come first, they are drawn as `Uniform` draws, and a
    round costs what its cohort costs, however many clients there are. Where an eighth of all clients was asked in vain, and
    in federations of at most 1,024, all N are asked and ranked.
    """

    cohort_size: int

    def __post_init__(self) -> None:
        count("cohort_size", self.cohort_size)

    def check(self, num_clients: int) -> None:
        """Refuse fewer clients than a cohort has."""
        Uniform(self.cohort_size).check(num_clients)

    @abstractmethod
    def rank(self, clients: np.ndarray, version: int, record: State) -> np.ndarray:
        """Return a number for each of `clients` (int64 ``[n]``); who has the least comes first."""

    def new(self, clients: np.ndarray, record: State) -> np.ndarray:
        """Return which of `clients` come before all others and are equal among themselves, bool ``[n]``; by default, nobody.

        It is asked of a few clients at a time.
        """
        return np.zeros(len(clients), dtype=bool)

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort, ascending, int64 ``[B]``."""
        if candidates.num_clients > _SMALL:
            there = candidates.available
            new = replace(candidates, available=lambda clients: there(clients) & self.new(clients, candidates.record))
            cohort = first_available(new, self.cohort_size, candidates.num_clients // 8)
            if len(cohort) == self.cohort_size:
                return np.sort(cohort)
        everyone = candidates.everyone()
        chance = fold(stream("selection", candidates.seed, candidates.round), everyone)
        order = np.lexsort((chance, self.rank(everyone, candidates.round, candidates.record)))
        return np.sort(everyone[order[: self.cohort_size]])
