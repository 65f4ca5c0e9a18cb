"""Read tables of availability intervals, ``(client, from, to)``, and look up availability in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnout.core.checks import DataError
from turnout.population.availability.base import BoundAvailability
from turnout.population.availability.times import are_plain, has_zone, moments
from turnout.population.table import Column, as_table, clients, columns_of, numbered, read_table

COLUMNS = ("client", "from", "to")

FORM = "(client, from, to)"

Table = str | tuple[tuple[int | str, int | str, int | str], ...]
"""The path of a file with the columns client, from and to, or the rows."""

Intervals = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Client or device, by number (int64) or name, and the first round or second of the interval and the one after its last,
int64, ``[rows]`` each."""


def interval_table(table: Any, what: str) -> Table:
    """Return an option that is a path, rows, or a table in memory (a data frame, an Arrow table, a mapping of columns).

    Cells of rows are plain numbers and texts; dates become seconds since 1970.

    Raises:
        ConfigurationError: if a value is of another kind.
        DataError: if columns are missing, or a cell is malformed.
    """
    if isinstance(table, Mapping) or hasattr(table, "__arrow_c_stream__") or hasattr(table, "iloc"):
        columns = columns_of(table, what)
        if missing := [name for name in COLUMNS if name not in columns]:
            raise DataError(f"{what}: got columns {list(columns)}, needed {list(COLUMNS)}; there is no {missing[0]!r}")
    else:
        rows = as_table(table, what, FORM, (3,))
        if isinstance(rows, str) or are_plain(rows):
            return rows
        columns = _by_column(rows)
    return tuple(zip(*(part.tolist() for part in _read_columns(columns, what)), strict=True))


def read_intervals(table: Table, what: str, optional: tuple[str, ...] | None = ()) -> Intervals:
    """Read the rows of a table, which may overlap and be in any order.

    Raises:
        DataError: if a file is missing or unreadable, a table has no rows, a time is neither a whole number >= 0 nor a date,
            an interval ends before it starts, or only one end of the intervals has a time zone.
    """
    is_path = isinstance(table, str)
    columns = read_table(table, what, COLUMNS, optional, COLUMNS) if is_path else _by_column(table)
    return _read_columns(columns, what)


def _by_column(rows: Sequence[Sequence[Any]]) -> dict[str, Column]:
    """Return the columns of rows."""
    return dict(zip(COLUMNS, zip(*rows, strict=True), strict=False))


def _read_columns(columns: Mapping[str, Column], what: str) -> Intervals:
    """Read and check the cells of the three columns."""
    if not columns or not len(columns["client"]):
        raise DataError(f"{what}: it has no rows, so no client would ever be available")
    client = clients(columns["client"], what)
    start, end = moments(columns["from"], "from", what), moments(columns["to"], "to", what, up=True)
    zoned = {has_zone(columns[name]): name for name in ("from", "to")}
    if {True, False} <= zoned.keys():
        raise DataError(
            f"{what}: {zoned[True]!r} has a time zone, and {zoned[False]!r} has none: write both as in "
            "2020-02-01T20:00:00+01:00"
        )
    if (wrong := end <= start).any():
        row = int(np.argmax(wrong))
        raise DataError(f"{what}, row {row + 1}: from {start[row]} to {end[row]}, needed a `to` greater than `from`")
    return client, start, end


def with_numbers(table: Table, names: Sequence[str] | None, what: str, optional: tuple[str, ...] | None = ()) -> Table:
    """Return a table with numbers from 0 in place of names of clients; see `numbered`.

    Args:
        table: the table.
        names: names of the clients of the data; None where they have none.
        what: name of the table in errors.
        optional: see `read_intervals`.

    Raises:
        DataError: if none of the names is a client of the data, with names of both.
    """
    client, start, end = read_intervals(table, what, optional)
    if (number := numbered(client, names, what)) is None:
        return table
    known = number >= 0
    return tuple(zip(*(part[known].tolist() for part in (number, start, end)), strict=True))


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


def refuse_rows(bad: np.ndarray, value: np.ndarray, what: str, why: str) -> None:
    """Raise an error for the first bad row of a table, if there is one."""
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(f"{what}, row {row + 1}: got {value[row]}; {why}")


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

    @classmethod
    def of_rows(cls, rows: Intervals, num_clients: int, period: int, seconds: int, repeat: bool = True) -> BoundTrace:
        """Return the pattern in which each client has its own rows."""
        edges, rates = edges_and_rates(rows, num_clients, period, seconds)
        clients = np.arange(num_clients)
        return cls(num_clients, rates, edges, clients, np.zeros_like(clients), period, seconds, repeat)

    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Return the availability of `clients` in `round`, bool ``[B]``."""
        time = round * self.seconds_per_round
        if time >= self.period and not self.repeat:
            return np.zeros(len(clients), dtype=bool)
        position = self.devices[clients] * self.period + (time % self.period + self.later[clients]) % self.period
        return np.searchsorted(self.edges, position, side="right") % 2 == 1
