"""Enumerate clients in a random order, computed only as far as it is needed."""

from __future__ import annotations

import numpy as np

from turnout.core.random import fold, uniform

_SMALL = 1024


class RandomOrder:
    """Enumerate 0, ..., N - 1 in a uniformly random order, block by block. The order is a function of the key alone.

    Clients drawn one by one with replacement, in the order of their first appearance, are in a uniformly random order.
    So the cost of the front of the order is proportional to its length, whatever N is. Draws would repeat more and
    more. So once N / 4 draws were made (immediately if N is at most 1024), the clients that have not appeared follow,
    shuffled.
    """

    def __init__(self, key: int, num_clients: int) -> None:
        self._key = key
        self._num_clients = num_clients
        self._num_draws = num_clients // 4 if num_clients > _SMALL else 0
        self._drawn = np.empty(0, dtype=np.int64)
        self._rest: np.ndarray | None = None
        self._keys = np.empty(0, dtype=np.int64)

    def take(self, size: int) -> np.ndarray:
        """Return the next clients in the order, int64: at most `size`. It may be empty although others follow."""
        start = len(self._drawn)
        if start < self._num_draws:
            numbers = np.arange(start, min(start + size, self._num_draws))
            draws = (uniform(fold(self._key, numbers)) * self._num_clients).astype(np.int64)
            self._drawn = np.concatenate([self._drawn, draws])
            firsts = np.unique(self._drawn, return_index=True)[1]
            return self._drawn[np.sort(firsts[firsts >= start])]
        if self._rest is None:
            unseen = np.ones(self._num_clients, dtype=bool)
            unseen[self._drawn] = False
            self._rest = np.flatnonzero(unseen)
            self._keys = fold(self._key, self._num_draws + self._rest)  # all different: `mix` is a bijection
        front, later = np.arange(len(self._rest)), np.empty(0, dtype=np.int64)
        if size < len(self._rest):  # sort only the keys that are needed
            front, later = np.split(np.argpartition(self._keys, size), [size])
        taken = self._rest[front[np.argsort(self._keys[front])]]
        self._rest, self._keys = self._rest[later], self._keys[later]
        return taken
