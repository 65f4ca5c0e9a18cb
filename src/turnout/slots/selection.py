"""Base class of what says who takes part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from turnout.core.types import Candidates
from turnout.slots.local import Measurement
from turnout.slots.piece import Piece


class Selection(Piece, ABC):
    """Says who takes part in a round, and who is only asked for measurements before it begins."""

    slot: ClassVar[str] = "selection"

    measurements: ClassVar[tuple[Measurement, ...]] = ()
    """What those are asked for who only measure."""

    def check(self, num_clients: int) -> None:
        """Refuse a federation that this selection cannot serve."""

    def measuring(self, candidates: Candidates) -> np.ndarray:
        """Who is asked for `measurements` before anyone is selected: ascending client numbers, int64."""
        del candidates
        return np.empty(0, dtype=np.int64)

    @abstractmethod
    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort: ascending client numbers, int64 ``[B]``; who is in it twice counts twice."""
