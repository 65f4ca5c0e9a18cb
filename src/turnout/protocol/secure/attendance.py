"""Who is in a secure sum, phase by phase, and whether enough are left: the protocol without its secrets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from turnout.protocol.secure import graph


def threshold_of(share: float, degree: int) -> int:
    """Return t, how many of k neighbours it takes to give a secret of a client: ``ceil(share k)``, more than half of k."""
    return max(degree // 2 + 1, math.ceil(share * degree - 1e-9))


def disputed(refused: Mapping[int, Collection[int]]) -> set[int]:
    """Return whom to leave out so that nobody who is left refuses the shares of another one.

    Whoever is in most disputes goes first, because a client cannot read the shares of one that cheats, and neither can that
    client's other neighbours. Where two are in equally many, either may have cheated, and both go.

    Args:
        refused: by client, those whose shares it could not read.
    """
    pairs, excluded = _pairs(refused), set[int]()
    while pairs:
        counts = Counter(client for pair in pairs for client in pair)
        most = max(counts.values())
        worst = {client for client, number in counts.items() if number == most}
        excluded |= worst
        pairs = {pair for pair in pairs if not pair & worst}
    return excluded


def _pairs(refused: Mapping[int, Collection[int]]) -> set[frozenset[int]]:
    """Return the pairs of clients of whom one refuses the shares of the other."""
    return {frozenset((client, other)) for client, others in refused.items() for other in others}


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
        shared, masked: who got through these phases; who is left out because of a dispute is not among those who masked.
        refused: by client, whose shares it could not read; to be set before `open`.
        opens: whether the masks can be taken off, once `opened` was called.
    """

    def __init__(self, threshold: float, degree: int | None, min_clients: int, seed: Sequence[int]) -> None:
        self._share, self._degree, self._least, self.seed = threshold, degree, min_clients, seed
        self.neighbours: dict[int, tuple[int, ...]] = {}
        self.threshold = 0
        self.shared: list[int] = []
        self.masked: list[int] = []
        self.refused: dict[int, list[int]] = {}
        self.opens = False

    def share(self, clients: Sequence[int]) -> list[int]:
        """Deal the graph to those who trained."""
        clients = sorted(clients)
        if len(clients) < self._least:
            return []
        self.neighbours = graph.neighbours(clients, self._degree, self.seed)
        self.threshold = threshold_of(self._share, len(self.neighbours[clients[0]]))
        return clients

    def mask(self, clients: Sequence[int]) -> list[int]:
        """Go on with those who shared their secrets."""
        self.shared = sorted(clients)
        return self.shared if len(clients) >= self._least and self._enough(self.shared, self.shared) else []

    def open(self, clients: Sequence[int]) -> list[int]:
        """Go on with those who sent a masked update, but for those who are left out because of a dispute."""
        self.masked = sorted(set(clients) - disputed(self.refused))
        return self.masked if len(self.masked) >= self._least and self._enough(self.masked, self.masked) else []

    def cheats(self) -> list[int]:
        """Return who disputes with so many neighbours that fewer than t are left."""
        number = Counter(client for pair in _pairs(self.refused) for client in pair)
        return sorted(c for c, disputes in number.items() if len(self.neighbours[c]) - disputes < self.threshold)

    def opened(self, clients: Sequence[int]) -> None:
        """Note who helped to take the masks off: of whoever is masked into the sum, t neighbours are needed."""
        gone = set(self.shared) - set(self.masked)
        into = [*self.masked, *(client for client in gone if self._holders(client, self.masked))]
        self.opens = bool(self.masked) and self._enough(into, clients)

    def _holders(self, client: int, helpers: Collection[int]) -> list[int]:
        """Return which of the helpers hold shares of a client: its neighbours, but for those who refused them."""
        return [c for c in set(helpers).intersection(self.neighbours[client]) if client not in self.refused.get(c, ())]

    def _enough(self, whose: Sequence[int], helpers: Sequence[int]) -> bool:
        """Whether each of these clients has t neighbours who hold its shares among the helpers."""
        return all(len(self._holders(client, helpers)) >= self.threshold for client in whose)

    def ask(self, phase: str, clients: Sequence[int]) -> list[int]:
        """Return whom to ask for a phase, of the clients who completed the phase before."""
        return {"share": self.share, "mask": self.mask, "open": self.open}[phase](clients)

    def gathered(self, phase: str, clients: Sequence[int]) -> None:
        """Note who completed a phase."""
        if phase == "open":
            self.opened(clients)

    def used(self) -> list[int]:
        """Return the clients whose updates are in the sum; nobody where it cannot be opened."""
        return self.masked if self.opens else []

    def state(self) -> dict[str, np.ndarray]:
        """Return who got through which phase, as arrays."""
        lists = {"dealt": sorted(self.neighbours), "shared": self.shared, "masked": self.masked}
        arrays = {name: np.array(clients, dtype=np.int64) for name, clients in lists.items()}
        pairs = [(client, other) for client, others in self.refused.items() for other in others]
        arrays["refused"] = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return arrays | {"opens": np.array(self.opens)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take over what `state` gave."""
        if len(state["dealt"]):
            self.share(state["dealt"].tolist())
        self.shared, self.masked = state["shared"].tolist(), state["masked"].tolist()
        for client, other in state.get("refused", np.zeros((0, 2))).tolist():
            self.refused.setdefault(client, []).append(other)
        self.opens = bool(state["opens"])
