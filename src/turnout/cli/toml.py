"""Settings written as TOML, which the standard library only reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any


def toml(table: Mapping[str, Any]) -> str:
    """Write settings as a TOML file; None, which TOML lacks, as ``"none"``, which settings read as such.

    >>> print(toml({"rounds": 3, "data": {"name": "digits", "alpha": None}}), end="")
    rounds = 3
    <BLANKLINE>
    [data]
    name = "digits"
    alpha = "none"
    """
    return "\n".join(_lines(table, "")).lstrip("\n") + "\n"


def _lines(table: Mapping[str, Any], heading: str) -> list[str]:
    """Return the lines of a table: its values first, since what follows a heading belongs to that table."""
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = ["", f"[{heading}]"] if heading and (plain or not table) else []
    lines += [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += _lines(value, f"{heading}.{_key(key)}" if heading else _key(key))
    return lines


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def _value(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return _text(str(value))


def _text(text: str) -> str:
    """Return a basic string: JSON's but for DEL, which TOML has escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
