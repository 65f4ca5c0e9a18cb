"""Remember what a client has sent to sums, which survives its process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class OpenedSum:
    """A sum that the client helped to open.

    Attributes:
        kind: ``"train"``, ``"evaluate"`` or ``"query"``.
        what: digest of the model, or of the question.
        version: version of the model.
        group: numbers of the other clients in the sum, as by `turnout.protocol.secure.overlap.as_bits`.
    """

    kind: str
    what: str
    version: int
    group: int = 0


class SumHistory:
    """The sums that a client has contributed to in a run.

    Args:
        write: function that writes a line to the disk before it takes effect; None keeps the history in memory.
        lines: lines that were written earlier.

    Attributes:
        masked: (version, repeat) of each masked update that was sent.
        opened: sums that the client helped to open.
        answered: digests of the questions that it has answered.
        superseded: digests of models after which the client has seen another one, or that the server gives out again.

    Raises:
        ValueError: if a line is damaged.
    """

    def __init__(self, write: Callable[[bytes], None] | None = None, lines: Iterable[bytes] = ()) -> None:
        self._write, self._model = write, ""
        self.masked: set[tuple[int, int]] = set()
        self.opened: list[OpenedSum] = []
        self.answered: set[str] = set()
        self.superseded: set[str] = set()
        for line in lines:
            self._apply(json.loads(line))

    def mask(self, version: int, repeat: int, model: str) -> None:
        """Record a masked update, before it is sent."""
        if (version, repeat) not in self.masked:
            self._add({"event": "masked", "version": version, "repeat": repeat, "model": model})

    def open(self, opened: OpenedSum) -> None:
        """Record a sum, before shares that open it are sent."""
        if opened not in self.opened:
            self._add({"event": "opened", **asdict(opened), "group": f"{opened.group:x}"})

    def answer(self, question: str) -> None:
        """Record the answer to a question, before it is sent."""
        if question not in self.answered:
            self._add({"event": "answered", "question": question})

    def supersede(self, model: str) -> None:
        """Record that the server has gone back to a model."""
        if model not in self.superseded:
            self._add({"event": "again", "model": model})

    def _add(self, event: dict[str, Any]) -> None:
        if self._write is not None:
            self._write(json.dumps(event).encode() + b"\n")
        self._apply(event)

    def _apply(self, event: dict[str, Any]) -> None:
        """Apply an event.

        Raises:
            ValueError: if it is none.
        """
        try:
            match event["event"]:
                case "masked":
                    self.masked.add((int(event["version"]), int(event["repeat"])))
                    if self._model not in ("", event["model"]):
                        self.superseded.add(self._model)
                    self._model = str(event["model"])
                case "opened":
                    group = int(event["group"], 16)
                    self.opened.append(OpenedSum(event["kind"], event["what"], int(event["version"]), group))
                case "answered":
                    self.answered.add(str(event["question"]))
                case "again":
                    self.superseded.add(str(event["model"]))
                case other:
                    raise ValueError(f"unknown event {other!r}")
        except (KeyError, TypeError) as error:
            raise ValueError(f"no line of what the client has sent: {error!r}") from None
