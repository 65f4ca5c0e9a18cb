"""Who is in a secure sum, phase by phase, and whether enough are left: the protocol without its secrets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from turnout.secure import graph


def threshold_of(share: float, degree: int) -> int:
    """Return t, how many of k neighbours it takes to give a secret of a client: ``ceil(share k)``, at least 1."""
    return max(1, math.ceil(share * degree - 1e-9))


class Attendance:
    """Follow one secure sum: ask `share`, `mask` and `open` in this order, each of those who got through the phase before.

    Each returns whom to ask next, which is nobody once too few are left to take the masks off. It says so exactly where
    `SecureServer` and `SecureClient` would end the round by `TooFewClients`.

    Args:
        threshold: t as a share of a client's neighbours, in (0, 1].
        degree: k; None joins all to all.
        min_clients: fewest clients of a sum.
        seed: of the graph; with the version of the round.

    Attributes:
        neighbours: of each client.
        threshold: t.
        shared, masked: who got through these phases.
        opens: whether the masks can be taken off, once `opened` was called.
    """

    def __init__(self, threshold: float, degree: int | None, min_clients: int, seed: Sequence[int]) -> None:
        self._share, self._degree, self._least, self._seed = threshold, degree, min_clients, seed
        self.neighbours: dict[int, tuple[int, ...]] = {}
        self.threshold = 0
        self.shared: list[int] = []
        self.masked: list[int] = []
        self.opens = False

    def share(self, clients: Sequence[int]) -> list[int]:
        """Deal the graph to those who trained."""
        clients = sorted(clients)
        if len(clients) < self._least:
            return []
        self.neighbours = graph.neighbours(clients, self._degree, self._seed)
        self.threshold = threshold_of(self._share, len(self.neighbours[clients[0]]))
        return clients

    def mask(self, clients: Sequence[int]) -> list[int]:
        """Go on with those who shared their secrets."""
        self.shared = sorted(clients)
        return self.shared if len(clients) >= self._least and self._enough(self.shared, self.shared) else []

    def open(self, clients: Sequence[int]) -> list[int]:
        """Go on with those who sent a masked update."""
        self.masked = sorted(clients)
        return self.masked if len(clients) >= self._least and self._enough(self.masked, self.masked) else []

    def opened(self, clients: Sequence[int]) -> None:
        """Note who helped to take the masks off: of whoever is masked into the sum, t neighbours are needed."""
        gone = set(self.shared) - set(self.masked)
        there = set(self.masked)
        into = [*self.masked, *(client for client in gone if there.intersection(self.neighbours[client]))]
        self.opens = bool(self.masked) and self._enough(into, clients)

    def _enough(self, whose: Sequence[int], helpers: Sequence[int]) -> bool:
        """Whether each of these clients has t neighbours among the helpers."""
        there = set(helpers)
        return all(len(there.intersection(self.neighbours[client])) >= self.threshold for client in whose)

    def state(self) -> dict[str, np.ndarray]:
        """Return who got through which phase, as arrays."""
        lists = {"dealt": sorted(self.neighbours), "shared": self.shared, "masked": self.masked}
        found = {name: np.array(clients, dtype=np.int64) for name, clients in lists.items()}
        return found | {"opens": np.array(self.opens)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take over what `state` gave."""
        if len(state["dealt"]):
            self.share(state["dealt"].tolist())
        self.shared, self.masked = state["shared"].tolist(), state["masked"].tolist()
        self.opens = bool(state["opens"])
