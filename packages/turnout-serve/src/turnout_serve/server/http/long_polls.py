"""Long polls: requests for work that wait until there is some."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress


class LongPolls:
    """The open long polls, at most one of each client. All methods may be called by any thread."""

    def __init__(self) -> None:
        self._held: dict[int, asyncio.Future[None]] = {}

    def __len__(self) -> int:
        return len(self._held)

    @contextmanager
    def hold(self, client: int) -> Iterator[asyncio.Future[None]]:
        """Open a long poll, in place of an earlier one of the client; yield a future that is done when it can be answered."""
        self.wake([client])
        future = self._held[client] = asyncio.get_running_loop().create_future()
        try:
            yield future
        finally:
            if self._held.get(client) is future:
                del self._held[client]

    def wake(self, clients: Iterable[int] | None = None) -> None:
        """Have the long polls of clients answered; None answers all."""
        for client in list(self._held) if clients is None else clients:
            if (future := self._held.get(client)) is not None:
                with suppress(RuntimeError):  # of a loop that was closed because the server stops
                    future.get_loop().call_soon_threadsafe(_answer, future)


def _answer(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
