"""Keep who is enrolled, who is there, and what clients are called, as the journal has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from turnout.deployment.server.store import Entry

REASONS = {"ban": "banned", "remove": "removed"}
"""Reasons for which a client loses its task, by the kind of the entry that ends it."""


class Roster:
    """The clients of a run: a table that entries change.

    Attributes:
        num_clients: how many have enrolled.
        names: what each client is called; ``""`` where nobody gave it a name.
        bans: why clients may take part no more; those that were removed are among them.
        removed: clients whose token means nothing any more.
        seen: when each was last in the journal, in seconds since 1970.
    """

    def __init__(self) -> None:
        self.num_clients = 0
        self.names: dict[int, str] = {}
        self.bans: dict[int, str] = {}
        self.removed: set[int] = set()
        self.seen: dict[int, float] = {}
        self._there = np.zeros(1024, dtype=bool)

    def enrol(self, name: str = "") -> None:
        """Add a client, which has the next number and is not there yet."""
        self.names[self.num_clients] = name
        self.num_clients += 1
        if self.num_clients > len(self._there):
            self._there = np.concatenate([self._there, np.zeros_like(self._there)])

    def set(self, client: int, is_there: bool) -> None:
        """Note that a client came or went."""
        self._there[client] = is_there

    def is_there(self, client: int) -> bool:
        """Return whether a client is there."""
        return bool(self._there[client])

    def there(self) -> np.ndarray:
        """Return who is there, ascending."""
        return np.flatnonzero(self._there[: self.num_clients])

    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Return which of these clients are there now."""
        del round
        return self._there[clients]

    def change(self, client: int, kind: str, text: str) -> None:
        """Name, ban, admit again or remove a client; one that was removed stays so.

        Args:
            client: its number.
            kind: ``"name"``, ``"ban"``, ``"unban"`` or ``"remove"``.
            text: the name, or the reason of a ban.
        """
        if client in self.removed:
            return
        match kind:
            case "name":
                self.names[client] = text
            case "ban":
                self.bans[client] = text
            case "unban":
                self.bans.pop(client, None)
            case "remove":
                self.removed.add(client)
                self.names[client], self.bans[client] = "", "removed"

    def note(self, entry: Entry) -> None:
        """Note when a client was last heard of; what others do about it does not count."""
        if entry.client is not None and entry.kind in ("enrol", "join", "report", "fail"):
            self.seen[entry.client] = entry.wall

    def facts(self) -> dict[str, Any]:
        """Return all of it but who is there, as plain values."""
        return {
            "num_clients": self.num_clients,
            "names": {str(client): name for client, name in self.names.items() if name},
            "bans": {str(client): reason for client, reason in self.bans.items()},
            "removed": sorted(self.removed),
            "seen": {str(client): round(wall, 3) for client, wall in self.seen.items()},
        }

    def restore(self, facts: dict[str, Any]) -> None:
        """Take over what `facts` returned."""
        for _ in range(facts["num_clients"]):
            self.enrol()
        self.names |= {int(client): name for client, name in facts["names"].items()}
        self.bans = {int(client): reason for client, reason in facts.get("bans", {}).items()}
        self.removed = set(facts.get("removed", ()))
        self.seen = {int(client): wall for client, wall in facts.get("seen", {}).items()}
