"""Select the cohort of a round, or the clients of one of its phases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from turnout.base import RecordingSelection, Selection, enlarged_size
from turnout.base.selection import enlarged, reads_data
from turnout.core.candidates import Candidates
from turnout.core.checks import ConfigurationError
from turnout.core.kept import Kept
from turnout.core.types import Report, State
from turnout.protocol.choice import Choice
from turnout.protocol.pace import Choose


class Cohorts:
    """Select the cohort of a round, with what the server knows as far as the selection needs it.

    Attributes:
        measured: measurements of clients for the next selection; None if there are none.
        may: function that returns which clients, int64 ``[n]``, may participate in the step from a version, bool ``[n]``;
            None if all may.
        record: function that returns the selection's record of past rounds.
    """

    def __init__(self) -> None:
        self.measured: Report | None = None
        self.may: Callable[[np.ndarray, int], np.ndarray] | None = None
        self.record: Callable[[], State] = dict

    def __call__(self, choose: Choose, version: int) -> np.ndarray | list[int]:
        """Return client numbers, ascending. A client that occurs twice participates once and counts twice."""
        raise NotImplementedError

    def check(self, record: State, version: int) -> None:
        """Raise the error that the selection would raise with this record of past rounds; select no cohort."""


class SelectedCohorts(Cohorts):
    """Select cohorts by an algorithm's selection.

    Args:
        selection: selection of the algorithm.
        candidates: function that returns the candidates for the step from a version.
        everyone: function that returns the clients of the phase ``"prepare"``.

    Attributes:
        ahead: the cohort that `choose_ahead` selected last, until it is used.
    """

    def __init__(
        self, selection: Selection, candidates: Callable[[int], Candidates], everyone: Callable[[], np.ndarray]
    ) -> None:
        super().__init__()
        self.selection, self.candidates, self.everyone = selection, candidates, everyone
        self.ahead = Kept[np.ndarray]()

    def check(self, record: State, version: int) -> None:
        """Run the selection with a record."""
        self.selection.select(replace(self.candidates(version), measured=self.measured, record=record))

    def __call__(self, choose: Choose, version: int) -> np.ndarray:
        """Return the clients of a phase."""
        known = self.ahead.take({"choose": choose, "version": version})
        return self._chosen(choose, version) if known is None else known

    @property
    def independent(self) -> bool:
        """True if a cohort is a function of the round alone, whatever happens in earlier rounds."""
        selection = self.selection
        depends = self.may is not None or reads_data(selection) or isinstance(selection, RecordingSelection)
        return not depends and type(selection).__module__.partition(".")[0] == "turnout"

    def choose_ahead(self, version: int) -> np.ndarray:
        """Select the cohort of a later round, keep it for the round, and return it."""
        choose = Choose(None)
        cohort = self._chosen(choose, version)
        self.ahead.keep({"choose": choose, "version": version}, cohort)
        return cohort

    def _chosen(self, choose: Choose, version: int) -> np.ndarray:
        """Select the clients of a phase."""
        if choose.phase == "prepare":
            return self.everyone()
        candidates = self.candidates(version)
        if (may := self.may) is not None:
            available = candidates.available
            candidates = replace(candidates, available=lambda clients: available(clients) & may(clients, version))
        if choose.phase == "measure":
            return check_cohort(self.selection, self.selection.measuring(candidates), candidates, "measuring")
        selection = self.selection if choose.factor == 1.0 else enlarged(self.selection, choose.factor)
        candidates = replace(candidates, measured=self.measured, record=self.record())
        return check_cohort(selection, selection.select(candidates), candidates, "select")


def check_cohort(selection: Selection, cohort: np.ndarray, candidates: Candidates, method: str) -> np.ndarray:
    """Validate the clients that a selection returned, and return them as int64.

    Selections of this package are not checked, because the check costs as much as the selection.

    Raises:
        ConfigurationError: if they are not ascending numbers of available clients, or contain repeats that the
            selection does not declare.
    """
    if getattr(type(selection), method).__module__.partition(".")[0] == "turnout":
        return cohort
    name = f"{type(selection).__name__}.{method}"
    clients = np.asarray(cohort)
    if clients.ndim != 1 or (clients.size and clients.dtype.kind not in "iu"):
        raise ConfigurationError(f"{name} returned {cohort!r}: needed client numbers, an int64 array [B]")
    clients = clients.astype(np.int64)
    if len(unknown := clients[(clients < 0) | (clients >= candidates.num_clients)]):
        raise ConfigurationError(
            f"{name} returned client {unknown[0]}: there are clients 0 to {candidates.num_clients - 1}"
        )
    steps = np.diff(clients)
    if (steps < 0).any():
        raise ConfigurationError(f"{name} returned clients that do not ascend: return np.sort(clients)")
    if len(again := clients[1:][steps == 0]) and not selection.repeats:
        raise ConfigurationError(
            f"{name} returned client {again[0]} twice: return each client once, or write repeats = True in the class where "
            "clients count as often as they were drawn"
        )
    if len(absent := clients[~candidates.available(clients)]):
        raise ConfigurationError(
            f"{name} returned client {absent[0]}, who is not available in round {candidates.round}: choose among clients "
            "for which candidates.available(clients) is True"
        )
    return clients


class AvailableCohorts(SelectedCohorts):
    """Select cohorts by an algorithm's selection among the available clients.

    Args:
        selection: selection of the algorithm.
        choice: source of the available clients and of the round of availability.
        seed: seed of the selection.
        by_version: True if every server step starts a round of availability.
    """

    def __init__(self, selection: Selection, choice: Choice, seed: int, by_version: bool) -> None:
        self._choice, self._by_version = choice, by_version
        presence = choice.availability
        super().__init__(
            selection,
            lambda version: Candidates(choice.available, presence.num_clients, version, seed),
            lambda: np.arange(presence.num_clients),
        )

    def __call__(self, choose: Choose, version: int) -> np.ndarray:
        """Return the clients of a phase."""
        if self._by_version:
            self._choice.begin(version)
        cohort = super().__call__(choose, version)
        # In virtual time, clients that measured before the selection may have become unavailable since.
        return cohort if self._by_version else cohort[self._choice.available(cohort)]


class RandomCohorts(Cohorts):
    """Select cohorts at random among the clients that are available and idle.

    A limit on participation does not affect the selection: the report of a client that may not participate is rejected.

    Args:
        choice: source of the random clients.
        size: number of clients; None is all of them. A function returns the cohort from a function that returns whether
            clients ``[n]`` are available (bool ``[n]``), the version, and the factor of enlargement.
        by_version: True if every server step starts a round of availability.
    """

    def __init__(self, choice: Choice, size: Callable[..., np.ndarray] | int | None, by_version: bool) -> None:
        super().__init__()
        self._choice, self._size, self._by_version = choice, size, by_version

    def __call__(self, choose: Choose, version: int) -> np.ndarray | list[int]:
        """Return the cohort."""
        if self._by_version:
            self._choice.begin(version)
        if callable(self._size):
            return self._size(self._choice.selectable, version, choose.factor)
        num_clients = self._choice.availability.num_clients
        return self._choice.choose(num_clients if self._size is None else enlarged_size(self._size, choose.factor))
