"""``turnout clients``: what an administrator wants of a server, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from turnout.core.checks import ConfigurationError
from turnout.core.display import printable
from turnout.deployment.wire.administrator import MOST_CODES

if TYPE_CHECKING:
    from turnout.deployment.client.administrator import Administrator

Request = tuple[str, str, dict[str, Any] | None]
"""Method, path and body of a request of an administrator."""

_FORMS = "name K NAME, ban K REASON, unban K, remove K, codes, codes add N, codes withdraw CODE, codes withdraw all"


def wanted(words: Sequence[str]) -> Request | None:
    """Return what an administrator wants of a server; None is the list of its clients.

    Raises:
        ConfigurationError: for words that mean nothing.
    """
    match list(words):
        case []:
            return None
        case ["name" | "ban" as change, client, text]:
            return "POST", f"/v1/admin/clients/{_number(client)}", {"change": change, "text": text}
        case ["unban" | "remove" as change, client]:
            return "POST", f"/v1/admin/clients/{_number(client)}", {"change": change}
        case ["codes"]:
            return "GET", "/v1/admin/codes", None
        case ["codes", "add", number] if 1 <= (codes := _number(number)) <= MOST_CODES:
            return "POST", "/v1/admin/codes/add", {"number": codes}
        case ["codes", "add", number]:
            raise ConfigurationError(f"codes add: got {number}, needed 1 to {MOST_CODES} at a time")
        case ["codes", "withdraw", code]:
            return "POST", "/v1/admin/codes/withdraw", {} if code == "all" else {"code": code}
        case ["ban", _]:
            raise ConfigurationError("ban: a ban needs a reason, which the client is told: ban K REASON")
    raise ConfigurationError(f"got {' '.join(words)!r}, needed one of: {_FORMS}")


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise ConfigurationError(f"got {text!r}, needed a whole number, as in: {_FORMS}")
    return int(text)


def listed(administrator: Administrator) -> dict[str, Any]:
    """Return the list of all clients, page by page."""
    found: dict[str, Any] = {"clients": [], "next": 0}
    while (first := found["next"]) is not None:
        page = administrator.ask("GET", f"/v1/admin/clients?first={int(first)}")
        found = {**page, "clients": [*found["clients"], *page["clients"]]}
        if found["next"] is not None and found["next"] <= first:
            raise ConfigurationError("what answers is no turnout server: its list of clients never ends")
    return found


def said(answer: dict[str, Any]) -> Table | Text:
    """Return what a server has answered, for people."""
    if "clients" in answer:
        return _table(answer["clients"], answer["version"])
    if isinstance(codes := answer.get("codes"), list):
        return Text("\n".join(printable(code, 100) for code in codes))
    if "withdrawn" in answer:
        return Text(f"{answer['withdrawn']} codes were withdrawn; {answer['unused']} are unused")
    if "unused" in answer:
        return Text(f"codes: {answer['unused']} unused, {answer['used']} used")
    return Text(f"client {answer['client']}: {printable(answer['state'], 20)}")


def _table(rows: Sequence[dict[str, Any]], steps: int) -> Table:
    """Return the list of clients as a table."""
    title = f"{len(rows)} clients, {steps} steps"
    table = Table("client", "name", "state", "seen", "reports", "steps with it", title=title, title_justify="left")

    def show(value: object) -> str:
        return printable(value, 100)

    for row in rows:
        state = row["state"] if row["reason"] is None or row["state"] == "removed" else f"banned: {row['reason']}"
        seen = "" if row["seen"] is None else f"{_duration(row['seen'])} ago"
        table.add_row(
            str(row["client"]),
            show(row["name"]),
            show(state),
            seen,
            f"{row['reports']:,}",
            f"{row['participation']:.1%}",
        )
    return table


def _duration(seconds: float) -> str:
    """Return a duration in its largest whole unit.

    >>> _duration(7.2), _duration(600.0), _duration(90_000.0)
    ('7 s', '10 min', '25 h')
    """
    for size, unit in ((172_800, "d"), (7_200, "h"), (120, "min")):
        if seconds >= size:
            return f"{seconds / {'d': 86_400, 'h': 3_600, 'min': 60}[unit]:.0f} {unit}"
    return f"{seconds:.0f} s"
