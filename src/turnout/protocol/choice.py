"""Choose clients at random among those who are available and idle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from turnout.core.random import fold, stream, uniform
from turnout.protocol.pace.pace import BoundPace

_SMALL = 1024
_BLOCK = 256


class Presence(Protocol):
    """Who is available: an availability in virtual time, or the table of clients of a server."""

    @property
    def num_clients(self) -> int:
        """How many clients there are (N)."""
        ...

    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Return which of these clients are there in a round of availability, bool ``[n]`` from int64 ``[n]``."""
        ...


class Choice:
    """Draw clients uniformly at random, without repeats, among those who are available and idle.

    Clients are drawn from all N until enough are found, which costs the same however large N is. Where most are away or at
    work, this would take long: then everybody who is available is listed once, and the list is reused until `begin`; `add`
    appends clients that become idle. The i-th random number of a run depends on the seed and on i alone.

    Args:
        availability: who is there.
        pace: who is idle.
        seed: the run's seed.
        always: whether everybody is there at all times.

    Attributes:
        availability: as given.
        always: as given.
        round: the round of availability.
    """

    def __init__(self, availability: Presence, pace: BoundPace, seed: int, *, always: bool = False) -> None:
        self.availability, self._pace = availability, pace
        self.always = always
        self.round = 0
        self._key = stream("choice", seed)
        self._used = 0
        self._numbers: list[float] = []
        self._there: list[bool] | None = None
        self._pool: list[int] | None = None
        self._pooled: set[int] = set()

    def begin(self, round: int) -> None:
        """Begin a round of availability."""
        self.round = round
        if not self.always:
            self._there = self._pool = None
            self._pooled = set()

    def add(self, clients: Sequence[int], *, surely_there: bool = True) -> None:
        """Append clients that may have become idle to the list, if there is one."""
        if self._pool is None:
            return
        if not (surely_there or self.always or len(clients) == 0):
            there = self.availability.available(np.array(clients), self.round)
            clients = [client for client, here in zip(clients, there.tolist(), strict=True) if here]
        for client in clients:
            if client not in self._pooled and self._pace.idle(client):
                self._pool.append(client)
                self._pooled.add(client)

    def of_these(self, clients: Sequence[int]) -> list[int]:
        """Return the idle ones of some available clients, in their order."""
        return list(filter(self._pace.idle, clients))

    def there(self, clients: np.ndarray) -> np.ndarray:
        """Return which of `clients` are there and idle, bool ``[n]``."""
        return self.here(clients) & np.array([self._pace.idle(client) for client in clients.tolist()], dtype=bool)

    def here(self, clients: np.ndarray) -> np.ndarray:
        """Return which of `clients` are there, idle or not, bool ``[n]``."""
        return self.availability.available(clients, self.round)

    def choose(self, count: int, but: Iterable[int] = ()) -> list[int]:
        """Return `count` available, idle clients, ascending, none of `but`; fewer only if there are no more."""
        num_clients = self.availability.num_clients
        chosen = dict.fromkeys(but)
        count += len(chosen)
        if self._pool is None and num_clients > _SMALL and 4 * count <= num_clients:
            self._search(chosen, count)
        if len(chosen) < count:
            self._draw(chosen, count)
        return sorted(chosen.keys() - but) if but else sorted(chosen)

    def likely(self) -> list[int]:
        """Return clients that will be tried next, as far as their numbers are drawn already."""
        if self._pool is not None or not (index := self._used % _BLOCK):
            return []
        return [int(number * self.availability.num_clients) for number in self._numbers[index:]]

    def _search(self, chosen: dict[int, None], count: int) -> None:
        """Try clients of all N until `count` are chosen; give up after N / 4 tries."""
        num_clients, idle = self.availability.num_clients, self._pace.idle
        for _ in range(num_clients // 4):
            client = int(self._number() * num_clients)
            if (self.always or self._is_there()) and idle(client):
                chosen[client] = None
                if len(chosen) == count:
                    return

    def _draw(self, chosen: dict[int, None], count: int) -> None:
        """Draw from the list of available, idle clients until `count` are chosen."""
        if self._pool is None:
            there = self._everyone()
            there[np.array([*self._pace.engaged(), *chosen], dtype=np.int64)] = False
            self._pool = np.flatnonzero(there).tolist()
            self._pooled = set(self._pool)
        pool, idle = self._pool, self._pace.idle
        while pool and len(chosen) < count:
            if count - len(chosen) >= len(pool):
                chosen.update(dict.fromkeys(filter(idle, pool)))
                pool.clear()
                self._pooled.clear()
                return
            index = int(self._number() * len(pool))
            client, pool[index] = pool[index], pool[-1]
            pool.pop()
            self._pooled.discard(client)
            if idle(client):  # the list may still hold some who were asked without being drawn
                chosen[client] = None

    def _everyone(self) -> np.ndarray:
        """Return which clients are available, bool ``[N]``."""
        clients = np.arange(self.availability.num_clients)
        return np.ones(len(clients), dtype=bool) if self.always else self.availability.available(clients, self.round)

    def _number(self) -> float:
        """Return the next uniform random number; a block of them is drawn at a time."""
        index = self._used % _BLOCK
        if index == 0 or not self._numbers:
            indices = np.arange(self._used - index, self._used - index + _BLOCK)
            self._numbers, self._there = uniform(fold(self._key, indices)).tolist(), None
        self._used += 1
        return self._numbers[index]

    def _is_there(self) -> bool:
        """Return whether the client of the last number is available; a block of clients is asked for at a time."""
        there = self._there
        if there is None:
            clients = (np.array(self._numbers) * self.availability.num_clients).astype(np.int64)
            there = self._there = self.availability.available(clients, self.round).tolist()
        return there[(self._used - 1) % _BLOCK]

    def state(self) -> dict[str, np.ndarray]:
        """Return the state as int64 arrays."""
        listed = self._pool is not None
        return {"used": np.array([self.round, self._used, listed]), "pool": np.array(self._pool or [], dtype=np.int64)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restore a state that `state` returned."""
        self.round, self._used, listed = state["used"].tolist()
        self._numbers, self._there = [], None
        self._pool = state["pool"].tolist() if listed else None
        self._pooled = set(self._pool or ())
