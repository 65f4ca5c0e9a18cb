"""Choose the cohort of a round, or of one of its phases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from turnout.core.checks import ConfigurationError
from turnout.core.types import Candidates, Report, State
from turnout.pieces.base import Selection, enlarged_size
from turnout.protocol.choice import Choice
from turnout.protocol.pace import Choose


class Cohorts:
    """Choose the cohort of a round. Whatever a choice does not depend on, it need not override."""

    def __call__(self, wanted: Choose, version: int) -> np.ndarray | list[int]:
        """Return client numbers, ascending. A client that occurs twice takes part once and counts twice."""
        raise NotImplementedError

    def measured(self, reports: Report) -> None:
        """Choose the next cohort by what clients measured before the choice."""

    def allow(self, may: Callable[[np.ndarray, int], np.ndarray]) -> None:
        """Choose only clients that may take part in the step from a version."""

    def recall(self, record: Callable[[], State]) -> None:
        """Choose by what the selection has recorded of past rounds."""


class SelectedCohorts(Cohorts):
    """Choose cohorts by an algorithm's selection.

    Args:
        selection: the algorithm's.
        candidates: whom it can choose from before the step from a version.
        everyone: who is asked to prepare.
    """

    def __init__(
        self, selection: Selection, candidates: Callable[[int], Candidates], everyone: Callable[[], np.ndarray]
    ) -> None:
        self.selection, self.candidates, self.everyone = selection, candidates, everyone
        self._measured: Report | None = None
        self._may: Callable[[np.ndarray, int], np.ndarray] | None = None
        self._record: Callable[[], State] = dict

    def allow(self, may: Callable[[np.ndarray, int], np.ndarray]) -> None:
        """Treat clients that may not take part as unavailable."""
        self._may = may

    def recall(self, record: Callable[[], State]) -> None:
        """Pass the record to the selection."""
        self._record = record

    def __call__(self, wanted: Choose, version: int) -> np.ndarray:
        """Return the clients of the phase that is asked for."""
        if wanted.phase == "prepare":
            return self.everyone()
        candidates = self.candidates(version)
        if (may := self._may) is not None:
            there = candidates.available
            candidates = replace(candidates, available=lambda clients: there(clients) & may(clients, version))
        if wanted.phase == "measure":
            return check_cohort(self.selection, self.selection.measuring(candidates), candidates, "measuring")
        selection = self.selection if wanted.factor == 1.0 else self.selection.enlarged(wanted.factor)
        candidates = replace(candidates, measured=self._measured, record=self._record())
        return check_cohort(selection, selection.select(candidates), candidates, "select")

    def measured(self, reports: Report) -> None:
        """Pass the measurements to the selection."""
        self._measured = reports


def check_cohort(selection: Selection, cohort: np.ndarray, candidates: Candidates, method: str) -> np.ndarray:
    """Return the clients that a selection chose, int64, if they are such as the server can ask.

    Only selections from outside of this package are looked at: for its own ones, asking again who is there would cost as
    much as the choice.

    Raises:
        ConfigurationError: for anything but ascending numbers of clients who are there, and for repeats in a selection
            that does not declare them.
    """
    if getattr(type(selection), method).__module__.partition(".")[0] == "turnout":
        return cohort
    name = f"{type(selection).__name__}.{method}"
    clients = np.asarray(cohort)
    if clients.ndim != 1 or (clients.size and clients.dtype.kind not in "iu"):
        raise ConfigurationError(f"{name} returned {cohort!r}: needed client numbers, an int64 array [B]")
    clients = clients.astype(np.int64)
    if ((clients < 0) | (clients >= candidates.num_clients)).any():
        wrong = int(clients[(clients < 0) | (clients >= candidates.num_clients)][0])
        raise ConfigurationError(f"{name} returned client {wrong}: there are clients 0 to {candidates.num_clients - 1}")
    steps = np.diff(clients)
    if (steps < 0).any():
        raise ConfigurationError(f"{name} returned clients that do not ascend: return np.sort(clients)")
    if (steps == 0).any() and not selection.repeats:
        again = int(clients[1:][steps == 0][0])
        raise ConfigurationError(
            f"{name} returned client {again} twice: return each client once, or write repeats = True in the class where "
            "clients count as often as they were drawn"
        )
    if not (there := candidates.available(clients)).all():
        raise ConfigurationError(
            f"{name} returned client {int(clients[~there][0])}, who is not available in round {candidates.round}: choose "
            "among clients for which candidates.available(clients) is True"
        )
    return clients


class AvailableCohorts(SelectedCohorts):
    """Choose cohorts by an algorithm's selection among the clients that are available.

    Args:
        selection: the algorithm's.
        choice: who is there, and in which round of availability.
        seed: of the selection.
        by_version: whether a round of availability begins with every server step.
    """

    def __init__(self, selection: Selection, choice: Choice, seed: int, by_version: bool) -> None:
        self._choice, self._seed, self._by_version = choice, seed, by_version
        super().__init__(selection, self._candidates, self._everyone)

    def __call__(self, wanted: Choose, version: int) -> np.ndarray:
        """Return the clients of the phase that is asked for; of those who measured, some may have gone away since then."""
        if self._by_version:
            self._choice.begin(version)
        cohort = super().__call__(wanted, version)
        return cohort if self._by_version else cohort[self._there(cohort)]

    def _candidates(self, version: int) -> Candidates:
        return Candidates(self._there, self._choice.availability.num_clients, version, self._seed)

    def _there(self, clients: np.ndarray) -> np.ndarray:
        return self._choice.availability.available(clients, self._choice.round)

    def _everyone(self) -> np.ndarray:
        return np.arange(self._choice.availability.num_clients)


class RandomCohorts(Cohorts):
    """Choose cohorts at random among the clients that are available and idle.

    A limit on participation does not change the choice: a client that may not take part is told so when it reports.

    Args:
        choice: how they are drawn.
        size: how many; None is all of them. Or a function of who is there (bool ``[n]`` of client numbers ``[n]``), the
            version and the factor by which a cohort is enlarged.
        by_version: whether a round of availability begins with every server step.
    """

    def __init__(self, choice: Choice, size: Callable[..., np.ndarray] | int | None, by_version: bool) -> None:
        self._choice, self._size, self._by_version = choice, size, by_version

    def __call__(self, wanted: Choose, version: int) -> np.ndarray | list[int]:
        """Return the cohort."""
        if self._by_version:
            self._choice.begin(version)
        if callable(self._size):
            return self._size(self._choice.there, version, wanted.factor)
        num_clients = self._choice.availability.num_clients
        return self._choice.choose(num_clients if self._size is None else enlarged_size(self._size, wanted.factor))
