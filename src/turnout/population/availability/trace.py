"""Replay availability that was recorded in rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np

from turnout.core.checks import DataError, count
from turnout.population.availability.base import Availability
from turnout.population.availability.intervals import (
    BoundTrace,
    Intervals,
    Table,
    interval_table,
    read_intervals,
    refuse_rows,
    with_numbers,
)
from turnout.population.availability.times import UNIX, in_words, spell_dates
from turnout.population.table import by_number


@dataclass(frozen=True)
class Trace(Availability, name="trace"):
    """Each client is available in the rounds ``from <= round < to`` of its rows in a table, and without rows never.

    Rows may be in any order; overlapping rows of a client count as their union.

    Attributes:
        table: path of a CSV or Parquet file with the columns client, from, to (other columns are ignored), a data frame or a
            mapping of such columns, or the rows, ``((client, from, to), ...)``. Clients are the names of the data's clients,
            which may be numbers, or numbers from 0 on; `from` and `to` are whole numbers.
        repeat: True repeats the trace after its last round; False makes all clients unavailable afterwards.
        rounds: number of recorded rounds; None is the last `to`. It is needed for a recording whose last rounds have no
            available clients, which would otherwise repeat too early.

    The rates of a bound trace are the fractions of its rounds in which each client is available.

    Raises:
        ConfigurationError: if a table is of another kind.
        DataError: if a file is missing or unreadable, or a row has no client and two whole numbers >= 0, ends before it
            starts, has an unknown client, or holds dates. Rows are checked when the trace is made, files when it is bound.

    Example:
        >>> import numpy as np, turnout as to
        >>> bound = to.availability.Trace(((0, 0, 2), (1, 1, 3))).bind(num_clients=2)  # client, from, to
        >>> [bound.available(np.arange(2), round).astype(int).tolist() for round in range(3)]
        [[1, 0], [1, 1], [0, 1]]
    """

    table: Table | Any
    repeat: bool = True
    rounds: Annotated[int, partial(count, most=2**32 - 1)] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", interval_table(self.table, "trace"))
        if not isinstance(self.table, str):
            self._intervals()

    def of_clients(self, names: Sequence[str] | None) -> Trace:
        """Return the trace with numbers in place of names of clients."""
        return replace(self, table=with_numbers(self.table, names, "trace", None))

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> BoundTrace:
        """Read the trace for N clients; labels and seed are not used."""
        count("num_clients", num_clients)
        client, _, end = rows = self._intervals()
        by_number(client, "trace")
        refuse_rows(client >= num_clients, client, "trace", f"no such client among {num_clients} (numbers start at 0)")
        horizon = int(end.max()) if self.rounds is None else self.rounds
        return BoundTrace.of_rows(rows, num_clients, horizon, 1, self.repeat)

    def _intervals(self) -> Intervals:
        """Read the rows, and check that their rounds are within the trace."""
        client, start, end = read_intervals(self.table, "trace", None)
        if (first := int(start.min())) >= UNIX or spell_dates(np.concatenate([start, end])):
            time = in_words(first) if first >= UNIX else "a date"
            raise DataError(
                f"trace: its first round is {first}, as if it were a time ({time}), and rounds count from 0: "
                "write TimedTrace for times, or subtract the first round"
            )
        refuse_rows(end >= 2**32, end, "trace", "a trace has less than 2**32 rounds: write rounds, not nanoseconds")
        if self.rounds is not None:
            why = f"the trace has rounds={self.rounds}: write more, or leave it out"
            refuse_rows(end > self.rounds, end, "trace", why)
        return client, start, end
