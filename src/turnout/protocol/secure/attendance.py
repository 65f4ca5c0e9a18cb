"""Track the clients of a secure sum by phase, and decide whether enough are left: the protocol without its secrets."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from turnout.core.random import generator
from turnout.protocol.secure import graph
from turnout.protocol.secure.disputes import disputed
from turnout.protocol.secure.masking import Masking


def threshold_of(share: float, degree: int) -> int:
    """Return t, the number of k neighbors whose shares reconstruct a secret: ``ceil(share k)``, more than half of k."""
    return max(degree // 2 + 1, math.ceil(share * degree - 1e-9))


class Attendance:
    """Track the clients of one secure sum.

    Call `share`, `mask` and `open` in this order, each with the clients that completed the last phase. Each returns the
    clients to ask next; none if too few are left to remove the masks. That is the case exactly if `SecureServer` and
    `SecureClient` would end the round with `TooFewClients`.

    Args:
        masking: options of the sum. If more clients than it has room for share their secrets, that many are drawn.
            Otherwise the sum would overflow unnoticed, because the server sees no summand.
        seed: seed of the graph, with the version of the round.

    Attributes:
        neighbors: neighbors of each client.
        threshold: t, the number of neighbors whose shares reconstruct a secret.
        shared: clients that completed the phase ``"share"``.
        masked: clients that completed the phase ``"mask"``, except those at fault.
        refused: clients whose shares a client could not read, by client; set it before `open`.
        unreadable: those of them whose shares cannot be read, by evidence; set it before `open`.
        opens: True if the masks can be removed; known after `opened`.
    """

    def __init__(self, masking: Masking, seed: Sequence[int]) -> None:
        self._masking, self.seed = masking, seed
        self.neighbors: dict[int, tuple[int, ...]] = {}
        self.threshold = 0
        self.shared: list[int] = []
        self.masked: list[int] = []
        self.refused: dict[int, list[int]] = {}
        self.unreadable: set[int] = set()
        self.opens = False

    def share(self, clients: Sequence[int]) -> list[int]:
        """Build the graph of the clients that trained."""
        clients = sorted(clients)
        if len(clients) > (room := self._masking.code.capacity):
            drawn = generator("clients of a sum", *self.seed).choice(clients, room, replace=False)
            clients = sorted(drawn.tolist())
        if len(clients) < self._masking.min_clients:
            return []
        self.neighbors = graph.neighbors(clients, self._masking.degree, self.seed)
        self.threshold = threshold_of(self._masking.threshold, len(self.neighbors[clients[0]]))
        return clients

    def mask(self, clients: Sequence[int]) -> list[int]:
        """Continue with the clients that shared their secrets."""
        self.shared = sorted(clients)
        return self._asked(self.shared)

    def open(self, clients: Sequence[int]) -> list[int]:
        """Continue with the clients that sent a masked update, except those at fault."""
        self.masked = sorted(set(clients) - disputed(self.refused, self.unreadable))
        return self._asked(self.masked)

    def _asked(self, clients: list[int]) -> list[int]:
        """Return the clients that are left; none if they are too few."""
        enough = len(clients) >= self._masking.min_clients and self._enough(clients, clients)
        return clients if enough else []

    def cheats(self) -> list[int]:
        """Return the clients that dealt shares which cannot be read, or refuse shares which can."""
        return sorted(disputed(self.refused, self.unreadable))

    def opened(self, clients: Sequence[int]) -> None:
        """Record the clients that helped to remove the masks: t neighbors of each client whose masks are in the sum."""
        # A client that shared but sent no masked update leaves pairwise masks in the sum if a neighbor in the sum holds its
        # shares.
        left = set(self.shared) - set(self.masked)
        masked_in = [*self.masked, *(client for client in left if self._holders(client, self.masked))]
        self.opens = bool(self.masked) and self._enough(masked_in, clients)

    def _holders(self, client: int, helpers: Collection[int]) -> list[int]:
        """Return the helpers that hold shares of a client: its neighbors, except those that refused its shares."""
        return [c for c in set(helpers).intersection(self.neighbors[client]) if client not in self.refused.get(c, ())]

    def _enough(self, clients: Sequence[int], helpers: Sequence[int]) -> bool:
        """Return True if t of the helpers hold shares of each of these clients."""
        return all(len(self._holders(client, helpers)) >= self.threshold for client in clients)

    def ask(self, phase: str, clients: Sequence[int]) -> list[int]:
        """Return the clients to ask for a phase, among those that completed the phase before."""
        return {"share": self.share, "mask": self.mask, "open": self.open}[phase](clients)

    def gathered(self, phase: str, clients: Sequence[int]) -> None:
        """Record the clients that completed a phase."""
        if phase == "open":
            self.opened(clients)

    def used(self) -> list[int]:
        """Return the clients whose updates are in the sum; none if it cannot be opened."""
        return self.masked if self.opens else []

    def state(self) -> dict[str, np.ndarray]:
        """Return the state as arrays."""
        lists = {"dealt": sorted(self.neighbors), "shared": self.shared, "masked": self.masked}
        arrays = {name: np.array(clients, dtype=np.int64) for name, clients in lists.items()}
        pairs = [(client, other) for client, others in self.refused.items() for other in others]
        arrays["refused"] = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        arrays["unreadable"] = np.array(sorted(self.unreadable), dtype=np.int64)
        return arrays | {"opens": np.array(self.opens)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restore what `state` returned."""
        if len(state["dealt"]):
            self.share(state["dealt"].tolist())
        self.shared, self.masked = state["shared"].tolist(), state["masked"].tolist()
        for client, other in state.get("refused", np.zeros((0, 2))).tolist():
            self.refused.setdefault(client, []).append(other)
        self.unreadable = set(state.get("unreadable", np.zeros(0)).tolist())
        self.opens = bool(state["opens"])
