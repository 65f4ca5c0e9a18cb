"""Find the last renewal of a client's state before a round, where every round renews it with the same probability."""

from __future__ import annotations

import numpy as np

from turnout.core.random import fold, uniform


def last_renewal(key: int, clients: np.ndarray, hold: np.ndarray, round: int) -> np.ndarray:
    """Return the last round <= `round` in which each client's state was renewed, int64 ``[B]``.

    Renewals are a Bernoulli process of rate ``1 - hold`` over all rounds, including negative ones. Rounds are divided into
    blocks of about ``1 / (1 - hold)``. The renewals of a block are drawn backwards from its end by geometric gaps, each keyed
    by the client and the round at which the gap ends. A gap that crosses the start of the block is cut there, and the next
    block draws a new one, which is correct because gaps are memoryless. All rounds of a block therefore see the same
    renewals, and the last one is found after two to four gaps on average, independently of `hold` and the round.

    Args:
        key: key of the random numbers.
        clients: int64 ``[B]``.
        hold: probability that the state is kept from one round to the next, in [0, 1), float64 ``[B]``.
        round: any round >= 0.
    """
    with np.errstate(divide="ignore"):  # hold = 0 renews in every round: the scale is 0 and every gap is 1
        scale: np.ndarray = 1.0 / np.log(hold)
    length: np.ndarray = np.ceil(1.0 / (1.0 - hold)).astype(np.int64)
    start: np.ndarray = round // length * length
    time: np.ndarray = start + length
    keys: np.ndarray = fold(key, clients)
    rows: np.ndarray = np.arange(len(clients))
    renewals = np.empty(len(clients), dtype=np.int64)
    while len(rows):
        gap = 1 + (np.log(1.0 - uniform(fold(keys, time))) * scale).astype(np.int64)  # P(gap > g) = hold ** g
        time = time - gap
        hit = (time >= start) & (time <= round)
        renewals[rows[hit]] = time[hit]
        rows, keys, scale, length, start, time = (a[~hit] for a in (rows, keys, scale, length, start, time))
        crossed = time <= start
        time = np.where(crossed, start, time)
        start = start - length * crossed
    return renewals
