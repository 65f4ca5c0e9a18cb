"""Cohorts of those who are there that the record of past rounds puts first."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from turnout.core.checks import count
from turnout.core.random import fold, stream
from turnout.core.types import Candidates, State
from turnout.selection.uniform import Uniform
from turnout.slots import RecordingSelection


class ByRecord(RecordingSelection):
    """Take the `cohort_size` available clients who come first by the record, at random among equals; all if fewer are there.

    It asks all N clients whether they are there.
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

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort, ascending, int64 ``[B]``."""
        there = candidates.everyone()
        chance = fold(stream("selection", candidates.seed, candidates.round), there)
        order = np.lexsort((chance, self.rank(there, candidates.round, candidates.record)))
        return np.sort(there[order[: self.cohort_size]])
