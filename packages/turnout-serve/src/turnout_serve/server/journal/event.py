"""Events that wait for the journal."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

# Journals of earlier versions have "enrol", and digests are of it.
Kind = Literal[
    "start", "restart", "enrol", "join", "leave", "report", "fail", "timer", "survey", "name", "ban", "unban", "remove",
    "codes",
]  # fmt: skip

_INT64 = range(-(1 << 63), 1 << 63)
_MAX_BYTES = 4096  # of the data of an event


@dataclass(eq=False)
class Event:
    """An event that is not yet in the journal, and the future of whoever waits for it.

    Attributes:
        kind, client, task, digest, data: as of an `Entry`.
        file: the upload of a report.
        done: resolved once the event is in the journal and applied.

    Raises:
        ValueError: if no database can store the values. The check is here, in the thread of the request, so that the
            error fails this request and never reaches the thread that writes the journal.
    """

    kind: Kind
    client: int | None = None
    task: int | None = None
    digest: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    file: Path | None = None
    done: Future[Any] = field(default_factory=Future)

    def __post_init__(self) -> None:
        if not all(number is None or number in _INT64 for number in (self.client, self.task)):
            raise ValueError(f"client {self.client} or task {self.task} does not fit in 64 bits")
        texts = [value for value in (self.digest, *self.data.values()) if isinstance(value, str)]
        size = len(json.dumps([self.digest, self.data], ensure_ascii=False, allow_nan=False).encode())
        if size > _MAX_BYTES or any("\0" in text for text in texts):
            raise ValueError(f"the data of an event contain NUL, or have more than {_MAX_BYTES:,} bytes")

    def answer(self, result: Any) -> None:
        """Resolve the future, unless its owner has canceled it."""
        if not self.done.done():
            self.done.set_result(result)

    def fail(self, error: Exception) -> None:
        """Fail the future, unless its owner has canceled it."""
        if not self.done.done():
            self.done.set_exception(error)
