"""Draw clients at random, as a function of (seed, round): uniformly, in proportion to weights, and among equals."""

from __future__ import annotations

import math

import numpy as np

from turnout.core.random import fold, stream, uniform
from turnout.core.types import Candidates
from turnout.pieces.selection.random_order import RandomOrder


def first_available(candidates: Candidates, size: int, most: int) -> np.ndarray:
    """Return the first clients in a random order who are available, int64 ``[B]``: at most `size`.

    Fewer are returned if there are no more among the first `most` or so of the order. It costs about
    size / (fraction available) questions, however many clients there are.
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
        # Enough at the rate seen so far, with two standard deviations to spare: a further query costs more than
        # a longer one. How the order is cut does not change the cohort.
        missing = max(size - num_present, 0)
        step = math.ceil((missing + 2 * math.sqrt(missing)) * (num_tried + 1) / (num_present + 1))
    return np.concatenate(chosen)[:size]


def with_replacement(candidates: Candidates, size: int, purpose: str) -> np.ndarray:
    """Return `size` independent draws, uniform over the available clients, ascending; none if nobody is available.

    Args:
        candidates: clients, seed and round.
        size: how many draws.
        purpose: of the random numbers, so that two cohorts of a round are independent.
    """
    key, num_clients = stream(purpose, candidates.seed, candidates.round), candidates.num_clients
    present, drawn, step = np.empty(0, dtype=np.int64), 0, 2 * size
    while len(present) < size and drawn < 4 * num_clients:
        clients = (uniform(fold(key, np.arange(drawn, drawn + step))) * num_clients).astype(np.int64)
        present = np.concatenate([present, clients[candidates.available(clients)]])
        drawn, step = drawn + step, 2 * step
    if len(present) < size:  # hardly anyone is available: ask all clients, and draw from those who are
        everyone = candidates.everyone()
        if not len(everyone):
            return everyone
        more = uniform(fold(key, np.arange(drawn, drawn + size))) * len(everyone)
        present = np.concatenate([present, everyone[more.astype(np.int64)]])
    return np.sort(present[:size])


def by_weight(candidates: Candidates, clients: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """Draw clients without replacement, one after the other, each in proportion to its weight among those that are left.

    The order of ``-log(u_k) / weight_k`` has this distribution (Efraimidis and Spirakis, 2006). Clients of weight 0 come
    last.

    Args:
        candidates: seed and round.
        clients: to draw from, int64 ``[n]``.
        weights: of these, >= 0, ``[n]``.
        size: how many, at most.
    """
    chance = uniform(fold(stream("selection", candidates.seed, candidates.round), clients))
    with np.errstate(divide="ignore"):
        return clients[np.argsort(-np.log1p(-chance) / weights, kind="stable")[:size]]


def lowest(candidates: Candidates, clients: np.ndarray, rank: np.ndarray, size: int, purpose: str) -> np.ndarray:
    """Return the `size` clients of lowest rank, at random among equals, ascending.

    Args:
        candidates: seed and round.
        clients: to choose from, int64 ``[n]``.
        rank: of these, ``[n]``.
        size: how many, at most.
        purpose: of the random numbers.
    """
    chance = fold(stream(purpose, candidates.seed, candidates.round), clients)
    return np.sort(clients[np.lexsort((chance, rank))[:size]])
