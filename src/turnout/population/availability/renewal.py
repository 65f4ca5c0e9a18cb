"""Renewals of a client's state, which happen with the same probability in every round: the last one before a round."""

from __future__ import annotations

import numpy as np

from turnout.core.random import fold, uniform


def last_renewal(key: int, clients: np.ndarray, hold: np.ndarray, round: int) -> np.ndarray:
    """Return the last round <= `round` in which each client's state was renewed, int64 ``[B]``.

    Renewals are a Bernoulli process of rate ``1 - hold`` over all rounds, negative ones included. Rounds are cut into
    blocks of about ``1 / (1 - hold)``. The renewals of a block are found from its end backwards by geometric gaps, each
    keyed by the client and the round it leaps from; a leap over the start of the block is cut there and begins anew, which
    a memoryless gap allows. So whoever asks for any round of a block sees the same renewals, and the last one is found
    after two to four leaps on average, whatever `hold` and the round.

    Args:
        key: of the random numbers.
        clients: whose, int64 ``[B]``.
        hold: the probability that the state is kept from one round to the next, in [0, 1), float64 ``[B]``.
        round: the round that is asked about.
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
