"""Facts about a run beside its journal: a table of names and values in the same database."""

from __future__ import annotations

import json
import secrets
from typing import Any

import sqlalchemy as sa

from turnout.record.contents import restoring
from turnout_serve.server.journal.entries import read_json
from turnout_serve.server.store.database import FACTS, rows, transaction

BEGINS = "begins"
"""Name of the fact that says from which entry on the journal is complete."""
OBJECTS = "objects"
"""Name of the fact that gives the URL of an object store; empty without one."""
_SHAPE, _WHAT = "shape", "the shape of examples in the journal"
_LOST = "lost "  # followed by the number of a task


class Facts:
    """Read facts, and write each once: the first value stays.

    Args:
        engine: engine of the database.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def get(self, name: str) -> str | None:
        """Return the value of a name; None where there is none."""
        found = rows(self._engine, sa.select(FACTS.c.value).where(FACTS.c.name == name))
        return found[0].value if found else None

    def ensure(self, name: str, value: str) -> str:
        """Return the value of a name, after writing this one where there is none."""
        with transaction(self._engine) as connection:
            first = connection.execute(sa.select(FACTS.c.value).where(FACTS.c.name == name)).scalar()
            if first is None:
                connection.execute(FACTS.insert().values(name=name, value=value))
            return value if first is None else first

    @property
    def run(self) -> str:
        """Name of the run, drawn once, by which clients recognize the server of their run."""
        return self.ensure("run", secrets.token_hex(8))

    @property
    def shape(self) -> dict[str, Any] | None:
        """Shape of clients' examples as the first client reported it; None where it was declared, or is not known."""
        value = self.get(_SHAPE)
        return None if value is None else read_json(value, _WHAT)

    def set_shape(self, shape: dict[str, Any]) -> dict[str, Any]:
        """Write the shape of clients' examples, before any entry; return the one that was written first."""
        return read_json(self.ensure(_SHAPE, json.dumps(shape)), _WHAT)

    @property
    def begins(self) -> int:
        """Number of the entry from which on the journal is complete; 0 where nothing was deleted."""
        with restoring("the database", "where the journal begins"):
            return int(self.get(BEGINS) or 0)

    def lost(self) -> set[int]:
        """Return the tasks whose report was missing, damaged or unusable when it was needed."""
        found = rows(self._engine, sa.select(FACTS.c.name).where(FACTS.c.name.startswith(_LOST)))
        return {int(row.name.removeprefix(_LOST)) for row in found}

    def add_lost(self, task: int, reason: str) -> None:
        """Write that the report of a task was not used."""
        self.ensure(f"{_LOST}{task}", reason[:1000])
