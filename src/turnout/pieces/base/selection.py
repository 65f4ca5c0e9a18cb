"""Base class of what says who takes part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from turnout.core.types import Candidates, Report, State
from turnout.pieces.base.local import Measurement
from turnout.pieces.base.piece import Piece
from turnout.pieces.base.stateful import Stateful


class Selection(Piece, ABC):
    """Says who takes part in a round, and who is only asked for measurements before it begins."""

    slot: ClassVar[str] = "selection"

    measurements: ClassVar[tuple[Measurement, ...]] = ()
    """What those are asked for who only measure."""

    repeats: ClassVar[bool] = False
    """Whether a client may be in a cohort twice, and counts twice then."""

    def check(self, num_clients: int) -> None:
        """Refuse a federation that this selection cannot serve."""

    def measuring(self, candidates: Candidates) -> np.ndarray:
        """Who is asked for `measurements` before anyone is selected: ascending client numbers, int64."""
        del candidates
        return np.empty(0, dtype=np.int64)

    @abstractmethod
    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort: ascending client numbers, int64 ``[B]``; who is in it twice counts twice."""


class RecordingSelection(Selection, Stateful):
    """A selection that goes by who took part before: its state, as the last step left it, is ``candidates.record``."""

    @abstractmethod
    def apply(self, report: Report, version: int, state: State) -> State:
        """Return the state after the step from a version, in which these reports were used. Called where there are any.

        As a weighting, it may change rows of tensors with one row a client in place.
        """
