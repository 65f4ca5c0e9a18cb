"""What has happened and waits for the journal."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Kind = Literal["start", "enrol", "join", "leave", "report", "fail", "timer"]


@dataclass(eq=False)
class Happening:
    """Something that has happened and is not yet in the journal; `done` is answered when it is."""

    kind: Kind
    client: int | None = None
    task: int | None = None
    digest: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    file: Path | None = None
    done: Future[Any] = field(default_factory=Future)
