"""uvicorn as the server runs it: without its signals, and with a limit for slow headers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from turnout.core import signals

_HEADERS = 15.0  # seconds that the headers of a request may take


class PlainUvicorn(uvicorn.Server):
    """uvicorn, which leaves signals alone where it is not the main thread."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal, and do not raise it once more afterwards."""
        with signals.handled(lambda number: self.handle_exit(number, None)):
            yield


class PromptHttp(HttpToolsProtocol):
    """HTTP whose headers have to come within some seconds, so that nobody holds connections by dripping them."""

    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to count."""
        super().connection_made(transport)
        self._due = self.loop.call_later(_HEADERS, transport.close)

    def on_message_begin(self) -> None:
        """Begin to count for the next request of a connection."""
        super().on_message_begin()
        if self._due is None:
            self._due = self.loop.call_later(_HEADERS, self.transport.close)

    def on_headers_complete(self) -> None:
        """Stop counting."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting."""
        if self._due is not None:
            self._due.cancel()
        super().connection_lost(exc)
