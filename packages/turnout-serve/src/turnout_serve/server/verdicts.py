"""Answers to requests, independent of the transport."""

from __future__ import annotations

from typing import Any, NamedTuple

from turnout.core.checks import TurnoutError


class Verdict(NamedTuple):
    """Answer to a request: an HTTP status and a JSON body."""

    status: int
    body: dict[str, Any]


class Refused(TurnoutError):
    """A request that is refused; `verdict` is the answer."""

    def __init__(self, status: int, reason: str, **more: Any) -> None:
        super().__init__(reason)
        self.verdict = Verdict(status, {"reason": reason, **more})
