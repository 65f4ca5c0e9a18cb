"""``turnout clients``: list, name, ban and remove the clients of a server, and manage its one-time codes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from turnout.cli.command import argument, command, options
from turnout.core.checks import ConfigurationError, counted
from turnout.core.display import printable
from turnout_serve.cli.administrator import AdministratorOptions
from turnout_serve.wire.words import WORDS

if TYPE_CHECKING:
    from turnout_serve.client.administrator import Administrator
    from turnout_serve.wire.edge import Body

_FORMS = "name K NAME, ban K REASON, unban K, remove K, codes, codes add N, codes withdraw CODE, codes withdraw all"

_MOST = 10_000_000  # clients of a server

_OPTIONAL = ("code", "certificate")

Request = tuple["type[Body]", str, str, dict[str, Any] | None]
"""Form of the answer to a request of an administrator, and its method, path and body."""


@options
class ClientsOptions(AdministratorOptions):
    """Options of ``turnout clients``."""

    action: list[str] | None = argument(
        "Action: name K NAME, ban K REASON, unban K, remove K, codes, codes add N, codes withdraw CODE|all (default: list "
        "all clients).", "[ACTION]", None,
    )  # fmt: skip


@command(ClientsOptions, computes=False)
def clients(options: ClientsOptions) -> None:
    """List, name, ban or remove the clients of a running server, and manage one-time codes.

    A banned client receives the reason and loses its task. The token of a removed client becomes invalid; the client may
    enroll again as a new one.

    Examples:
        turnout clients runs/served
        turnout clients runs/served name 3 'Ward 4'
        turnout clients runs/served ban 3 'sends noise'
        turnout clients runs/served unban 3
        turnout clients runs/served remove 3
        turnout clients https://federation.example --token admin.token codes add 5
        turnout clients runs/served codes withdraw all
    """
    request = request_of(options.action or [])
    codes = codes_in(Path(options.run))
    options.ask(
        lambda administrator: _list(administrator) if request is None else administrator.ask(*request),
        lambda answer: shown(answer, codes),
    )


def request_of(words: Sequence[str]) -> Request | None:
    """Parse the action of a command line to a request; None is the list of clients.

    Raises:
        ConfigurationError: if an action is unknown.
    """
    from turnout_serve.wire import admin_bodies as bodies
    from turnout_serve.wire.administrator import MOST_CODES

    match list(words):
        case []:
            return None
        case ["name" | "ban" as change, client, text]:
            return bodies.Changed, "POST", f"/v1/admin/clients/{_number(client)}", {"change": change, "text": text}
        case ["unban" | "remove" as change, client]:
            return bodies.Changed, "POST", f"/v1/admin/clients/{_number(client)}", {"change": change}
        case ["codes"]:
            return bodies.Codes, "GET", "/v1/admin/codes", None
        case ["codes", "add", number] if 1 <= (codes := _number(number)) <= MOST_CODES:
            return bodies.NewCodes, "POST", "/v1/admin/codes/add", {"number": codes}
        case ["codes", "add", number]:
            raise ConfigurationError(f"codes add: got {number}, needed 1 to {MOST_CODES} at a time")
        case ["codes", "withdraw", code]:
            return bodies.Codes, "POST", "/v1/admin/codes/withdraw", {} if code == "all" else {"code": code}
        case ["ban", _]:
            raise ConfigurationError("ban: a ban needs a reason, which the client is told: ban K REASON")
    raise ConfigurationError(f"got {' '.join(words)!r}, needed one of: {_FORMS}")


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise ConfigurationError(f"got {text!r}, needed a whole number, as in: {_FORMS}")
    return int(text)


def _list(administrator: Administrator) -> dict[str, Any]:
    """Fetch the list of all clients, page by page."""
    from turnout_serve.wire.admin_bodies import Clients

    rows, page = list[dict[str, Any]](), dict[str, Any]()
    while page.get("next", 0) is not None:
        page = administrator.ask(Clients, "GET", f"/v1/admin/clients?first={len(rows)}")
        if [row["client"] for row in page["clients"]] != list(range(len(rows), len(rows) + len(page["clients"]))):
            raise ConfigurationError("what answers is no turnout server: its list of clients has gaps")
        rows += page["clients"]
        if page["next"] is not None and (page["next"] != len(rows) or not page["clients"] or len(rows) > _MOST):
            raise ConfigurationError("what answers is no turnout server: its list of clients never ends")
    return {**page, "clients": rows}


def codes_in(folder: Path) -> list[str]:
    """Return the one-time codes that a server wrote into its folder when it began; none for an address."""
    from turnout.record.contents import open_regular
    from turnout_serve.wire.administrator import CODES_FILE

    if not (folder / CODES_FILE).is_file():
        return []
    with open_regular(folder / CODES_FILE) as file:
        return file.read(1 << 16).decode(errors="replace").split()


def shown(answer: dict[str, Any], codes: Sequence[str] = ()) -> Table | Text:
    """Format a response of the server.

    Args:
        answer: the response.
        codes: one-time codes that are known here; the server knows only hashes of them.
    """
    if "clients" in answer:
        return _table(answer["clients"], answer["version"], codes)
    if isinstance(drawn := answer.get("codes"), list):
        return Text("\n".join(printable(code, 100) for code in drawn))
    if "withdrawn" in answer:
        return Text(f"{counted(answer['withdrawn'], 'code')} withdrawn; {answer['unused']} unused")
    if "unused" in answer:
        hashes, known = set(answer.get("free", ())), _by_hash(codes)
        free = [code for digest, code in known.items() if digest in hashes]
        others = answer["unused"] - len(free)
        lines = [f"codes: {answer['unused']} unused, {answer['used']} used", *free]
        if codes and others:
            lines.append(f"and {others} others, which `codes add` printed when it drew them")
        return Text("\n".join(lines))
    return Text(f"client {answer['client']}: {printable(WORDS.get(answer['state'], answer['state']), 20)}")


def _by_hash(codes: Sequence[str]) -> dict[str, str]:
    """Return codes that can be printed by their SHA-256, by which the server knows them."""
    return {hashlib.sha256(code.encode()).hexdigest(): printable(code, 100) for code in codes}


def _table(rows: Sequence[dict[str, Any]], steps: int, codes: Sequence[str]) -> Table:
    """Return the list of clients as a table, whose columns of codes and certificates are left out where there are none."""
    known = _by_hash(codes)
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "client": lambda row: str(row["client"]),
        "name": lambda row: row["name"],
        "code": lambda row: known.get(row["code"], f"SHA-256 {row['code'][:8]}...") if row.get("code") else "",
        "certificate": lambda row: row.get("certificate") or "",
        "state": _state,
        "seen": lambda row: "" if row["seen"] is None else f"{_duration(row['seen'])} ago",
        "reports": lambda row: f"{row['reports']:,}",
        "share of steps": lambda row: f"{row['participation']:.1%}",
        "dropped": lambda row: f"{row.get('dropped', 0):,}",
        "unusable": lambda row: f"{row.get('unusable', 0):,}",
        "refused": lambda row: f"{row.get('refused', 0):,}" + (f": {row['refusal']}" if row.get("refusal") else ""),
    }
    cells = {title: [printable(cell(row), 100) for row in rows] for title, cell in columns.items()}
    shown = {title: column for title, column in cells.items() if title not in _OPTIONAL or any(column)}
    table = Table(*shown, title=f"{counted(len(rows), 'client')}, {counted(steps, 'step')}", title_justify="left")
    for row in zip(*shown.values(), strict=True):
        table.add_row(*row)
    return table


def _state(row: dict[str, Any]) -> str:
    """Return the state of a client in plain words, with the reason of a ban."""
    banned = row["reason"] is not None and row["state"] != "removed"
    return f"banned: {row['reason']}" if banned else WORDS.get(row["state"], row["state"])


def _duration(seconds: float) -> str:
    """Format a duration in its largest unit.

    >>> _duration(7.2), _duration(600.0), _duration(90_000.0)
    ('7 s', '10 min', '25 h')
    """
    for least, size, unit in ((172_800, 86_400, "d"), (7_200, 3_600, "h"), (120, 60, "min")):
        if seconds >= least:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
