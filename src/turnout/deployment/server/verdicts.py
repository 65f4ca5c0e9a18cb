"""Answers to requests, whatever transport carried them."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from turnout.core.checks import TurnoutError


class Verdict(NamedTuple):
    """Answer to a request: an HTTP status and a JSON body."""

    status: int
    body: dict[str, Any]


class Refused(TurnoutError):
    """A request that is not done; `verdict` says what is answered."""

    def __init__(self, status: int, reason: str, **more: Any) -> None:
        super().__init__(reason)
        self.verdict = Verdict(status, {"reason": reason, **more})


def hashed(secret: str) -> str:
    """Return what is kept of a token or code: it was drawn at random, so a plain hash tells nothing."""
    return hashlib.sha256(secret.encode()).hexdigest()
