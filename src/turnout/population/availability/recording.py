"""Replay availability that was recorded in seconds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from turnout.core.checks import ConfigurationError, DataError, count, counted, refuse
from turnout.core.random import below, fold, generator, stream
from turnout.core.ranges import Count
from turnout.population.availability.intervals import (
    BoundTrace,
    Intervals,
    Table,
    edges_and_rates,
    interval_table,
    read_intervals,
    refuse_rows,
    with_numbers,
)
from turnout.population.availability.rates import TimedAvailability, rank_by_labels
from turnout.population.availability.times import UNIX, in_words, moments, spell_dates
from turnout.population.table import LARGEST, by_number

DAY = 86_400
"""Seconds."""

MOST_DEVICES = 10_000_000
"""The largest number of devices of a recording; memory grows with it."""


@dataclass(frozen=True)
class Recording(TimedAvailability):
    """Base class of patterns in which clients replay the availability of a pool of recorded devices.

    A client is available in round t if its device was available in second ``t * seconds_per_round`` of the recording. The
    recording repeats after its last whole day, so that the time of day is kept. With D devices, the first D clients replay
    one device each, in an order drawn from the seed; the next D clients again replay one each, shifted by a number of whole
    days drawn for each client; and so on.

    The options are those of `TimedAvailability`; with `correlated_with_labels` the devices are assigned to clients in the
    order of their rates by labels. The rates of a bound recording are exact fractions of rounds.

    Raises:
        ConfigurationError: if rounds last less than a second, or labels are missing.
        DataError: if a recording is missing or unreadable.
    """

    @abstractmethod
    def intervals(self) -> tuple[Intervals, int]:
        """Return the intervals in which devices were available, and the number of devices."""

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> BoundTrace:
        """Assign devices to N clients."""
        count("num_clients", num_clients)
        intervals, num_devices = self.intervals()
        last = int(intervals[2].max())
        period = last // DAY * DAY or last
        if not (intervals[1] < period).any():
            raise DataError(
                f"no device is available in the first {counted(period // DAY, 'day')} of the recording, which repeats after "
                "its whole days: write start=..., the time at which the first visit begins"
            )
        edges, rates = edges_and_rates(intervals, num_devices, period, self.seconds_per_round)
        client = np.arange(num_clients)
        turn, position = np.divmod(client, num_devices)
        orders = [generator("recorded devices", seed, k).permutation(num_devices) for k in range(int(turn[-1]) + 1)]
        devices = np.stack(orders)[turn, position]
        days = np.where(turn > 0, below(fold(stream("recorded days", seed), client), max(period // DAY, 1)), 0)
        if self.correlated_with_labels is not None:
            rank = rank_by_labels(label_counts, num_clients, self.correlated_with_labels, seed)
            ascending = np.argsort(rates[devices], kind="stable")
            devices, days = devices[ascending][rank], days[ascending][rank]
        return BoundTrace(num_clients, rates[devices], edges, devices, days * DAY, period, self.seconds_per_round)


@dataclass(frozen=True)
class TimedTrace(Recording, name="timed_trace"):
    """Each client is available in the seconds ``from <= second < to`` of its rows in a table, and without rows never.

    A client is available in round t if second ``t * seconds_per_round`` of the recording lies in one of its rows. A recording
    of more than a day repeats after the whole days that hold it, and a shorter one after its last second. With ``drawn=True``
    the rows are those of a pool of devices, which clients replay as `Recording` says.

    Attributes:
        table: path of a CSV or Parquet file with the columns client, from, to, a data frame or a mapping of such columns, or
            the rows, ``((client, from, to), ...)``. Clients are the names of the data's clients, which may be numbers, or
            numbers from 0 on. Times are whole seconds, or dates: Unix seconds, timestamps, or ISO 8601 texts, in UTC if they
            have no time zone. Numbers that all spell dates, as 20240131, are refused, unless `start` says that they are
            seconds.
        drawn: False gives each client its own rows. True draws a device of the table for each client.
        start: the time at which round 0 begins, in seconds or as an ISO 8601 text; None is 0, or the first `from` of dates.
        num_devices: number of recorded devices, with ``drawn=True``; None is one more than the largest number in the table,
            or the number of names. A device without rows is never available.

    The other options are those of `Recording`; `correlated_with_labels` needs ``drawn=True``.

    >>> trace = TimedTrace(((0, 0, 1200), (1, 600, 1800)), seconds_per_round=600)
    >>> bound = trace.bind(num_clients=2)
    >>> [bound.available(np.arange(2), round).astype(int).tolist() for round in range(3)]
    [[1, 0], [1, 1], [0, 1]]

    Raises:
        ConfigurationError: if a table is of another kind, or an option needs ``drawn=True``.
        DataError: if a file is missing or unreadable, or a row has no client and two times, ends before it starts, or has an
            unknown client.
    """

    table: Table | Any
    num_devices: Count | None = None
    drawn: bool = False
    start: int | str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("num_devices", "correlated_with_labels"):
            if getattr(self, name) is not None and not self.drawn:
                raise ConfigurationError(
                    f"{name}: each client has its own rows of the trace, and no device is drawn for it: write drawn=True to "
                    f"draw devices, or leave {name} out"
                )
        if self.start is not None and not isinstance(self.start, int | str):
            raise refuse("start", given=self.start, needed="seconds, or a text such as 2020-02-01T00:00:00+00:00")
        object.__setattr__(self, "table", interval_table(self.table, _TIMED))
        if not isinstance(self.table, str):
            _ = self.intervals() if self.drawn else self._rows()

    def of_clients(self, names: Sequence[str] | None) -> TimedTrace:
        """Return the trace with numbers in place of names of clients; devices that are drawn keep theirs."""
        return self if self.drawn else replace(self, table=with_numbers(self.table, names, _TIMED))

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> BoundTrace:
        """Read the rows of N clients, or assign devices to them."""
        if self.drawn:
            return super().bind(num_clients, label_counts, seed)
        count("num_clients", num_clients)
        client, _, end = rows = self._rows()
        by_number(client, _TIMED)
        why = f"no such client among {num_clients} (numbers start at 0). Write drawn=True if these are devices to draw from"
        refuse_rows(client >= num_clients, client, _TIMED, why)
        last = int(end.max())
        period = last if last <= DAY else -(-last // DAY) * DAY
        if num_clients * period >= LARGEST:
            raise DataError(
                f"{_TIMED}: {num_clients:,} clients over {period:,} seconds are more than 64 bits can number"
            )
        return BoundTrace.of_rows(rows, num_clients, period, self.seconds_per_round)

    def intervals(self) -> tuple[Intervals, int]:
        """Return the intervals in which devices were available, and the number of devices."""
        return of_devices(self._rows(), self.num_devices, _TIMED)

    def _rows(self) -> Intervals:
        """Read the rows, with seconds from the start of the recording."""
        client, start, end = read_intervals(self.table, _TIMED)
        first = int(start.min())
        origin = first if first >= UNIX else 0
        if self.start is None and spell_dates(np.concatenate([start, end])):
            raise DataError(
                f"{_TIMED}: its times are numbers like {first}, which spell dates and would count seconds: write dates as "
                f"2024-01-31 or 2024-01-31T18:00, or start={origin} if they are seconds"
            )
        if first >= 1000 * UNIX:
            raise DataError(f"{_TIMED}: it begins at {first}, needed seconds: divide milliseconds by 1000")
        if self.start is not None:
            origin = int(moments([self.start], "start", _TIMED)[0])
            if origin < UNIX <= first:
                raise DataError(
                    f"start: got {self.start!r}, and the {_TIMED} begins {(first - origin) // (365 * DAY)} years later, at "
                    f"{in_words(first)}: write a date such as 2024-01-31, or leave start out"
                )
        inside = end > origin
        if not inside.any():
            last = int(end.max())
            words = f" ({in_words(last)})" if last >= UNIX else ""
            raise DataError(
                f"start: got {self.start!r}, and the last row of the {_TIMED} ends at {last}{words}, before it"
            )
        client, start, end = (part[inside] for part in (client, start, end))
        if (end >= 2**40 + origin).any():
            raise DataError(f"{_TIMED}: it ends in second {end.max()}; needed seconds, less than 2**40 of them")
        return client, np.maximum(start - origin, 0), end - origin


_TIMED = "timed trace"


def of_devices(intervals: Intervals, num_devices: int | None, what: str) -> tuple[Intervals, int]:
    """Return the rows of a table and the number of devices, after checks.

    Raises:
        DataError: if a device is beyond `num_devices`, or numbers are so large that ``device * period + second``
            exceeds 64 bits.
    """
    device, start, end = intervals
    if device.dtype.kind == "U":
        device = np.unique(device, return_inverse=True)[1]
    devices = int(device.max()) + 1
    if (num_devices or devices) > MOST_DEVICES:
        raise DataError(
            f"{what}: it has {num_devices or devices:,} devices, needed at most {MOST_DEVICES:,}: number devices from 0 on, "
            "without gaps"
        )
    if devices * int(end.max()) >= LARGEST:
        raise DataError(
            f"{what}: {devices:,} devices over {int(end.max()):,} seconds are more than 64 bits can number: needed seconds "
            "from the start of the recording, not nanoseconds or dates"
        )
    if num_devices is not None and devices > num_devices:
        raise DataError(f"{what}: it names device {devices - 1}, and there are {num_devices}, from 0 on")
    return (device, start, end), num_devices or devices
