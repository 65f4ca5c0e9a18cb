"""Replay recorded availability: tables of intervals in rounds or in seconds."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from turnout.core.checks import DataError, count, known_name
from turnout.core.random import below, fold, generator, stream
from turnout.data.directory import Place
from turnout.population.availability.base import Availability
from turnout.population.availability.intervals import BoundTrace, Intervals, Table, edges_and_rates, read_intervals
from turnout.population.availability.rates import TimedAvailability, rank_by_labels
from turnout.population.table import LARGEST, as_table

DAY = 86_400
"""Seconds."""

MOST_DEVICES = 10_000_000
"""The largest number of devices of a recording; memory grows with it."""

_FORM = "(client, from, to)"


@dataclass(frozen=True)
class Trace(Availability, name="trace"):
    """Each client is available in the rounds ``from <= round < to`` of its rows in a table, and without rows never.

    Rows may be in any order; overlapping rows of a client count as their union.

    Attributes:
        table: path of a CSV or Parquet file with the columns client, from, to (whole numbers; other columns are
            ignored), or the rows, ``((client, from, to), ...)``.
        repeat: True repeats the trace after its last round; False makes all clients unavailable afterwards.
        rounds: number of recorded rounds; None is the last `to`. It is needed for a recording whose last rounds have no
            available clients, which would otherwise repeat too early.

    The rates of a bound trace are the fractions of its rounds in which each client is available.

    Raises:
        ConfigurationError: if a table is neither a path to .csv or .parquet nor rows.
        DataError: if a file is missing or unreadable, or a row is not three whole numbers >= 0, ends before it starts,
            or has an unknown client. Rows are checked when the trace is made, and files when it is bound.

    Example:
        >>> import numpy as np, turnout as to
        >>> bound = to.availability.Trace(((0, 0, 2), (1, 1, 3))).bind(num_clients=2)  # client, from, to
        >>> [bound.available(np.arange(2), round).astype(int).tolist() for round in range(3)]
        [[1, 0], [1, 1], [0, 1]]
    """

    table: Table
    repeat: bool = True
    rounds: int | None = None

    def __post_init__(self) -> None:
        if self.rounds is not None:
            count("rounds", self.rounds, most=2**32 - 1)
        object.__setattr__(self, "table", as_table(self.table, "trace", _FORM, (3,)))
        if not isinstance(self.table, str):
            self._intervals()

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> BoundTrace:
        """Read the trace for N clients; labels and seed are not used."""
        count("num_clients", num_clients)
        client, start, end = self._intervals()
        _refuse_rows(client >= num_clients, client, f"no such client among {num_clients} (numbers start at 0)")
        horizon = int(end.max()) if self.rounds is None else self.rounds
        edges, rates = edges_and_rates((client, start, end), num_clients, horizon, 1)
        rates.setflags(write=False)
        everyone = np.arange(num_clients)
        return BoundTrace(num_clients, rates, edges, everyone, np.zeros_like(everyone), horizon, 1, self.repeat)

    def _intervals(self) -> Intervals:
        """Read the rows, and check that their rounds are within the trace."""
        client, start, end = read_intervals(self.table, "trace", None)
        _refuse_rows(end >= 2**32, end, "a trace has less than 2**32 rounds: write rounds, not nanoseconds")
        if self.rounds is not None:
            _refuse_rows(end > self.rounds, end, f"the trace has rounds={self.rounds}: write more, or leave it out")
        return client, start, end


def _refuse_rows(bad: np.ndarray, value: np.ndarray, why: str) -> None:
    """Raise an error for the first bad row of a trace, if there is one."""
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(f"trace, row {row + 1}: got {value[row]}; {why}")


@dataclass(frozen=True)
class Recording(TimedAvailability):
    """Base class of patterns in which clients replay the availability of recorded devices.

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
        client_rates = rates[devices]
        client_rates.setflags(write=False)
        return BoundTrace(num_clients, client_rates, edges, devices, days * DAY, period, self.seconds_per_round)


@dataclass(frozen=True)
class TimedTrace(Recording, name="timed_trace"):
    """Clients replay the availability of the devices in a table, in seconds.

    Attributes:
        table: path of a CSV or Parquet file with the columns client, from, to (whole seconds; a device is available in
            ``from <= second < to``), or the rows, ``((client, from, to), ...)``.
        num_devices: number of recorded devices; None is one more than the largest number in the table. A device without
            rows is never available.

    The other options are those of `Recording`.

    >>> trace = TimedTrace(((0, 0, 1200), (1, 600, 1800)), seconds_per_round=600)
    >>> [float(round(rate, 3)) for rate in sorted(trace.bind(2).rates)]
    [0.667, 0.667]

    Raises:
        ConfigurationError: if a table is neither a path to .csv or .parquet nor rows.
        DataError: if a file is missing or unreadable, or a row is not three whole numbers or ends before it starts.
    """

    table: Table
    num_devices: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_devices is not None:
            count("num_devices", self.num_devices)
        object.__setattr__(self, "table", as_table(self.table, "timed trace", _FORM, (3,)))
        if not isinstance(self.table, str):
            self.intervals()

    def intervals(self) -> tuple[Intervals, int]:
        """Return the intervals in which devices were available, and the number of devices."""
        return _of_devices(read_intervals(self.table, "timed trace"), self.num_devices, "timed trace")


@dataclass(frozen=True)
class Flash(Recording, name="flash"):
    """Clients replay the availability of 300 real phones over 6.2 days in January and February 2020.

    The phones are the published sample of FLASH's 136,000. In rounds of ten minutes they are charging 16.1 % of the time
    (median 13.0 %), three of them never.

    Attributes:
        available: the condition of availability: ``"charging"``, ``"battery_50"`` (charging, or a battery of at least 50 %)
            or ``"battery_75"``.
        directory: the data directory; None is ``TURNOUT_DATA``, else ``~/.cache/turnout/data``.

    The other options are those of `Recording`.

    Raises:
        ConfigurationError: if the condition of availability is another one.
        DataError: if the recording is not in the data directory, with a remedy.

    Reference: Yang et al., "Characterizing impacts of heterogeneity in federated learning upon large-scale smartphone
    data", WWW 2021.
    """

    available: str = "charging"
    directory: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        known_name("meaning of available", self.available, _FLASH)

    def intervals(self) -> tuple[Intervals, int]:
        """Return the intervals in which phones were available, and the number of phones."""
        file = _FLASH[self.available]
        where = Place("flash", (file,), ("Availability",), remedy=_REMEDY).locate(self.directory)
        return _of_devices(read_intervals(str(where / file), "flash"), 300, "flash")


_FLASH = {
    "charging": "flash300_2_state.parquet",
    "battery_50": "flash300_3_state_50.parquet",
    "battery_75": "flash300_3_state_75.parquet",
}

_REMEDY = "Write availability=diurnal, a generator of the same kind that needs no file"


def _of_devices(intervals: Intervals, num_devices: int | None, what: str) -> tuple[Intervals, int]:
    """Return the rows of a table and the number of devices, after checks.

    Raises:
        DataError: if a device is beyond `num_devices`, or numbers are so large that ``device * period + second``
            exceeds 64 bits.
    """
    device, _, end = intervals
    if end.max() >= 2**40:
        raise DataError(f"{what}: it ends in second {end.max()}; needed seconds, less than 2**40 of them")
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
    return intervals, num_devices or devices
