"""``turnout status``: what a server is at."""

from __future__ import annotations

from typing import Any


def rows_of(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a person looks at."""
    rows = [
        ("run", f"{figures['run']}: {figures['algorithm']}, {figures['pace']}, {figures['state']}"),
        ("steps", f"{figures['version']} of {figures['rounds']}"),
        ("clients", f"{figures['enrolled']} enrolled, {figures['there']} there, {figures['at_work']} at work"),
    ]
    rows += [(f"dropped: {reason}", str(number)) for reason, number in figures["dropped"].items()]
    rows += [(f"in no secure sum: client {client}", why) for client, why in figures.get("barred", {}).items()]
    rows += [(name.replace("_", " "), f"{points[-1][1]}") for name, points in figures["curves"].items() if points]
    return rows if figures["healthy"] else [*rows, ("journal", "cannot be written")]
