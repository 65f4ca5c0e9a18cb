"""Base classes of selections."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from turnout.base.local import Measurement
from turnout.base.piece import Piece, Stateful, check_lengths
from turnout.core.candidates import Candidates
from turnout.core.checks import ConfigurationError, refuse
from turnout.core.registry import Family
from turnout.core.types import Report, State


class Selection(Piece, ABC):
    """Select the cohort of a round, and the clients that only measure before it."""

    slot: ClassVar[str] = "selection"
    family = Family("selection", "selections", ("turnout.pieces.selection",))

    needs_rounds: ClassVar[str | None] = (
        "{piece} chooses the cohort of a round, and with {pace} the order of arrival decides who is in a step (with "
        "AllAvailable(), or cohort_size=None of a recipe, everyone works, and concurrency says how many at a time)"
    )

    measurements: ClassVar[tuple[Measurement, ...]] = ()
    """Measurements that clients take before the cohort is selected."""

    repeats: ClassVar[bool] = False
    """True if a client may be in a cohort twice; it then counts twice."""

    def measuring(self, candidates: Candidates) -> np.ndarray:
        """Return the clients that take `measurements` before the cohort is selected, int64, ascending."""
        return np.empty(0, dtype=np.int64)

    @abstractmethod
    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort: client numbers, int64 ``[B]``, ascending. A client that is in it twice counts twice."""


class RecordingSelection(Selection, Stateful):
    """Base class of selections that depend on past participation.

    ``candidates.record`` is the state after the last step.
    """

    @abstractmethod
    def apply(self, report: Report, version: int, state: State) -> State:
        """Return the state after the step from a version with these reports. It is called only if there are reports.

        Rows of state tensors that have one row per client may be changed in place, as by `Weighting.apply`.
        """


class PoolsExamples(Selection):
    """A selection with one task in a round, which is trained on the examples of all clients."""


class TakesAll(Selection):
    """A selection of all available clients, with which participation rates are availability rates."""


class FixedCohort(ABC):
    """A selection of a fixed number of clients, or of all available ones if they are fewer."""

    cohort_size: Any
    """The option that determines the number of clients."""

    @abstractmethod
    def size(self, num_clients: int) -> int:
        """Return the number of clients in a round of a federation of `num_clients`."""


class Enlargeable(ABC):
    """A selection with larger cohorts of the same meaning."""

    @abstractmethod
    def enlarged(self, factor: float) -> Selection:
        """Return the selection of cohorts that are larger by `factor`, > 1 (``Rounds(over_selection=...)``)."""


def reads_data(selection: Selection) -> bool:
    """Return whether a selection depends on measurements of the clients' data, in this round or in past steps."""
    return bool(selection.measurements or selection.needs)


def check_selection(selection: Selection, num_clients: int) -> None:
    """Raise an error if options per client, or the size of a cohort, do not fit the number of clients."""
    check_lengths(selection, num_clients)
    if isinstance(selection, FixedCohort) and selection.size(num_clients) > num_clients:
        raise refuse(
            "cohort_size",
            given=selection.cohort_size,
            needed=f"at most the number of clients, {num_clients}",
            instead=f"Write cohort_size={num_clients}, or None for all clients",
        )


def enlarged(selection: Selection, factor: float) -> Selection:
    """Return the selection of cohorts that are larger by `factor`.

    Raises:
        ConfigurationError: if a larger cohort might change the meaning of the selection.
    """
    if not isinstance(selection, Enlargeable):
        raise ConfigurationError(
            f"over_selection: {type(selection).__name__} cannot be enlarged without changing what it is: write "
            "also=(Uniform(10),), or over_selection=1"
        )
    return selection.enlarged(factor)


def enlarged_size(cohort_size: int, factor: float) -> int:
    """Return the number of clients to ask so that `cohort_size` report in time: the product, rounded up."""
    return math.ceil(cohort_size * factor - 1e-9)
