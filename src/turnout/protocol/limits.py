"""Hold participations against a limit: a least number of rounds in between, and a number of times."""

from __future__ import annotations

import numpy as np

from turnout.pieces.base import ParticipationLimit

_NEVER = -(1 << 62)


class Participations:
    """When each client was last used by a step, and how often, held against a limit.

    Args:
        num_clients: N.
        limit: how often the server lets a client take part; None is as often as it comes, and nothing is kept.
    """

    def __init__(self, num_clients: int, limit: ParticipationLimit | None) -> None:
        self.limit, rows = limit, 0 if limit is None else num_clients
        self._last, self._times = np.full(rows, _NEVER), np.zeros(rows, dtype=np.int64)

    def may(self, clients: np.ndarray, version: int) -> np.ndarray:
        """Return which of these clients may take part in the step from a version, bool; one who is there twice once."""
        if self.limit is None:
            return np.ones(len(clients), dtype=bool)
        first = np.zeros(len(clients), dtype=bool)
        first[np.unique(clients, return_index=True)[1]] = True
        rested = version - self._last[clients] >= self.limit.separation
        return first & rested & (self._times[clients] < (self.limit.most or _NEVER * -1))

    def note(self, clients: np.ndarray, version: int) -> None:
        """Take note of who was used."""
        if self.limit is not None:
            self._last[clients], self._times[clients] = version, self._times[clients] + 1

    def grow(self, more: int) -> None:
        """Have more clients, who have not taken part yet."""
        if self.limit is not None:
            self._last = np.append(self._last, np.full(more, _NEVER))
            self._times = np.append(self._times, np.zeros(more, dtype=np.int64))

    def state(self) -> dict[str, np.ndarray]:
        """Return all that is remembered."""
        return {} if self.limit is None else {"took_part_last": self._last, "took_part": self._times}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take over what `state` gave."""
        if self.limit is not None:
            self._last, self._times = state["took_part_last"], state["took_part"]
