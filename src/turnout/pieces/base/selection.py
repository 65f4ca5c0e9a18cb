"""Base classes of selections."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from turnout.core.checks import ConfigurationError
from turnout.core.registry import Family
from turnout.core.types import Candidates, Report, State
from turnout.pieces.base.local import Measurement
from turnout.pieces.base.per_client import check_lengths
from turnout.pieces.base.piece import Piece
from turnout.pieces.base.stateful import Stateful


class Selection(Piece, ABC):
    """Choose the cohort of a round, and the clients that only measure before it begins."""

    slot: ClassVar[str] = "selection"
    family = Family("selection", "selections", ("turnout.pieces.selection",))

    needs_rounds: ClassVar[str | None] = (
        "{piece} chooses the cohort of a round, and with {pace} the order of arrival decides who is in a step (with "
        "AllAvailable() everyone works, and concurrency says how many at a time)"
    )

    measurements: ClassVar[tuple[Measurement, ...]] = ()
    """Measurements that clients are asked for before the cohort is chosen."""

    needs: ClassVar[tuple[str, ...]] = ()
    """Names that it reads in ``report.seen`` of past steps."""

    @property
    def reads_data(self) -> bool:
        """True if the choice goes by what clients measure on their data, before it or in past steps."""
        return bool(self.measurements or self.needs)

    repeats: ClassVar[bool] = False
    """True if a client may be in a cohort twice, and counts twice then."""

    takes_all: ClassVar[bool] = False
    """True if the cohort is all available clients, so that the rate of participation is that of availability."""

    def check(self, num_clients: int) -> None:
        """Refuse a federation that this selection cannot serve; by default, one of another size than its options are for."""
        check_lengths(self, num_clients)

    def enlarged(self, factor: float) -> Selection:
        """Return the selection of cohorts that are larger by `factor`, > 1 (``Rounds(over_selection=...)``).

        Raises:
            ConfigurationError: unless a selection defines it, because a larger cohort may change what the selection is.
        """
        raise ConfigurationError(
            f"over_selection: {type(self).__name__} cannot be enlarged without changing what it is: write "
            "also=(Uniform(10),), or over_selection=1"
        )

    def measuring(self, candidates: Candidates) -> np.ndarray:
        """Return the clients that are asked for `measurements` before the cohort is chosen, ascending, int64."""
        return np.empty(0, dtype=np.int64)

    @abstractmethod
    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort: ascending client numbers, int64 ``[B]``; a client that is in it twice counts twice."""


class RecordingSelection(Selection, Stateful):
    """Base class of selections by past participation. The state after the last step is ``candidates.record``."""

    @abstractmethod
    def apply(self, report: Report, version: int, state: State) -> State:
        """Return the state after the step from a version, in which these reports were used. Called where there are any.

        As a weighting, it may change rows of tensors with one row a client in place.
        """


def enlarged_size(cohort_size: int, factor: float) -> int:
    """Return how many clients to ask so that `cohort_size` are enough: the product, rounded up."""
    return math.ceil(cohort_size * factor - 1e-9)
