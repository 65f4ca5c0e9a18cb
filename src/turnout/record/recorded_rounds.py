"""Hold the rounds that a run has recorded: the last ones as numbers, earlier ones as tables, in memory or in a journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from turnout.record.columns import ROUND_COLUMNS
from turnout.record.journal import Journal, Rounds
from turnout.record.tables import fitted, schema_of

PARTICIPATION = {"round": pa.int64(), "client": pa.int64()}
"""The columns that every table of participation has; ``weight`` follows where it was recorded."""

_ROWS = 1024  # rounds that are kept as numbers, which take ten times the memory of a table


class RecordedRounds:
    """Rounds in ascending order, which grow at the end.

    Attributes:
        last: the last of them, 0 if there is none.
    """

    def __init__(self) -> None:
        self.last = self._length = 0
        self._names: set[str] = set()  # of columns that hold a number
        self._journal: Journal | None = None
        self._tables: list[Rounds] = []
        self._rows: list[Mapping[str, Any]] = []
        self._cohorts: list[tuple[np.ndarray, np.ndarray | None]] = []
        self._has_weights = False

    @classmethod
    def of(cls, parts: Iterable[Rounds]) -> RecordedRounds:
        """Keep some rounds after another in memory."""
        found = cls()
        for part in parts:
            found._tables.append(part)
            found._count(part)
        return found

    @classmethod
    def in_journal(cls, path: Path, last: int) -> RecordedRounds:
        """Take over the rounds of a journal up to the round `last`, or as far as it goes."""
        journal, rest = Journal.cut(path, last)
        found = cls()
        found._journal, found._tables = journal, rest
        for part in found.parts():
            found._count(part)
        return found

    def __len__(self) -> int:
        """How many there are."""
        return self._length

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table of rounds."""
        return schema_of(ROUND_COLUMNS, self._names - ROUND_COLUMNS.keys())

    @property
    def participation_schema(self) -> pa.Schema:
        """The columns of the table of participation."""
        return schema_of(PARTICIPATION, ("weight",) if self._has_weights else ())

    def add(self, row: Mapping[str, Any], cohort: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Add a round: its numbers by column, None for what is not known, who took part, and with which weights."""
        self._names |= {name for name, value in row.items() if value is not None}
        self._rows.append(row)
        self._cohorts.append((cohort, weights))
        self._has_weights |= weights is not None
        self.last, self._length = row["round"], self._length + 1
        if len(self._rows) >= _ROWS:
            self._tables += self._taken()

    def up_to(self, last: int) -> RecordedRounds:
        """Return those up to the round `last`, in memory; columns that only later ones have are left out."""
        parts = (part.up_to(last) for part in self.parts())
        return RecordedRounds.of(part for part in parts if len(part.table))

    def move_to(self, path: Path) -> None:
        """Append the rounds in memory to a journal, and forget them; the journal of another path gets all rounds."""
        journal = self._journal
        self._tables += self._taken()
        if journal is None or journal.path != path:
            self._tables = list(self.parts())
            self._journal, journal = None, Journal(path)
        if self._tables:
            journal.append(self._joined(self._tables))
        self._journal, self._tables = journal, []

    def parts(self) -> Iterator[Rounds]:
        """All rounds, some at a time."""
        self._tables += self._taken()
        if self._journal is not None:
            yield from self._journal.entries()
        yield from self._tables

    def whole(self) -> Rounds:
        """All rounds at once."""
        return self._joined(list(self.parts()))

    def column(self, name: str) -> pa.ChunkedArray:
        """One column of the table of rounds."""
        kind = self.schema.field(name).type
        schema = pa.schema([(name, kind)])
        return pa.concat_tables([schema.empty_table(), *(fitted(part.table, schema) for part in self.parts())])[name]

    def _taken(self) -> list[Rounds]:
        """Return what is kept as numbers, as a table; they are forgotten."""
        rows, cohorts, self._rows, self._cohorts = self._rows, self._cohorts, [], []
        if not rows:
            return []
        columns = {}
        for field in self.schema:
            values = [row.get(field.name) for row in rows]
            known = any(value is not None for value in values)
            columns[field.name] = pa.array(values, field.type, from_pandas=False) if known else pa.nulls(len(values))
        when = np.repeat([row["round"] for row in rows], [len(cohort) for cohort, _ in cohorts])
        took_part = {"round": when, "client": np.concatenate([cohort for cohort, _ in cohorts])}
        if self._has_weights:
            known = [np.full(len(cohort), np.nan) if some is None else some for cohort, some in cohorts]
            took_part["weight"] = pa.array(np.concatenate(known), from_pandas=True)  # NaN is null
        return [Rounds(pa.table(columns), pa.table(took_part, schema=self.participation_schema))]

    def _count(self, earlier: Rounds) -> None:
        """Note what some rounds hold that are not in memory as numbers."""
        self._length += len(earlier.table)
        self.last = earlier.last
        names = earlier.table.column_names
        self._names |= {name for name in names if earlier.table[name].null_count < len(earlier.table)}
        self._has_weights |= "weight" in earlier.participation.column_names

    def _joined(self, parts: list[Rounds]) -> Rounds:
        """Return some rounds after another as one."""
        rounds = _end_to_end((part.table for part in parts), self.schema)
        return Rounds(rounds, _end_to_end((part.participation for part in parts), self.participation_schema))


def _end_to_end(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return some tables after another as one with these columns."""
    return pa.concat_tables([schema.empty_table(), *(fitted(table, schema) for table in tables)])
