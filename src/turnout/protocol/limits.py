"""Enforce a limit on participation: a minimum number of rounds between participations, and a maximum number of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from turnout.core.types import Info, Report
from turnout.privacy.plan import Plan
from turnout.protocol.client_arrays import ClientArrays

_NEVER = -(1 << 62)


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
