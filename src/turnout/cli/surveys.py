"""``turnout evaluate`` and ``turnout query``: ask the clients of a server, wait, and show what they say."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from turnout.core.display import printable

if TYPE_CHECKING:
    from turnout.deployment.client.administrator import Administrator

_MOST = 20  # numbers of a figure that are shown


def outcome(administrator: Administrator, body: Mapping[str, Any], pause: float = 0.2) -> dict[str, Any]:
    """Begin an evaluation or query, wait for its end, and return what came of it.

    Args:
        administrator: of the server.
        body: what is asked.
        pause: seconds between two looks.

    Raises:
        AdministrationFailed: where the server does not answer, or refuses.
    """
    number = int(administrator.ask("POST", "/v1/admin/surveys", body)["survey"])
    while (found := administrator.ask("GET", f"/v1/admin/surveys/{number}"))["state"] == "open":
        time.sleep(pause)
    return found


def shown(found: Mapping[str, Any]) -> Group:
    """Return what came of an evaluation or query, for people."""
    lost = ", ".join(f"{number} {printable(reason, 40)}" for reason, number in found["lost"].items())
    said = f"{found['answered']} of {found['asked']} clients have answered" + (f"; others: {lost}" if lost else "")
    table = Table("figure", "value", title=f"version {found['version']}", title_justify="left")
    for name, value in found.get("figures", {}).items():
        for key, inner in value.items() if isinstance(value, dict) else [("", value)]:
            table.add_row(printable(f"{name} {key}".strip().replace("_", " "), 100), _number(inner))
    return Group(table, Text(said)) if table.rows else Group(Text(said))


def _number(value: Any) -> str:
    """Return a figure as text: the first of many numbers."""
    if not isinstance(value, list):
        return f"{value:.6g}" if isinstance(value, float) else printable(value, 100)
    rest = f", ... ({len(value)})" if len(value) > _MOST else ""
    return ", ".join(_number(each) for each in value[:_MOST]) + rest
