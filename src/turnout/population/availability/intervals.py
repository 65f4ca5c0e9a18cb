"""Read tables of availability intervals, ``(client, from, to)``, and look up availability in them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.core.checks import DataError
from turnout.population.availability.base import BoundAvailability
from turnout.population.table import Column, numbers, read_table

COLUMNS = ("client", "from", "to")

Table = str | tuple[tuple[int, int, int], ...]
"""The path of a file with the columns client, from and to, or the rows."""

Intervals = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Client or device, the first round or second of the interval, and the one after its last, int64 ``[rows]`` each."""


def read_intervals(table: Table, what: str, optional: tuple[str, ...] | None = ()) -> Intervals:
    """Read the rows of a table, which may overlap and be in any order.

    Raises:
        DataError: if a file is missing or unreadable, a table has no rows, a cell is not a whole number >= 0, or an
            interval ends before it starts.
    """
    columns: dict[str, Column] = (
        {**read_table(table, what, COLUMNS, optional)}
        if isinstance(table, str)
        else dict(zip(COLUMNS, zip(*table, strict=True), strict=False))
    )
    if not columns:
        raise DataError(f"{what}: it has no rows, so no client would ever be available")
    client, start, end = (numbers(columns[name], name, what, whole=True) for name in COLUMNS)
    if (wrong := end <= start).any():
        row = int(np.argmax(wrong))
        raise DataError(f"{what}, row {row + 1}: from {start[row]} to {end[row]}, needed a `to` greater than `from`")
    return client, start, end


def union(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the union of intervals [start, end) as ascending disjoint intervals; adjacent ones are not merged."""
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.flatnonzero(np.concatenate([[True], start[1:] >= reach[:-1]]))
    return start[first], reach[np.append(first[1:], len(start)) - 1]


def edges_and_rates(intervals: Intervals, num_devices: int, period: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and ends of availability as ``device * period + time``, ascending, and the rates of devices.

    A rate is the fraction of rounds in which a device is available. Rounds of length `step` start at every multiple of
    ``gcd(step, period)`` equally often.
    """
    device, start, end = intervals
    end = np.minimum(end, period)
    inside = start < end
    # The times of all devices are concatenated, so that one binary search in one sorted array serves all of them.
    opens, closes = union(device[inside] * period + start[inside], device[inside] * period + end[inside])
    grid = math.gcd(step, period)
    rounds = -(-closes // grid) - -(-opens // grid)  # multiples of the grid in each interval
    rates = np.bincount(opens // period, weights=rounds, minlength=num_devices) / (period // grid)
    return np.stack([opens, closes], axis=1).ravel(), rates


@dataclass(frozen=True, eq=False)
class BoundTrace(BoundAvailability):
    """A `Trace` or a `Recording` bound to N clients.

    Attributes:
        edges: starts (even indices) and ends (odd indices) of availability, as device * period + time, ascending.
        devices: the device of each client, int64 ``[N]``.
        later: the time shift of each client, int64 ``[N]``.
        period: time after which the recording repeats.
        seconds_per_round: length of a round; 1 where time is counted in rounds.
        repeat: False makes all clients unavailable after the first period.
    """

    rates: np.ndarray
    edges: np.ndarray
    devices: np.ndarray
    later: np.ndarray
    period: int
    seconds_per_round: int
    repeat: bool = True

    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Return the availability of `clients` in `round`, bool ``[B]``."""
        time = round * self.seconds_per_round
        if time >= self.period and not self.repeat:
            return np.zeros(len(clients), dtype=bool)
        position = self.devices[clients] * self.period + (time % self.period + self.later[clients]) % self.period
        return np.searchsorted(self.edges, position, side="right") % 2 == 1
