"""Show a log of the requests of a client: ``turnout join --inspect``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from turnout.cli.console import show
from turnout.core.display import printable
from turnout_serve.client.sent import read_log

_COLUMNS = ("time", "what", "task", "phase", "version", "bytes", "norm", "examples", "holds", "protected by", "again")


def inspect(path: Path) -> None:
    """Show a row for each line of a log, and the total bytes by purpose.

    Raises:
        ConfigurationError: if a file is not a log.
    """
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
    sums.add_row("total", "", f"{number.total():,}", f"{size.total():,}")
    show(table)
    show(sums)


def _row(line: Mapping[str, Any]) -> list[str]:
    """Return the cells of a line, which may have any content."""
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
    """Describe the content of a message."""
    if line.get("reason") or line.get("question"):
        return str(line.get("reason") or line["question"])
    if line["what"] == "enrollment":
        named = [str(line.get("name"))] * bool(line.get("name")) + ["a code"] * bool(line.get("code"))
        shape = line["data"] if isinstance(line.get("data"), dict) else {}
        return ", ".join([*named, *(f"{name} {value}" for name, value in shape.items())])
    return ", ".join([*_names(line, "tensors"), *_names(line, "scalars")])


def _names(line: Mapping[str, Any], name: str) -> list[str]:
    values = line.get(name)
    return [str(value) for value in values] if isinstance(values, list) else []
