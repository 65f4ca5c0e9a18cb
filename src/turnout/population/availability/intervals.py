"""Intervals of presence: the reader of tables ``(client, from, to)``, and clients who are there as such a table says."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.core.checks import DataError
from turnout.population.availability.base import BoundAvailability
from turnout.population.table import Column, numbers, read_table

COLUMNS = ("client", "from", "to")

Table = str | tuple[tuple[int, int, int], ...]
"""The path of a file with these columns, or the rows themselves."""

Intervals = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Client or device, first round or second, and the one after the last, int64 ``[rows]`` each."""


def read_intervals(table: Table, what: str, optional: tuple[str, ...] | None = ()) -> Intervals:
    """Return the rows of a table, which may overlap and come in any order.

    Raises:
        DataError: for a file that is missing or unreadable, no rows, a cell that is no whole number >= 0, or a row that ends
            before it starts.
    """
    columns: dict[str, Column] = (
        {**read_table(table, what, COLUMNS, optional)}
        if isinstance(table, str)
        else dict(zip(COLUMNS, zip(*table, strict=True), strict=False))
    )
    if not columns:
        raise DataError(f"{what}: it has no rows, so nobody would ever be there")
    client, start, end = (numbers(columns[name], name, what, whole=True) for name in COLUMNS)
    if (wrong := end <= start).any():
        row = int(np.argmax(wrong))
        raise DataError(f"{what}, row {row + 1}: from {start[row]} to {end[row]}, needed a `to` greater than `from`")
    return client, start, end


def union(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the union of intervals [start, end) as ascending intervals that do not overlap; touching ones stay apart."""
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.flatnonzero(np.concatenate([[True], start[1:] >= reach[:-1]]))
    return start[first], reach[np.append(first[1:], len(start)) - 1]


def edges_and_rates(intervals: Intervals, num_devices: int, period: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where devices come and go as ``device * period + time``, ascending, and the fractions of rounds there.

    Rounds of length `step` fall on all multiples of ``gcd(step, period)`` equally often.
    """
    device, start, end = intervals
    end = np.minimum(end, period)
    inside = start < end
    # The devices' times end to end on one line, so that one sorted array answers for all of them.
    opens, closes = union(device[inside] * period + start[inside], device[inside] * period + end[inside])
    grid = math.gcd(step, period)
    rounds = -(-closes // grid) - -(-opens // grid)  # multiples of the grid in each interval
    rates = np.bincount(opens // period, weights=rounds, minlength=num_devices) / (period // grid)
    return np.stack([opens, closes], axis=1).ravel(), rates


@dataclass(frozen=True, eq=False)
class BoundTrace(BoundAvailability):
    """A `Trace` or a `Recording` for N clients.

    Attributes:
        edges: where devices come (even indices) and go (odd indices), as device * period + time, ascending.
        devices: whose device each client has, int64 ``[N]``.
        later: by how much it is later, int64 ``[N]``.
        period: time after which the recording starts over.
        seconds_per_round: length of a round; 1 where time is counted in rounds.
        repeat: False has nobody there after the first period.
    """

    rates: np.ndarray
    edges: np.ndarray
    devices: np.ndarray
    later: np.ndarray
    period: int
    seconds_per_round: int
    repeat: bool = True

    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Return whether each of `clients` is there in `round`, bool ``[B]``."""
        time = round * self.seconds_per_round
        if time >= self.period and not self.repeat:
            return np.zeros(len(clients), dtype=bool)
        at = self.devices[clients] * self.period + (time % self.period + self.later[clients]) % self.period
        return np.searchsorted(self.edges, at, side="right") % 2 == 1
