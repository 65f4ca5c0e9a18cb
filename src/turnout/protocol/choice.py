"""Select clients at random among those that are available and idle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Protocol

import numpy as np

from turnout.core.random import fold, stream, uniform
from turnout.protocol.pace.pace import BoundPace

_SMALL = 1024  # up to this many clients, all are listed
_BLOCK = 256  # random numbers drawn at a time


class Presence(Protocol):
    """The availability of clients: a model in virtual time, or the connections of a server."""

    @property
    def num_clients(self) -> int:
        """The number of clients, N."""
        ...

    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Return whether clients, int64 ``[n]``, are available in a round of availability, bool ``[n]``."""
        ...


class Choice:
    """Draw clients uniformly at random, without replacement, among those that are available and idle.

    Clients are drawn from all N and rejected until enough are found, at a cost that does not depend on N. If most
    clients are unavailable or working, rejection would take long: then all available, idle clients are listed once. The
    list is reused until `begin`, and `add` appends clients that become idle. The i-th random number of a run depends on
    the seed and i alone.

    Args:
        availability: availability of the clients.
        pace: pace, which knows the idle clients.
        seed: seed of the run.
        always: True if all clients are available at all times.

    Attributes:
        availability: availability of the clients.
        always: True if all clients are available at all times.
        round: round of availability.
    """

    def __init__(self, availability: Presence, pace: BoundPace, seed: int, *, always: bool = False) -> None:
        self.availability, self._pace = availability, pace
        self.always = always
        self.round = 0
        self._key = stream("choice", seed)
        self._used = 0
        self._numbers: list[float] = []
        self._are_available: list[bool] | None = None  # the clients of `_numbers`
        self._pool: list[int] | None = None  # the list of available, idle clients
        self._pooled: set[int] = set()

    def begin(self, round: int) -> None:
        """Start a round of availability."""
        self.round = round
        if not self.always:
            self._are_available = self._pool = None
            self._pooled = set()

    def add(self, clients: Sequence[int], *, are_available: bool = True) -> None:
        """Append clients that may have become idle to the list, if there is one.

        Args:
            clients: the clients.
            are_available: True if they are known to be available.
        """
        if self._pool is None:
            return
        if not (are_available or self.always or len(clients) == 0):
            clients = list(compress(clients, self.available(np.array(clients)).tolist()))
        for client in clients:
            if client not in self._pooled and self._pace.idle(client):
                self._pool.append(client)
                self._pooled.add(client)

    def selectable(self, clients: np.ndarray) -> np.ndarray:
        """Return whether clients are available and idle, bool ``[n]``."""
        return self.available(clients) & np.array([self._pace.idle(client) for client in clients.tolist()], dtype=bool)

    def available(self, clients: np.ndarray) -> np.ndarray:
        """Return whether clients, idle or not, are available, bool ``[n]``."""
        return self.availability.available(clients, self.round)

    def choose(self, count: int, but: Iterable[int] = ()) -> list[int]:
        """Return `count` available, idle clients, ascending, except those in `but`; fewer if there are no more."""
        num_clients = self.availability.num_clients
        chosen = dict.fromkeys(but)
        count += len(chosen)
        if self._pool is None and num_clients > _SMALL and 4 * count <= num_clients:
            self._search(chosen, count)
        if len(chosen) < count:
            self._draw(chosen, count)
        return sorted(chosen.keys() - but) if but else sorted(chosen)

    def next_candidates(self) -> list[int]:
        """Return the clients that `choose` tries next, as far as their random numbers have been drawn."""
        if self._pool is not None or not (index := self._used % _BLOCK):
            return []
        return [int(number * self.availability.num_clients) for number in self._numbers[index:]]

    def _search(self, chosen: dict[int, None], count: int) -> None:
        """Draw from all N clients until `count` are chosen; stop after N / 4 draws."""
        num_clients, idle = self.availability.num_clients, self._pace.idle
        for _ in range(num_clients // 4):
            client = int(self._number() * num_clients)
            if (self.always or self._is_available()) and idle(client):
                chosen[client] = None
                if len(chosen) == count:
                    return

    def _draw(self, chosen: dict[int, None], count: int) -> None:
        """Draw from the list of available, idle clients until `count` are chosen."""
        if self._pool is None:
            clients = np.arange(self.availability.num_clients)
            selectable = np.ones(len(clients), dtype=bool) if self.always else self.available(clients)
            selectable[np.array([*self._pace.busy(), *chosen], dtype=np.int64)] = False
            self._pool = np.flatnonzero(selectable).tolist()
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
            if idle(client):  # the list may contain clients that received a task without being drawn
                chosen[client] = None

    def _number(self) -> float:
        """Return the next uniform random number. Numbers are drawn in blocks."""
        index = self._used % _BLOCK
        if index == 0 or not self._numbers:
            indices = np.arange(self._used - index, self._used - index + _BLOCK)
            self._numbers, self._are_available = uniform(fold(self._key, indices)).tolist(), None
        self._used += 1
        return self._numbers[index]

    def _is_available(self) -> bool:
        """Return True if the client of the last random number is available. Availability is looked up in blocks."""
        flags = self._are_available
        if flags is None:
            clients = (np.array(self._numbers) * self.availability.num_clients).astype(np.int64)
            flags = self._are_available = self.available(clients).tolist()
        return flags[(self._used - 1) % _BLOCK]

    def state(self) -> dict[str, np.ndarray]:
        """Return the state as int64 arrays."""
        listed = self._pool is not None
        return {"used": np.array([self.round, self._used, listed]), "pool": np.array(self._pool or [], dtype=np.int64)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restore a state that `state` returned."""
        self.round, self._used, listed = state["used"].tolist()
        self._numbers, self._are_available = [], None
        self._pool = state["pool"].tolist() if listed else None
        self._pooled = set(self._pool or ())
