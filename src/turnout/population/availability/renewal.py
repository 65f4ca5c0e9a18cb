"""Find the last renewal of a client's state before a round, where every round renews it with the same probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from turnout.core.random import fold, uniform
from turnout.population.availability.base import BoundAvailability

_MOST_ROUNDS = 64
_NUMBERS = 1 << 13  # clients times rounds of a table, which stays in a processor's cache


@dataclass(frozen=True, eq=False)
class RenewingAvailability(BoundAvailability):
    """A pattern whose clients keep their state between renewals.

    All clients of up to 64 rounds are computed together and remembered, because finding renewals one after another takes as
    many operations for one round as for many.

    Attributes:
        at: the availability of each of B clients (int64 ``[B]``) in its own round (int64 ``[B]``), bool ``[B]``.
    """

    rates: np.ndarray
    at: Callable[[np.ndarray, np.ndarray], np.ndarray]
    _tables: dict[int, np.ndarray] = field(default_factory=dict, init=False, repr=False)

    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Return the availability of `clients` in `round`, bool ``[B]``."""
        number = min(_MOST_ROUNDS, _NUMBERS // self.num_clients)
        if number < 2 or len(clients) < self.num_clients // 2:
            return self.at(clients, np.full(len(clients), round))
        first = round // number * number
        if (table := self._tables.get(first)) is None:
            rounds, everyone = np.arange(first, first + number), np.arange(self.num_clients)
            table = self.at(np.tile(everyone, number), rounds.repeat(self.num_clients)).reshape(number, -1)
            self._tables.clear()
            self._tables[first] = table
        return table[round - first][clients]


def last_renewal(key: int, clients: np.ndarray, hold: np.ndarray, round: np.ndarray) -> np.ndarray:
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
        round: any round >= 0 of each client, int64 ``[B]``.
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
        rows, keys, scale, length, start, time, round = (
            a[~hit] for a in (rows, keys, scale, length, start, time, round)
        )
        crossed = time <= start
        time = np.where(crossed, start, time)
        start = start - length * crossed
    return renewals
