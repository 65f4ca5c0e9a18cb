"""The clients of a run as its journal has them: enrolled, present, named, banned, removed."""

from __future__ import annotations

from typing import Any

import numpy as np

from turnout_serve.server.journal.entries import Entry
from turnout_serve.wire.administrator import CHANGES

REASONS = {"ban": "banned", "remove": "removed"}
"""Outcomes of the tasks of a client that an administrator bans or removes, by the kind of the entry."""

_BY_CLIENTS = ("enrol", "join", "report", "fail")  # kinds of entries that clients cause themselves


class Roster:
    """Table of the clients of a run.

    Attributes:
        num_clients: number of clients that ever enrolled.
        names: name of each client; ``""`` without one.
        bans: reasons for which clients are excluded; removed clients are among them.
        removed: clients whose token is void.
        seen: time of each client's last event, in seconds since 1970.
        refused: number of each client's reports that were refused, and the reason of the last one.
    """

    def __init__(self) -> None:
        self.num_clients = 0
        self.names: dict[int, str] = {}
        self.bans: dict[int, str] = {}
        self.removed: set[int] = set()
        self.seen: dict[int, float] = {}
        self.refused: dict[int, tuple[int, str]] = {}
        self._present = np.zeros(1024, dtype=bool)

    def enroll(self, name: str = "") -> None:
        """Add a client, absent at first, under the next number."""
        self.names[self.num_clients] = name
        self.num_clients += 1
        if self.num_clients > len(self._present):
            self._present = np.concatenate([self._present, np.zeros_like(self._present)])

    def named(self, client: int) -> dict[str, Any]:
        """Return the number and the name of a client, for the log."""
        name = self.names.get(client, "")
        return {"client": client} | ({"client_name": name} if name else {})

    def set_presence(self, client: int, present: bool) -> None:
        """Make a client present or absent."""
        self._present[client] = present

    def is_present(self, client: int) -> bool:
        """Return whether a client is present."""
        return bool(self._present[client])

    def present(self) -> np.ndarray:
        """Return the numbers of the clients that are present, ascending."""
        return np.flatnonzero(self._present[: self.num_clients])

    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Return which of these clients are present, at any round: a network has no rounds of availability."""
        return self._present[clients]

    def apply(self, entry: Entry) -> bool:
        """Apply an entry to the table; return True if a client joins or leaves by it."""
        if entry.client is not None and entry.kind in _BY_CLIENTS:
            self.seen[entry.client] = entry.wall
        if entry.kind == "fail" and entry.client is not None and (reason := entry.data.get("refused")) is not None:
            self.refused[entry.client] = self.refused.get(entry.client, (0, ""))[0] + 1, str(reason)
        match entry.kind:
            case "enrol":
                self.enroll(str(entry.data.get("name") or ""))
            case "join":
                if entry.sender in self.bans:
                    return False
                self.set_presence(entry.sender, True)
                return True
            case "leave":
                self.set_presence(entry.sender, False)
                return True
            case kind if kind in CHANGES:
                self._change(entry.sender, kind, entry.data.get("text", ""))
                if kind in REASONS:
                    self.set_presence(entry.sender, False)
                    return True
        return False

    def _change(self, client: int, kind: str, text: str) -> None:
        """Name, ban, unban or remove a client; nothing changes a removed one."""
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

    def facts(self) -> dict[str, Any]:
        """Return the table without presence, as plain values."""
        return {
            "num_clients": self.num_clients,
            "names": {str(client): name for client, name in self.names.items() if name},
            "bans": {str(client): reason for client, reason in self.bans.items()},
            "removed": sorted(self.removed),
            "refused": {str(client): list(refused) for client, refused in self.refused.items()},
            "seen": {str(client): round(wall, 3) for client, wall in self.seen.items()},
        }

    def restore(self, facts: dict[str, Any]) -> None:
        """Restore what `facts` returned."""
        for _ in range(facts["num_clients"]):
            self.enroll()
        self.names |= {int(client): name for client, name in facts["names"].items()}
        self.bans = {int(client): reason for client, reason in facts.get("bans", {}).items()}
        self.removed = set(facts.get("removed", ()))
        refused = facts.get("refused", {})
        self.refused = {int(client): (number, reason) for client, (number, reason) in refused.items()}
        self.seen = {int(client): wall for client, wall in facts.get("seen", {}).items()}
