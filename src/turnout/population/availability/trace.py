"""Availability as it was recorded: a table of who was there from which round to which."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnout.core.checks import ConfigurationError, DataError, count, shown
from turnout.population.availability.base import Availability, BoundAvailability
from turnout.population.table import check_path, load, whole_numbers

_COLUMNS = ("client", "from", "to")


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
        DataError: for a file that is missing or unreadable, or a row that is not three whole numbers, starts before
            round 0, ends before it starts, or names a client that does not exist. Rows given directly are checked when
            the trace is made, everything else when it is bound, before the first round.

    Example:
        >>> import numpy as np, turnout as to
        >>> bound = to.availability.Trace(((0, 0, 2), (1, 1, 3))).bind(num_clients=2)  # client, from, to
        >>> [bound.available(np.arange(2), round).astype(int).tolist() for round in range(3)]
        [[1, 0], [1, 1], [0, 1]]
    """

    table: str | tuple[tuple[int, int, int], ...]
    repeat: bool = True
    rounds: int | None = None

    def __post_init__(self) -> None:
        if self.rounds is not None:
            count("rounds", self.rounds, most=2**32 - 1)
        if isinstance(self.table, str | os.PathLike):
            object.__setattr__(self, "table", os.fspath(self.table))
            check_path(str(self.table), "trace")
        elif isinstance(self.table, Sequence):
            for number, row in enumerate(self.table, 1):
                if not isinstance(row, Sequence) or len(row) != 3 or not all(map(_is_index, row)):
                    raise DataError(
                        f"trace, row {number}: got {_row(row)}, needed three whole numbers (client, from, to)"
                    )
            object.__setattr__(self, "table", tuple(tuple(row) for row in self.table))
            self._rows()
        else:
            raise ConfigurationError(f"trace: got {self.table!r}, needed a path or rows ((client, from, to), ...)")

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> BoundTrace:
        """Read the trace for N clients; labels and seed do not matter."""
        del label_counts, seed
        count("num_clients", num_clients)
        client, start, end = self._rows()
        self._refuse_rows(client >= num_clients, client, f"no such client among {num_clients} (numbers start at 0)")
        horizon = int(end.max()) if self.rounds is None else self.rounds
        # Lay the clients' rounds end to end on one line, so that one sorted array answers for all of them.
        opens, closes = union(client * horizon + start, client * horizon + end)
        rates = np.bincount(opens // horizon, weights=closes - opens, minlength=num_clients) / horizon
        rates.setflags(write=False)
        return BoundTrace(num_clients, rates, np.stack([opens, closes], axis=1).ravel(), horizon, self.repeat)

    def _rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Clients, starts and ends, int64 ``[rows]`` each, checked."""
        if isinstance(self.table, str):
            read = load(self.table, "trace", _COLUMNS, None)
            client, start, end = (whole_numbers(read.column(name), name, f"trace {self.table}") for name in _COLUMNS)
        else:
            client, start, end = np.array(self.table, dtype=np.int64).reshape(-1, 3).T
        if not len(client):
            raise DataError("trace: got no rows, so nobody would ever be there; write Everyone() for no trace")
        self._refuse_rows(client < 0, client, "client numbers start at 0")
        self._refuse_rows(start < 0, start, "rounds start at 0")
        self._refuse_rows(end <= start, end, "`to` must be greater than `from`: a row ends before round `to`")
        self._refuse_rows(end >= 2**32, end, "a trace has less than 2**32 rounds: write rounds, not nanoseconds")
        if self.rounds is not None:
            self._refuse_rows(
                end > self.rounds, end, f"the trace has rounds={self.rounds}: write more, or leave it out"
            )
        return client, start, end

    @staticmethod
    def _refuse_rows(bad: np.ndarray, value: np.ndarray, why: str) -> None:
        """Name the first bad row, if there is one."""
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise DataError(f"trace, row {row + 1}: got {value[row]}; {why}")


def _row(row: object) -> str:
    """Return a row of a trace as messages show it."""
    return f"({', '.join(map(shown, row))})" if isinstance(row, tuple | list) else shown(row)


def _is_index(value: object) -> bool:
    """Whether this is a Python integer that fits into 64 bits."""
    return type(value) is int and -(2**62) < value < 2**62


def union(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the union of intervals [start, end) as ascending intervals that do not overlap; touching ones stay apart."""
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.flatnonzero(np.concatenate([[True], start[1:] >= reach[:-1]]))
    return start[first], reach[np.append(first[1:], len(start)) - 1]


@dataclass(frozen=True, eq=False)
class BoundTrace(BoundAvailability):
    """`Trace` for N clients.

    Attributes:
        edges: where clients come (even places) and go (odd places), as client * horizon + round, ascending.
        horizon: the number of rounds that the trace covers.
    """

    rates: np.ndarray
    edges: np.ndarray
    horizon: int
    repeat: bool

    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Whether each of `clients` is there in `round`, bool ``[B]``."""
        if round >= self.horizon and not self.repeat:
            return np.zeros(len(clients), dtype=bool)
        place = clients * self.horizon + round % self.horizon
        return np.searchsorted(self.edges, place, side="right") % 2 == 1
