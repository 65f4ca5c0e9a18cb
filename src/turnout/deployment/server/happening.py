"""Events that wait for the journal."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Kind = Literal[
    "start", "enrol", "join", "leave", "report", "fail", "timer", "survey", "name", "ban", "unban", "remove", "codes"
]


_INT64 = range(-(1 << 63), 1 << 63)
_LONGEST = 4096  # bytes of the data of an event


@dataclass(eq=False)
class Happening:
    """An event that is not yet in the journal; `done` is answered when it is.

    Raises:
        ValueError: for what no database can hold. Raised here, the error is that of one request, and never reaches the thread
            that writes the journal.
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
            raise ValueError(f"client {self.client} or task {self.task} is no number of 64 bits")
        texts = [value for value in (self.digest, *self.data.values()) if isinstance(value, str)]
        size = len(json.dumps([self.digest, self.data], ensure_ascii=False, allow_nan=False).encode())
        if size > _LONGEST or any("\0" in text for text in texts):
            raise ValueError("the data of an event hold NUL, or are too long")

    def answer(self, result: Any) -> None:
        """Answer whoever waits for this event, unless nobody does any more."""
        if not self.done.done():
            self.done.set_result(result)

    def fail(self, error: Exception) -> None:
        """Tell whoever waits for this event that it has failed."""
        if not self.done.done():
            self.done.set_exception(error)
