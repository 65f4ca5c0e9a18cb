"""Keep names, bans and removals of clients, as the journal has them."""

from __future__ import annotations

from typing import Any

from turnout.deployment.server.store import Entry

REASONS = {"ban": "banned", "remove": "removed"}
"""Why a client loses its task, by the kind of the entry that ends it."""


class Roster:
    """Names, bans and removals of clients, and when each was last in the journal.

    Attributes:
        names: what each client is called; ``""`` where nobody gave it a name.
        bans: why clients may take part no more; those that were removed are among them.
        removed: clients whose token means nothing any more.
        seen: when each was last in the journal, in seconds since 1970.
    """

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.bans: dict[int, str] = {}
        self.removed: set[int] = set()
        self.seen: dict[int, float] = {}

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
        """Return all of it as plain values."""
        return {
            "names": {str(client): name for client, name in self.names.items() if name},
            "bans": {str(client): reason for client, reason in self.bans.items()},
            "removed": sorted(self.removed),
            "seen": {str(client): round(wall, 3) for client, wall in self.seen.items()},
        }

    def restore(self, facts: dict[str, Any]) -> None:
        """Take over what `facts` returned."""
        self.names = {int(client): name for client, name in facts["names"].items()}
        self.bans = {int(client): reason for client, reason in facts.get("bans", {}).items()}
        self.removed = set(facts.get("removed", ()))
        self.seen = {int(client): wall for client, wall in facts.get("seen", {}).items()}
