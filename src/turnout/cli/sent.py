"""``turnout join --inspect``: what a client has sent, as its log says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from rich.table import Table

from turnout.cli.output import show
from turnout.core.checks import ConfigurationError
from turnout.core.display import printable
from turnout.deployment.client.sent import SentLog, read_log
from turnout.deployment.client.session import Call, Client
from turnout.deployment.client.worker import Computer

_COLUMNS = ("time", "what", "task", "phase", "version", "bytes", "norm", "examples", "holds", "protected by", "again")


def checked(url: str | None, data: str | None, log: Path | None) -> tuple[str, str]:
    """Return the address and the data that a client needs to join.

    Raises:
        ConfigurationError: where one is missing, or the log's file is a form of messages.
    """
    if url is None:
        raise ConfigurationError("join: needed the URL of a server, https://HOST:PORT; or --inspect FILE to show a log")
    if data is None:
        raise ConfigurationError(
            "join: needed the data of this client, --data FILE.py:FUNCTION or the name of a data set"
        )
    if log is not None and str(log) in ("text", "json"):
        raise ConfigurationError(f"--log takes a file, got {log}: for the form of messages write --log-format {log}")
    return url, data


@contextmanager
def logged(path: Path | None, computer: Computer, url: str) -> Iterator[Callable[[Call, Client], None]]:
    """Yield what logs a request to a file before it is sent; without a file, what does nothing."""
    if path is None:
        yield lambda *_: None
        return
    with closing(SentLog(path, computer, url)) as log:
        yield log.write


def inspected(path: Path, url: str | None, data: str | None, log: Path | None) -> None:
    """Show a row for each line of a log, and the bytes by what they were for.

    Raises:
        ConfigurationError: for a file that is no log, and options of a client that joins.
    """
    if url is not None or data is not None or log is not None:
        raise ConfigurationError("--inspect shows a file and joins no server: leave out URL, --data and --log")
    lines = read_log(path)
    table = Table(*_COLUMNS)
    number, size = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for line in lines:
        table.add_row(*_row(line))
        name = printable(line["what"], 30), printable(line.get("phase", ""), 30)
        number[name] += 1
        size[name] += line["bytes"]
    sums = Table("what", "phase", "sent", "bytes")
    for name in number:
        sums.add_row(*name, f"{number[name]:,}", f"{size[name]:,}")
    sums.add_row("in all", "", f"{number.total():,}", f"{size.total():,}")
    show(table)
    show(sums)


def _row(line: Mapping[str, Any]) -> list[str]:
    """Return the cells of a line, of a file that anybody may have changed."""
    norm = line.get("norm")
    cells = {
        **{name: line.get(name) for name in _COLUMNS},
        "norm": f"{norm:.4g}" if isinstance(norm, float) else norm,
        "bytes": f"{line['bytes']:,}",
        "holds": _holds(line),
        "protected by": ", ".join(
            [*_names(line, "guards"), *(name for name in ("masked", "noised") if line.get(name))]
        ),
        "again": "again" if line.get("again") else "",
    }
    return [printable("" if cells[name] is None else cells[name], 200) for name in _COLUMNS]


def _holds(line: Mapping[str, Any]) -> str:
    """Return what is in a message, in words."""
    if line.get("reason") or line.get("question"):
        return str(line.get("reason") or line["question"])
    if line["what"] == "enrolment":
        return ", ".join([str(line["name"])] * bool(line.get("name")) + ["a code"] * bool(line.get("code")))
    return ", ".join([*_names(line, "tensors"), *_names(line, "scalars")])


def _names(line: Mapping[str, Any], name: str) -> list[str]:
    found = line.get(name)
    return [str(value) for value in found] if isinstance(found, list) else []
