"""Who of the enrolled clients is there."""

from __future__ import annotations

import numpy as np


class Presence:
    """Who is there: a table that entries change."""

    def __init__(self) -> None:
        self.num_clients = 0
        self._there = np.zeros(1024, dtype=bool)

    def enrol(self) -> int:
        """Add a client and return its number; it is not there yet."""
        self.num_clients += 1
        if self.num_clients > len(self._there):
            self._there = np.concatenate([self._there, np.zeros_like(self._there)])
        return self.num_clients - 1

    def set(self, client: int, is_there: bool) -> None:
        """Note that a client came or went."""
        self._there[client] = is_there

    def is_there(self, client: int) -> bool:
        """Return whether a client is there."""
        return bool(self._there[client])

    def there(self) -> np.ndarray:
        """Return who is there, ascending."""
        return np.flatnonzero(self._there[: self.num_clients])

    @property
    def num_there(self) -> int:
        """How many clients are there."""
        return int(np.count_nonzero(self._there[: self.num_clients]))

    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Return which of these clients are there now."""
        del round
        return self._there[clients]
