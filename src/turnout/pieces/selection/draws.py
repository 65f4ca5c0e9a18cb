"""Draw clients at random, as a function of (seed, round): uniformly, in proportion to weights, and among ties."""

from __future__ import annotations

import math

import numpy as np

from turnout.core.candidates import Candidates
from turnout.core.random import fold, stream, uniform

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


def first_available(candidates: Candidates, size: int, most: int) -> np.ndarray:
    """Return the first available clients in a random order, int64 ``[B]``: at most `size`.

    Fewer are returned if there are not enough among about the first `most` clients of the order. The cost is about size
    / (fraction available) queries of availability, whatever the number of clients.
    """
    num_clients = candidates.num_clients
    order = RandomOrder(stream("selection", candidates.seed, candidates.round), num_clients)
    chosen = [np.empty(0, dtype=np.int64)]
    num_tried, num_present, step = 0, 0, 2 * size
    while num_present < size and num_tried < min(most, num_clients):
        clients = order.take(min(step, max(most - num_tried, 1)))
        here = clients[candidates.available(clients)]
        chosen.append(here)
        num_tried, num_present = num_tried + len(clients), num_present + len(here)
        # Enough at the rate of availability so far, plus two standard deviations, because one long query is cheaper than
        # two. The lengths of queries do not change the cohort.
        missing = max(size - num_present, 0)
        step = math.ceil((missing + 2 * math.sqrt(missing)) * (num_tried + 1) / (num_present + 1))
    return np.concatenate(chosen)[:size]


def with_replacement(candidates: Candidates, size: int, purpose: str) -> np.ndarray:
    """Return `size` independent draws, uniform over the available clients, ascending; none if no client is available.

    Args:
        candidates: availability, seed and round.
        size: number of draws.
        purpose: name of the random stream. The two cohorts of a round are independent because their names differ.
    """
    key, num_clients = stream(purpose, candidates.seed, candidates.round), candidates.num_clients
    present, drawn, step = np.empty(0, dtype=np.int64), 0, 2 * size
    while len(present) < size and drawn < 4 * num_clients:
        clients = (uniform(fold(key, np.arange(drawn, drawn + step))) * num_clients).astype(np.int64)
        present = np.concatenate([present, clients[candidates.available(clients)]])
        drawn, step = drawn + step, 2 * step
    if len(present) < size:  # few clients are available: ask all, and draw from those that are
        everyone = candidates.everyone()
        if not len(everyone):
            return everyone
        more = uniform(fold(key, np.arange(drawn, drawn + size))) * len(everyone)
        present = np.concatenate([present, everyone[more.astype(np.int64)]])
    return np.sort(present[:size])


def by_weight(candidates: Candidates, clients: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """Draw clients without replacement, each draw in proportion to the weights of the remaining clients.

    The order of ``-log(u_k) / weight_k``, with u_k uniform in (0, 1), has this distribution (Efraimidis and Spirakis,
    2006). Clients of weight 0 come last.

    Args:
        candidates: seed and round.
        clients: clients to draw from, int64 ``[n]``.
        weights: their weights, >= 0, ``[n]``.
        size: largest number of clients to return.
    """
    chance = uniform(fold(stream("selection", candidates.seed, candidates.round), clients))
    with np.errstate(divide="ignore"):
        return clients[np.argsort(-np.log1p(-chance) / weights, kind="stable")[:size]]


def lowest(candidates: Candidates, clients: np.ndarray, rank: np.ndarray, size: int, purpose: str) -> np.ndarray:
    """Return the `size` clients of lowest rank, ascending. Ties are broken at random.

    Args:
        candidates: seed and round.
        clients: clients to choose from, int64 ``[n]``.
        rank: their ranks, ``[n]``.
        size: largest number of clients to return.
        purpose: name of the random stream.
    """
    chance = fold(stream(purpose, candidates.seed, candidates.round), clients)
    return np.sort(clients[np.lexsort((chance, rank))[:size]])
