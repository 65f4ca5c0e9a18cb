"""Availability as it was recorded by the clock: who was there from which second to which, asked in rounds of any length."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnout.core.checks import ConfigurationError, DataError, count, known_name
from turnout.core.random import below, fold, generator, stream
from turnout.data.directory import Place
from turnout.population.availability.base import Availability, BoundAvailability
from turnout.population.availability.rates import LabelCorrelation, correlation, rank_by_labels
from turnout.population.availability.trace import union
from turnout.population.table import LARGEST, check_path, numbers, read_table

DAY = 86_400
"""Seconds."""

MOST_DEVICES = 10_000_000
"""Devices that a recording may have; memory grows with their number."""

_COLUMNS: tuple[str, ...] = ("client", "from", "to")

Intervals = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Device, first second, and second after the last, int64 ``[rows]`` each."""


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
        given = correlation("correlated_with_labels", self.correlated_with_labels)
        object.__setattr__(self, "correlated_with_labels", given)

    @property
    def round_seconds(self) -> float:
        """Seconds that a round lasts."""
        return self.seconds_per_round

    def intervals(self) -> tuple[Intervals, int]:
        """Return when each device was there, and how many devices there are."""
        raise NotImplementedError

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> BoundRecording:
        """Give devices to N clients."""
        count("num_clients", num_clients)
        (device, start, end), num_devices = self.intervals()
        period = max(int(end.max()) // DAY * DAY, DAY) if end.max() >= DAY else int(end.max())
        edges, rates = _edges(device, start, np.minimum(end, period), num_devices, period, self.seconds_per_round)
        client = np.arange(num_clients)
        turn, place = np.divmod(client, num_devices)
        orders = [generator("recorded devices", seed, k).permutation(num_devices) for k in range(int(turn[-1]) + 1)]
        devices = np.stack(orders)[turn, place]
        days = np.where(turn > 0, below(fold(stream("recorded days", seed), client), max(period // DAY, 1)), 0)
        if self.correlated_with_labels is not None:
            rank = rank_by_labels(label_counts, num_clients, self.correlated_with_labels, seed)
            ascending = np.argsort(rates[devices], kind="stable")
            devices, days = devices[ascending][rank], days[ascending][rank]
        own = rates[devices]
        own.setflags(write=False)
        return BoundRecording(num_clients, own, edges, devices, days * DAY, period, self.seconds_per_round)


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

    table: str | tuple[tuple[int, int, int], ...]
    num_devices: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_devices is not None:
            count("num_devices", self.num_devices)
        if isinstance(self.table, str | os.PathLike):
            object.__setattr__(self, "table", os.fspath(self.table))
            check_path(str(self.table), "timed trace")
        elif isinstance(self.table, Sequence) and self.table:
            for row, cells in enumerate(self.table, 1):
                if not isinstance(cells, Sequence) or isinstance(cells, str) or len(cells) != 3:
                    raise DataError(f"timed trace, row {row}: got {cells!r}, needed (client, from, to)")
            object.__setattr__(self, "table", tuple(tuple(row) for row in self.table))
            self.intervals()
        else:
            raise ConfigurationError(
                f"timed trace: got {self.table!r}, needed a path or rows ((client, from, to), ...)"
            )

    def intervals(self) -> tuple[Intervals, int]:
        """Return when each device was there, and how many devices there are."""
        if isinstance(self.table, str):
            columns = read_table(self.table, "timed trace", _COLUMNS)
        else:
            columns = dict(zip(_COLUMNS, map(list, zip(*self.table, strict=True)), strict=True))
        return _checked(columns, self.num_devices, "timed trace")


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
        columns = read_table(str(where / file), "flash", _COLUMNS)
        return _checked(columns, 300, "flash")


_FLASH = {
    "charging": "flash300_2_state.parquet",
    "battery_50": "flash300_3_state_50.parquet",
    "battery_75": "flash300_3_state_75.parquet",
}

_REMEDY = "Write availability=diurnal, a generator of the same kind that needs no file"


def _checked(columns: Mapping[str, list[Any]], num_devices: int | None, what: str) -> tuple[Intervals, int]:
    """Return the rows of a table; refuse those that end before they start, and devices beyond their number."""
    device, start, end = (numbers(columns[name], name, what, whole=True) for name in _COLUMNS)
    if (wrong := end <= start).any():
        row = int(np.argmax(wrong))
        raise DataError(f"{what}, row {row + 1}: from {start[row]} to {end[row]}, needed a `to` greater than `from`")
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
    return (device, start, end), num_devices or devices


def _edges(
    device: np.ndarray, start: np.ndarray, end: np.ndarray, num_devices: int, period: int, step: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return where devices come and go as ``device * period + second``, ascending, and the fractions of rounds there.

    Rounds fall on all multiples of ``gcd(step, period)`` equally often.
    """
    kept = start < end
    opens, closes = union(device[kept] * period + start[kept], device[kept] * period + end[kept])
    grid = math.gcd(step, period)
    rounds = -(-closes // grid) - -(-opens // grid)  # multiples of the grid in each interval
    rates = np.bincount(opens // period, weights=rounds, minlength=num_devices) / (period // grid)
    return np.stack([opens, closes], axis=1).ravel(), rates


@dataclass(frozen=True, eq=False)
class BoundRecording(BoundAvailability):
    """A `Recording` for N clients.

    Attributes:
        edges: where devices come (even places) and go (odd places), as device * period + second, ascending.
        devices: whose device each client has, int64 ``[N]``.
        later: seconds by which it is later, whole days, int64 ``[N]``.
        period: seconds after which the recording starts over.
        seconds_per_round: how long a round lasts.
    """

    rates: np.ndarray
    edges: np.ndarray
    devices: np.ndarray
    later: np.ndarray
    period: int
    seconds_per_round: int

    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Return whether each of `clients` is there in `round`, bool ``[B]``."""
        second = (round * self.seconds_per_round % self.period + self.later[clients]) % self.period
        return np.searchsorted(self.edges, self.devices[clients] * self.period + second, side="right") % 2 == 1
