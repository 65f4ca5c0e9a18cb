"""Count how many times each client has trained from the same version."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from turnout.protocol.client_arrays import ClientArrays


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
