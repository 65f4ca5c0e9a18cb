"""Availability as it was recorded: tables of who was there from when to when, in rounds or by the clock."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from turnout.core.checks import DataError, count, known_name
from turnout.core.random import below, fold, generator, stream
from turnout.data.directory import Place
from turnout.population.availability.base import Availability
from turnout.population.availability.intervals import BoundTrace, Intervals, Table, edges_and_rates, read_intervals
from turnout.population.availability.rates import LabelCorrelation, correlation, rank_by_labels
from turnout.population.table import LARGEST, as_table

DAY = 86_400
"""Seconds."""

MOST_DEVICES = 10_000_000
"""Devices that a recording may have; memory grows with their number."""

_FORM = "(client, from, to)"


@dataclass(frozen=True)
class Trace(Availability, name="trace"):
    """Each client is there in the rounds ``from <= round < to`` of its rows in a table; clients without rows never are.

    Rows may come in any order; where rows of a client overlap, their union counts.

    Attributes:
        table: path of a CSV or Parquet file with the columns client, from, to (whole numbers; other columns are
            ignored), or the rows themselves, ``((client, from, to), ...)``.
        repeat: True starts the trace again when its rounds are over; False has nobody there afterwards.
        rounds: how many rounds were recorded; None is up to the last `to`. A recording that ends in rounds in which nobody
            is there needs it, or it starts again too early.

    The rates of a bound trace are the fractions of its rounds in which each client is there.

    Raises:
        ConfigurationError: for a table that is neither a path to .csv or .parquet nor rows.
        DataError: for a file that is missing or unreadable, or a row that is not three whole numbers >= 0, ends before it
            starts, or names a client that does not exist. Rows given directly are checked when the trace is made,
            everything else when it is bound, before the first round.

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
        """Read the trace for N clients; labels and seed do not matter."""
        del label_counts, seed
        count("num_clients", num_clients)
        client, start, end = self._intervals()
        _refuse_rows(client >= num_clients, client, f"no such client among {num_clients} (numbers start at 0)")
        horizon = int(end.max()) if self.rounds is None else self.rounds
        edges, rates = edges_and_rates((client, start, end), num_clients, horizon, 1)
        rates.setflags(write=False)
        everyone = np.arange(num_clients)
        return BoundTrace(num_clients, rates, edges, everyone, np.zeros_like(everyone), horizon, 1, self.repeat)

    def _intervals(self) -> Intervals:
        """Return the rows, whose rounds are those of the trace."""
        client, start, end = read_intervals(self.table, "trace", None)
        _refuse_rows(end >= 2**32, end, "a trace has less than 2**32 rounds: write rounds, not nanoseconds")
        if self.rounds is not None:
            _refuse_rows(end > self.rounds, end, f"the trace has rounds={self.rounds}: write more, or leave it out")
        return client, start, end


def _refuse_rows(bad: np.ndarray, value: np.ndarray, why: str) -> None:
    """Name the first bad row of a trace, if there is one."""
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(f"trace, row {row + 1}: got {value[row]}; {why}")


@dataclass(frozen=True, kw_only=True)
class Recording(Availability):
    """Clients come and go as recorded devices did; the part that recordings from any source share.

    A client is there in round t if its device was there in second ``t * seconds_per_round`` of the recording. After its
    last whole day the recording starts over, so that the time of day is kept. Among D devices, the first D clients replay
    one each, in an order drawn from the seed; the next D again one each, later by a number of whole days drawn for each
    client; and so on.

    Attributes:
        seconds_per_round: how long a round lasts. Where the population has a speed, it lasts as long on its clock.
        correlated_with_labels: None gives devices to clients at random. A number is the concentration alpha_p of
            `label_correlated_rates`, several are its q, one a class: the lower a client's rate by its labels,
            the more rarely there is the device it gets.

    The rates of a bound recording are exact fractions of rounds.

    Raises:
        ConfigurationError: for rounds of less than a second, or labels that are needed and missing.
        DataError: for a recording that is missing or unreadable.
    """

    seconds_per_round: int = 600
    correlated_with_labels: LabelCorrelation | None = None

    def __post_init__(self) -> None:
        count("seconds_per_round", self.seconds_per_round, instead="A round lasts whole seconds")
        alpha = correlation("correlated_with_labels", self.correlated_with_labels)
        object.__setattr__(self, "correlated_with_labels", alpha)

    @property
    def round_seconds(self) -> float:
        """Seconds that a round lasts."""
        return self.seconds_per_round

    @abstractmethod
    def intervals(self) -> tuple[Intervals, int]:
        """Return when each device was there, and how many devices there are."""

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> BoundTrace:
        """Give devices to N clients."""
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
    """Clients come and go as the devices of a table did, by the second.

    Attributes:
        table: path of a CSV or Parquet file with the columns client, from, to (whole seconds; a client is there in
            ``from <= second < to``), or the rows themselves, ``((client, from, to), ...)``.
        num_devices: how many devices were recorded; None takes the largest number in the table, plus one. A device
            without rows is never there.

    The other options are those of `Recording`.

    >>> trace = TimedTrace(((0, 0, 1200), (1, 600, 1800)), seconds_per_round=600)
    >>> [float(round(rate, 3)) for rate in sorted(trace.bind(2).rates)]
    [0.667, 0.667]

    Raises:
        ConfigurationError: for a table that is neither a path to .csv or .parquet nor rows.
        DataError: for a file that is missing or unreadable, or a row that is not three whole numbers or ends before it
            starts.
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
        """Return when each device was there, and how many devices there are."""
        return _of_devices(read_intervals(self.table, "timed trace"), self.num_devices, "timed trace")


@dataclass(frozen=True)
class Flash(Recording, name="flash"):
    """Clients come and go as 300 real phones did over 6.2 days in January and February 2020.

    The phones are of the sample that FLASH published of its 136,000; charging only, in rounds of ten minutes, they are
    there 16.1 % of the time (median 13.0 %), three of them never.

    Attributes:
        available: what being there means: ``"charging"``, ``"battery_50"`` (charging, or a battery of at least 50 %) or
            ``"battery_75"``.
        directory: the data directory; None is ``TURNOUT_DATA``, else ``~/.cache/turnout/data``.

    The other options are those of `Recording`.

    Raises:
        ConfigurationError: for another meaning of being there.
        DataError: where the recording is not in the data directory, with what to do.

    Reference: Yang et al., "Characterizing impacts of heterogeneity in federated learning upon large-scale smartphone
    data", WWW 2021.
    """

    available: str = "charging"
    directory: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        known_name("meaning of available", self.available, _FLASH)

    def intervals(self) -> tuple[Intervals, int]:
        """Return when each phone was there, and how many phones there are."""
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
    """Return the rows of a table and how many devices there are; refuse devices beyond their number.

    Raises:
        DataError: for numbers of devices or seconds with which positions ``device * period + second`` exceed 64 bits.
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
