"""Strict readers for what strangers send: JSON, texts and numbers within limits.

A server, and a client, read every message of the other side with these functions before anything else looks at it.
"""

from __future__ import annotations

import json
import math
from typing import Any

from turnout.core.checks import TurnoutError

_DIGITS = 20  # of the longest whole number, with its sign


class Malformed(TurnoutError, ValueError):
    """A message that breaks the rules of the protocol; the text says which."""


def read_json(body: bytes | bytearray | memoryview, depth: int = 4) -> Any:
    """Parse a JSON document.

    Args:
        body: UTF-8 text.
        depth: levels of nesting that it may have.

    Raises:
        Malformed: for other encodings, duplicate keys, lone surrogates, NaN, infinities, numbers of more than 20 digits, and
            documents that are nested deeper.
    """
    try:
        value = json.loads(
            bytes(body).decode(),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
        )
    except Malformed:
        raise
    except (ValueError, RecursionError):
        raise Malformed("the body is no JSON") from None
    _check(value, depth)
    return value


def read_object(body: bytes | bytearray) -> dict[str, Any]:
    """Parse a JSON object; an empty body is an empty object.

    Raises:
        Malformed: where it is something else, or as `read_json` says.
    """
    value = read_json(body) if body else {}
    if not isinstance(value, dict):
        raise Malformed("the body is no JSON object")
    return value


def text(fields: dict[str, Any], name: str, longest: int = 100) -> str | None:
    """Return a field that is printable text, or None where it is absent or null.

    Raises:
        Malformed: for another type, more than `longest` characters, and characters that are not printable: controls, terminal
            escapes, invisible and bidirectional marks, surrogates.
    """
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise Malformed(f"{name} is a text of at most {longest} printable characters")
    return value


def whole(fields: dict[str, Any], name: str, least: int, most: int, default: int) -> int:
    """Return a field that is a whole number, or `default` where it is absent. As in JSON Schema, 2.0 is one.

    Raises:
        Malformed: for another type, or a number out of range.
    """
    value = fields.get(name, default)
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Malformed(f"{name} is a whole number from {least} to {most}")
    return value


def number(fields: dict[str, Any], name: str, least: float, most: float, default: float) -> float:
    """Return a field that is a number, or `default` where it is absent.

    Raises:
        Malformed: for another type, or a number out of range.
    """
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise Malformed(f"{name} is a number from {least:g} to {most:g}")
    return float(value)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise Malformed("the body gives a key twice")
    return fields


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise Malformed(f"the body holds a number of {len(digits)} digits, needed at most {_DIGITS}")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise Malformed("the body holds a number that is too large")
    return value


def _constant(name: str) -> Any:
    raise Malformed(f"the body holds {name}, which is no JSON")


def _check(value: Any, depth: int) -> None:
    """Refuse documents that are nested deeper, and texts that no UTF-8 can hold."""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise Malformed("the body holds half of a surrogate pair")
    elif isinstance(value, dict | list):
        if depth == 0:
            raise Malformed("the body is nested too deeply")
        for inner in (*value, *value.values()) if isinstance(value, dict) else value:
            _check(inner, depth - 1)
