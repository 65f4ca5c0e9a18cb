"""Replay recorded durations of the tasks of each client."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from turnout.core.checks import ConfigurationError, DataError, count, probability
from turnout.core.random import below, fold, stream
from turnout.population.speed.distributions import Per
from turnout.population.speed.durations import BoundSpeed, Durations, Seconds, SpeedModel
from turnout.population.table import Column, as_table, by_number, clients, numbered, numbers, read_table

LOG = logging.getLogger(__name__)

_LEGS = ("download", "compute", "upload")
_WHAT, _FORM = "recorded speed", "(client, compute) or (client, download, compute, upload)"


@dataclass(frozen=True)
class RecordedSpeed(SpeedModel, name="recorded"):
    """The durations of a client's tasks are the rows of a table, in their order, repeated cyclically.

    Attributes:
        table: path of a CSV or Parquet file with the columns client, compute and optionally download and upload (seconds),
            or the rows, ``((client, compute), ...)`` or ``((client, download, compute, upload), ...)``. Clients are the
            names of the data's clients, which may be numbers, or numbers from 0 on.
        per: unit of the column compute, ``"task"`` or ``"step"``.
        drawn: False replays the client's own rows from the first one. True replays those of a client drawn at random from
            the table, from a row drawn at random, so that a small table serves many clients.

    Sizes of messages are not used, since the recorded times include them.

    Raises:
        ConfigurationError: if a table is neither a path to .csv or .parquet nor rows.
        DataError: if a file is missing or unreadable, a row is not a client and finite seconds >= 0, a total duration is
            0, or a client has no rows. Rows are checked when the object is made, and files when it is bound.

    Example:
        >>> import numpy as np, turnout as to
        >>> bound = to.speed.RecordedSpeed(((0, 2.0), (0, 3.0), (1, 9.0))).bind(num_clients=2)
        >>> [bound.seconds(np.arange(2), tasks=np.full(2, task)).compute.tolist() for task in range(3)]
        [[2.0, 9.0], [3.0, 9.0], [2.0, 9.0]]
    """

    table: str | tuple[tuple[float | str, ...], ...] | Any
    per: Per = "task"
    drawn: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", as_table(self.table, _WHAT, _FORM, (2, 4)))
        if not isinstance(self.table, str):
            self._rows()

    def of_clients(self, names: Sequence[str] | None) -> RecordedSpeed:
        """Return the table with numbers in place of names of clients; clients that are drawn keep theirs."""
        if self.drawn:
            return self
        client, seconds = self._rows()
        if (number := numbered(client, names, _WHAT)) is None:
            return self
        rows = zip(number.tolist(), *seconds.T.tolist(), strict=True)
        return replace(self, table=tuple(row for row in rows if row[0] >= 0))

    def bind(self, num_clients: int, seed: int = 0) -> BoundRecordedSpeed:
        """Read the table for N clients."""
        count("num_clients", num_clients)
        client, seconds = self._rows()
        order = np.argsort(client, kind="stable")
        known, starts, lengths = np.unique(client[order], return_index=True, return_counts=True)
        everyone = np.arange(num_clients)
        if self.drawn:
            device = below(fold(stream("recorded client", seed), everyone), len(known))
            first = below(fold(stream("recorded row", seed), everyone), lengths[device])
        else:
            by_number(client, _WHAT)
            if (others := len(known) - np.searchsorted(known, num_clients)) > 0:
                LOG.warning("recorded speed: %d of its clients have numbers from %d on, which no client of the data has, and "
                            "are not used", others, num_clients)  # fmt: skip
            device, first = np.searchsorted(known, everyone), np.zeros(num_clients, dtype=np.int64)
            missing = (device == len(known)) | (known[np.minimum(device, len(known) - 1)] != everyone)
            if missing.any():
                raise DataError(
                    f"recorded speed: client {int(np.argmax(missing))} of {num_clients} has no row: write drawn=True to "
                    "have clients replay those of others"
                )
        return BoundRecordedSpeed(
            num_clients, self.per, seconds[order], client[order], starts[device], lengths[device], first
        )

    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Read and check the clients, int64 ``[rows]``, and download, compute and upload, float64 ``[rows, 3]``."""
        if isinstance(self.table, str):
            columns: dict[str, Column] = {
                **read_table(self.table, _WHAT, ("client", "compute"), ("download", "upload"), ("client",))
            }
        else:
            whole = [row if len(row) == 4 else (row[0], 0.0, row[1], 0.0) for row in self.table]
            columns = dict(zip(("client", *_LEGS), zip(*whole, strict=True), strict=False))
        if not columns:
            raise DataError(f"{_WHAT}: it has no rows")
        client = clients(columns["client"], _WHAT)
        legs = (numbers(columns[leg], leg, _WHAT) if leg in columns else np.zeros(len(client)) for leg in _LEGS)
        seconds = np.stack(list(legs), axis=1)
        if (nothing := seconds.sum(axis=1) == 0).any():
            raise DataError(f"{_WHAT}, row {int(np.argmax(nothing)) + 1}: the task takes 0 seconds, needed more")
        return client, seconds


@dataclass(frozen=True, eq=False)
class BoundRecordedSpeed(BoundSpeed):
    """`RecordedSpeed` bound to N clients.

    Attributes:
        per: unit of computing times.
        rows: download, compute and upload of all rows, sorted by recorded client, float64 ``[rows, 3]``.
        owner: recorded client of each row, ascending, ``[rows]``.
        start: the first row that each client replays, ``[N]``.
        length: number of rows that each client replays, ``[N]``.
        first: index among them of the row of the first task, ``[N]``.
    """

    per: Per
    rows: np.ndarray
    owner: np.ndarray
    start: np.ndarray
    length: np.ndarray
    first: np.ndarray

    def seconds(
        self,
        clients: np.ndarray,
        tasks: np.ndarray,
        num_steps: np.ndarray | int = 1,
        bytes_up: int = 0,
        bytes_down: int = 0,
    ) -> Durations:
        """Return the durations of B tasks; see `BoundSpeed`."""
        down, compute, up = self.rows[self.start[clients] + (self.first[clients] + tasks) % self.length[clients]].T
        return Durations(down, compute * num_steps if self.per == "step" else compute, up)

    @property
    def seconds_per_step(self) -> Seconds:
        """The mean computing time of one local step of each client, float64 ``[N]``."""
        if self.per != "step":
            raise ConfigurationError(
                "the time of a local step is not known, as the recorded times are per task: write per='step' if they are"
            )
        sums = np.concatenate([[0.0], np.cumsum(self.rows[:, 1])])
        return (sums[self.start + self.length] - sums[self.start]) / self.length

    def communication_quantile(self, q: float, bytes_up: int = 0, bytes_down: int = 0) -> Seconds:
        """Return the q-quantile of the recorded time of download and upload together, ``[N]``."""
        probability("q", q)
        total = self.rows[:, 0] + self.rows[:, 2]
        ascending = total[np.lexsort((total, self.owner))]
        rank = np.ceil(q * self.length - 1e-9).astype(np.int64) - 1
        return ascending[self.start + np.clip(rank, 0, self.length - 1)]
