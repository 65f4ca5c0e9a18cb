"""Hold a row for each client in arrays that grow with the federation: contributions, repeats and participations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from turnout.core.types import Info, Report
from turnout.privacy.plan import Plan
from turnout.protocol.tensors import check_form

_NEVER = -(1 << 62)


class ClientArrays:
    """Arrays ``[N]`` by name, with one row for each client.

    Args:
        num_clients: N.
        **initial: initial value of each array.

    Attributes:
        arrays: the arrays, which may be written to.
    """

    def __init__(self, num_clients: int, **initial: float) -> None:
        self._initial = initial
        self.arrays = {name: np.full(num_clients, value) for name, value in initial.items()}

    def grow(self, more: int) -> None:
        """Add rows with initial values."""
        for name, value in self._initial.items():
            self.arrays[name] = np.append(self.arrays[name], np.full(more, value))

    def state(self) -> dict[str, np.ndarray]:
        """Return the arrays."""
        return dict(self.arrays)

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the arrays that `state` returned; other arrays are ignored.

        Raises:
            KeyError, ValueError: if an array is missing, or has another shape or type.
        """
        for name, array in self.arrays.items():
            check_form(state[name], array, name)
        self.arrays = {name: state[name].copy() for name in self._initial}


class Influence(ClientArrays):
    """The contributions of each client, summed over server steps.

    The influence of a client is its share of the weights of a step, averaged over steps, whatever the sum of the weights of a
    step is. With equal shares it is 1 / N.

    Args:
        num_clients: N.
    """

    def __init__(self, num_clients: int) -> None:
        super().__init__(num_clients, contributions=0, staleness=0, shares=0.0)

    def add(self, clients: np.ndarray, staleness: np.ndarray, weights: np.ndarray) -> None:
        """Add a server step.

        Args:
            clients: the clients in the step, int64 ``[B]``.
            staleness: the staleness of their reports, int64 ``[B]``.
            weights: the weights of their reports, ``[B]``; if all are zero, no shares are added.
        """
        np.add.at(self.arrays["contributions"], clients, 1)
        np.add.at(self.arrays["staleness"], clients, staleness)
        total = np.abs(weights).sum()
        if total > 0:
            np.add.at(self.arrays["shares"], clients, np.abs(weights) / total)

    def columns(self) -> dict[str, np.ndarray]:
        """Return ``contributions``, ``mean_staleness`` (NaN without any), ``influence`` and ``fair_share``, ``[N]``."""
        contributions, staleness, shares = self.arrays.values()
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
            return {
                "contributions": contributions,
                "mean_staleness": staleness / contributions,
                "influence": shares / shares.sum(),
                "fair_share": np.full(len(shares), 1 / len(shares)),
            }


class Repeats(ClientArrays):
    """Track the version that each client last trained from, and the number of times before that it had trained from it.

    With ``Buffered(waits="never")``, a client can train from the same version several times. The count distinguishes
    its streams of random numbers.

    Args:
        num_clients: N.
    """

    def __init__(self, num_clients: int) -> None:
        super().__init__(num_clients, last=-1, again=0)

    def of_batch(self, batch_clients: np.ndarray, versions: np.ndarray, turn: np.ndarray) -> np.ndarray:
        """Return the number of times that each client had trained from its version before, int64 ``[B]``.

        Args:
            batch_clients: client of each task, int64 ``[B]``.
            versions: version of each task, int64 ``[B]``.
            turn: 0 for the first task of a client in the batch, 1 for its second, ...; int64 ``[B]``.
        """
        clients, positions = np.unique(batch_clients, return_inverse=True)
        last, again = (self.arrays[name][clients] for name in ("last", "again"))
        counts = np.zeros_like(versions)
        for number in range(int(turn.max(initial=-1)) + 1):
            rows = np.flatnonzero(turn == number)
            row_clients, row_versions = positions[rows], versions[rows]
            counts[rows] = again[row_clients] = np.where(last[row_clients] == row_versions, again[row_clients] + 1, 0)
            last[row_clients] = row_versions
        return counts

    def so_far(self, client: int, version: int, pending: Iterable[tuple[int, int, int]]) -> int:
        """Return the number of times that a client has trained from a version that it is sent again.

        Args:
            client: client number.
            version: the version.
            pending: reports that wait for a step, (task, client, version).
        """
        waiting = sum(owner == client and trained == version for _, owner, trained in pending)
        repeats = int(self.arrays["again"][client]) + 1 if self.arrays["last"][client] == version else 0
        return waiting + repeats

    def note(self, clients: np.ndarray, versions: np.ndarray, repeat_index: np.ndarray) -> None:
        """Record a batch that was used. Rows of one client are in order, so that the last one persists."""
        self.arrays["last"][clients], self.arrays["again"][clients] = versions, repeat_index


class ParticipationLimit(NamedTuple):
    """A limit on how often the server lets one client take part.

    Attributes:
        separation: smallest number of rounds from one participation of a client to its next; 1 sets no limit.
        most: largest number of participations of a client; None sets no limit.
    """

    separation: int = 1
    most: int | None = None

    @classmethod
    def of(cls, plan: Plan | None, separation: int | None) -> ParticipationLimit | None:
        """Return the limit of a run's privacy that also holds a minimum number of rounds; None if neither sets one."""
        if plan is None and separation is None:
            return None
        limit = cls() if plan is None else cls(*plan.limit)
        return limit._replace(separation=max(separation or 1, limit.separation))


class Participations(ClientArrays):
    """Track the last participation and the number of participations of each client.

    Args:
        num_clients: N.
        limit: the limit; None is unlimited, and nothing is tracked.
    """

    def __init__(self, num_clients: int, limit: ParticipationLimit | None) -> None:
        self.limit = limit
        super().__init__(num_clients, **({} if limit is None else {"took_part_last": _NEVER, "took_part": 0}))

    def may(self, clients: np.ndarray, version: int) -> np.ndarray:
        """Return whether clients may participate in the step from a version, bool ``[n]``.

        If a client is repeated, only the first may.
        """
        if self.limit is None:
            return np.ones(len(clients), dtype=bool)
        first = np.zeros(len(clients), dtype=bool)
        first[np.unique(clients, return_index=True)[1]] = True
        rested = version - self.arrays["took_part_last"][clients] >= self.limit.separation
        return first & rested & (self.arrays["took_part"][clients] < (self.limit.most or -_NEVER))

    def in_time(self, reports: Report, version: int) -> tuple[Report, Info]:
        """Return the reports of clients that may participate again; if there is a limit, also the number of the others."""
        if self.limit is None:
            return reports, {}
        may = self.may(reports.client, version)
        in_time = reports if may.all() else reports.take(may.nonzero()[0])
        return in_time, {"num_too_early": int((~may).sum())}

    def note(self, clients: np.ndarray, version: int) -> None:
        """Record that the step from a version used these clients."""
        if self.limit is not None:
            self.arrays["took_part_last"][clients] = version
            self.arrays["took_part"][clients] += 1
