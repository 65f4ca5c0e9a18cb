"""Entries of the journal, their effects, and how the tables of the database change by them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from turnout.core.checks import CheckpointError, wrong_field
from turnout.record.contents import Finite, Text, Whole, damaged, parse
from turnout_serve.server.store.database import CLIENTS, CODES
from turnout_serve.server.verdicts import Verdict

Value = TypeVar("Value")


@dataclass(frozen=True)
class Entry:
    """An event in the journal.

    Attributes:
        number: position in the journal, from 1, without gaps.
        time: seconds that the server had run, summed over its restarts.
        wall: system time in seconds since 1970, for display only.
        kind: ``"start"``, ``"restart"``, ``"enrol"``, ``"join"``, ``"leave"``, ``"report"``, ``"fail"``, ``"timer"`` or
            ``"survey"``; of an administrator ``"name"``, ``"ban"``, ``"unban"``, ``"remove"`` or ``"codes"``.
        client: number of the client.
        task: number of the task.
        digest: digest of a report, or of a client's token.
        data: further fields, as plain values.
    """

    number: Whole
    time: Finite
    wall: Finite
    kind: Text
    client: Whole | None = None
    task: Whole | None = None
    digest: Text | None = None
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def sender(self) -> int:
        """The client of an entry of a kind that has one."""
        return self._needed("client", self.client)

    @property
    def done(self) -> int:
        """The task of a report or a failure."""
        return self._needed("task", self.task)

    @property
    def body(self) -> str:
        """The digest of a report."""
        return self._needed("digest", self.digest)

    def _needed(self, name: str, value: Value | None) -> Value:
        if value is None:
            raise ValueError(f"entry {self.number} of the journal, of the kind {self.kind}, has no {name}")
        return value

    @staticmethod
    def of_row(row: Any) -> Entry:
        """Read a row of the journal.

        Raises:
            CheckpointError: if it is damaged.
        """
        name = f"entry {row.number} of the journal"
        try:  # SQLite does not enforce the types of columns
            return _ENTRY.validate_python({**row._asdict(), "data": read_json(row.data or "{}", name)})
        except ValidationError as error:
            raise damaged(name, wrong_field(error, "the file")) from None

    def row(self) -> dict[str, Any]:
        """Return the row of the journal."""
        return {**vars(self), "data": json.dumps(self.data) if self.data else None}

    def link(self, before: str) -> str:
        """Return the link of the entry: the SHA-256 of the link before it and of its fields, with the digest of a report.

        >>> Entry(1, 0.5, 0.0, "enrol", 0, None, "ab", {"name": "north"}).link(first_link("r"))[:16]
        '7ef02b9d2e52e772'
        """
        content = json.dumps([before, *vars(self).values()], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()


_ENTRY = TypeAdapter(Entry)


def first_link(run: str) -> str:
    """Return the link before the first entry of a run."""
    return hashlib.sha256(f"turnout journal {run}".encode()).hexdigest()


def chained(before: str, entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return the rows of the links of entries that follow the link before."""
    return [{"number": entry.number, "link": (before := entry.link(before))} for entry in entries]


@dataclass(frozen=True)
class Outcome:
    """Outcome of a task: ``"taken"``, or the reason why not; and the digest of the report that was taken."""

    task: int
    client: int
    outcome: str
    digest: str | None = None

    @property
    def state(self) -> Verdict:
        """The answer to a request for the state of the task."""
        if self.outcome == "taken":
            return Verdict(200, {"state": "taken", "digest": self.digest})
        return Verdict(200, {"state": "dropped", "reason": self.outcome})

    def answer(self, digest: str) -> Verdict:
        """Return the answer to another report on the task; a repeated report gets the answer of the first one."""
        if self.outcome != "taken":
            return Verdict(410, {"reason": self.outcome})
        if self.digest != digest:
            return Verdict(409, {"reason": "another report on this task was taken"})
        return Verdict(200, {"state": "taken"})


@dataclass
class Effects:
    """Effects of one journal entry, which the server acts on once the entry is applied.

    Attributes:
        time: time of the entry, in seconds of the server.
        assigned: clients that were given a training task.
        surveyed: clients that were given a task of an evaluation or query.
        ended: outcomes of tasks that ended, by task.
        timers: timers that were set, ``(timer, time)``.
        excluded: clients that an administrator bans or removes, and that were present.
        leave_reason: the outcome of the tasks of a client that the entry makes absent.
        error: the exception that ended the entry early; the rest of the entry has no effect.
    """

    time: float = 0.0
    assigned: list[int] = field(default_factory=list)
    surveyed: list[int] = field(default_factory=list)
    ended: dict[int, Outcome] = field(default_factory=dict)
    timers: list[tuple[int, float]] = field(default_factory=list)
    excluded: list[int] = field(default_factory=list)
    leave_reason: str = "left"
    error: Exception | None = None

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcomes of tasks, in the order in which they first ended."""
        return list(self.ended.values())

    @property
    def ready(self) -> list[int]:
        """The clients whose long polls can be answered."""
        return self.assigned + self.surveyed + self.excluded


def void_token(client: int) -> str:
    """Return what replaces the hash of a removed client's token; no token has this hash."""
    return f"removed {client}"


def is_void(token: str) -> bool:
    """Return whether a hash is that of a removed client."""
    return token.startswith("removed ")


def tabulate(connection: sa.Connection, entry: Entry) -> None:
    """Change the tables of clients and of one-time codes by an entry."""
    data = entry.data
    match entry.kind:
        case "enrol":
            row = {"client": entry.client, "token": entry.digest, "name": data.get("name")}
            connection.execute(CLIENTS.insert().values(row))
            if (code := data.get("code")) is not None:
                connection.execute(CODES.update().where(CODES.c.code == code).values(client=entry.client))
        case "name":
            connection.execute(CLIENTS.update().where(CLIENTS.c.client == entry.client).values(name=data["text"]))
        case "remove":
            void = {"token": void_token(entry.sender), "name": None}
            connection.execute(CLIENTS.update().where(CLIENTS.c.client == entry.client).values(void))
        case "codes" if "add" in data:
            connection.execute(CODES.insert(), [{"code": code} for code in data["add"]])
        case "codes":
            unused = CODES.c.client.is_(None)
            only = sa.true() if data["withdraw"] is None else CODES.c.code == data["withdraw"]
            connection.execute(CODES.delete().where(unused, only))


def read_json(text: str, name: str) -> dict[str, Any]:
    """Read a JSON object of the database.

    Raises:
        CheckpointError: if it is damaged, with its name.
    """
    try:
        return parse(text)
    except ValueError:
        raise CheckpointError(f"{name} is damaged: restore the journal from a copy") from None
