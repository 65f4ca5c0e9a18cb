"""Format objects as short texts and small HTML tables, for consoles and notebooks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from html import escape
from typing import Any

_STYLE = {
    "table": "border-collapse:collapse;text-align:left",
    "caption": "caption-side:top;text-align:left;font-weight:600;padding:2px 0",
    "th": "text-align:left;font-weight:400;opacity:.75;padding:2px 16px 2px 0;vertical-align:top",
    "td": "text-align:left;padding:2px 0",
}
"""Styles without colors, so that a table is legible in light and dark notebooks."""

_MOST = 80
"""Maximum number of characters of an option's value."""


def short(thing: Any) -> str:
    """Return the expression of a piece, with the options that differ from its defaults.

    Example:
        >>> from turnout.pieces.weighting import Participation
        >>> short(Participation(cutoff=10))
        'Participation(cutoff=10)'
        >>> short((Participation(), 3))
        '(Participation(), 3)'
    """
    if isinstance(thing, tuple | list):
        return _cut("({})".format(", ".join(short(part) for part in thing)))
    if isinstance(thing, type) or not dataclasses.is_dataclass(thing):
        return _cut(getattr(thing, "__name__", None) or repr(thing))
    changed = [
        f"{field.name}={short(value)}"
        for field in dataclasses.fields(thing)
        if field.init and not _is_default(field, value := getattr(thing, field.name))
    ]
    return f"{type(thing).__name__}({', '.join(changed)})"


def html_table(caption: str, rows: Mapping[str, str]) -> str:
    """Return a table of names and values with a caption; both are escaped."""
    lines = "".join(
        f'<tr><th scope="row" style="{_STYLE["th"]}">{escape(name)}</th><td style="{_STYLE["td"]}">{escape(text)}</td></tr>'
        for name, text in rows.items()
    )
    head = f'<caption style="{_STYLE["caption"]}">{escape(caption)}</caption>'
    return f'<table style="{_STYLE["table"]}">{head}<tbody>{lines}</tbody></table>'


def markdown_cell(text: object) -> str:
    r"""Return text as it is shown in a cell of a Markdown table: no HTML, no further cell, and on one line.

    Example:
        >>> print(markdown_cell("a|b <script>"))
        a\|b &lt;script&gt;
    """
    return escape(" ".join(str(text).split()), quote=False).replace("|", r"\|")


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    """Return True if an option has its default; values that cannot be compared count as changed."""
    default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    try:
        return value is default or bool(type(value) is type(default) and value == default)
    except (TypeError, ValueError, RuntimeError):
        return False


def _cut(text: str) -> str:
    """Truncate a long text."""
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."


def printable(text: object, most: int = 2000) -> str:
    """Return text from an untrusted source for a terminal: without control characters but line breaks, and truncated."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in str(text)[:most])
