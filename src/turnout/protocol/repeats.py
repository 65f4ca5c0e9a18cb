"""Count how often each client has trained from the same version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np


class Repeats:
    """The version that each client last trained from, and how often it had done so before.

    With ``Buffered(waits="never")`` a client can come back within one step, and should not draw the same random numbers
    again.

    Args:
        num_clients: N.
    """

    def __init__(self, num_clients: int) -> None:
        self._last, self._again = np.full(num_clients, -1), np.zeros(num_clients, dtype=np.int64)

    def of_batch(self, batch_clients: np.ndarray, versions: np.ndarray, turn: np.ndarray) -> np.ndarray:
        """Return how often each had been given its version before, int64 ``[B]``: those of one client one after the other."""
        clients, place = np.unique(batch_clients, return_inverse=True)
        last, again, found = self._last[clients], self._again[clients], np.zeros_like(versions)
        for this in range(int(turn.max(initial=-1)) + 1):
            rows = np.flatnonzero(turn == this)
            who, of = place[rows], versions[rows]
            found[rows] = again[who] = np.where(last[who] == of, again[who] + 1, 0)
            last[who] = of
        return found

    def so_far(self, client: int, version: int, in_hand: Iterable[tuple[int, int, int]]) -> int:
        """Return how often a client has been given a version, of which it is now given the next task.

        Args:
            client: who.
            version: what it trains from.
            in_hand: reports that wait for a step: (task, client, version).
        """
        waiting = sum(who == client and of == version for _, who, of in in_hand)
        return waiting + (int(self._again[client]) + 1 if self._last[client] == version else 0)

    def note(self, clients: np.ndarray, versions: np.ndarray, repeat_index: np.ndarray) -> None:
        """Remember a batch that was used; rows of one client are in order, so the last one stays."""
        self._last[clients], self._again[clients] = versions, repeat_index

    def grow(self, more: int) -> None:
        """Add so many clients."""
        self._last = np.append(self._last, np.full(more, -1))
        self._again = np.append(self._again, np.zeros(more, dtype=np.int64))

    def state(self) -> dict[str, np.ndarray]:
        """Return all that it carries."""
        return {"last": self._last, "again": self._again}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over what `state` gave."""
        self._last, self._again = state["last"], state["again"]
