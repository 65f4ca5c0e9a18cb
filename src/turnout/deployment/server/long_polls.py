"""Questions for work that are held until there is some."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class LongPolls:
    """The clients whose question is held, one question of each. Belongs to the thread of an event loop."""

    def __init__(self) -> None:
        self._held: dict[int, asyncio.Future[None]] = {}

    def __len__(self) -> int:
        return len(self._held)

    @contextmanager
    def held(self, client: int) -> Iterator[asyncio.Future[None]]:
        """Hold a question of a client; gives what is done when it may be answered. An earlier one is answered now."""
        self.wake([client])
        future = self._held[client] = asyncio.get_running_loop().create_future()
        try:
            yield future
        finally:
            if self._held.get(client) is future:
                del self._held[client]

    def wake(self, clients: Iterable[int]) -> None:
        """Have the questions of these clients answered."""
        for client in clients:
            if (future := self._held.get(client)) is not None and not future.done():
                future.set_result(None)

    def wake_all(self) -> None:
        """Have all questions answered."""
        self.wake(list(self._held))
