"""Read untrusted JSON strictly: within limits, and with fields of declared types.

Servers and clients read every message of the other side with these functions before any other code sees it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from turnout.core.checks import TurnoutError, check_plain, wrong_field
from turnout.record.contents import Finite

Read = TypeVar("Read")

_DIGITS = 20  # of a whole number, with its sign


class Malformed(TurnoutError, ValueError):
    """A message that breaks a rule of the protocol; the text says which."""


def read_json(body: bytes | bytearray | memoryview, depth: int = 4) -> Any:
    """Parse a JSON document.

    Args:
        body: UTF-8 text.
        depth: maximum levels of nesting.

    Raises:
        Malformed: if there are other encodings, duplicate keys, lone surrogates, NaN, infinities, numbers of more than
            20 digits, or documents that are nested deeper.
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
    try:
        check_plain(value, depth)
    except ValueError as error:
        raise Malformed(f"the body {error}") from None
    return value


def read_object(body: bytes | bytearray) -> dict[str, Any]:
    """Parse a JSON object; an empty body is an empty object.

    Raises:
        Malformed: if the value is any other, and see `read_json`.
    """
    value = read_json(body) if body else {}
    if not isinstance(value, dict):
        raise Malformed("the body is no JSON object")
    return value


def read(validate: Callable[[Any], Read], value: Any) -> Read:
    """Validate parsed JSON against a declared type.

    Args:
        validate: method of pydantic, such as `TypeAdapter.validate_python`.
        value: plain values.

    Raises:
        Malformed: if not, with the first field that is missing or wrong, and its value.
    """
    try:
        return validate(value)
    except ValidationError as error:
        raise Malformed(wrong_field(error, "the body")) from None


def _as_whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("needed printable characters")
    return value


BIG = (1 << 53) - 1
"""Largest whole number of a message: JSON numbers are float64 in many languages."""
WHOLE = BeforeValidator(_as_whole)
"""Accepts 2.0 as a whole number, as JSON Schema does."""
Count = Annotated[int, Field(strict=True, ge=0, le=BIG), WHOLE]
"""A whole number of at least 0."""
Share = Annotated[Finite, Field(ge=0, le=1)]
"""A number from 0 to 1."""
Printable = Annotated[
    str, Field(max_length=100, json_schema_extra={"pattern": r"^( |[^\p{C}\p{Z}])*$"}), AfterValidator(_check_printable)
]
"""A text of printable characters, without control, invisible, bidirectional and surrogate characters."""
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""A SHA-256 in hexadecimal digits."""


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


class Body(BaseModel):
    """A JSON object."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def read(cls, fields: Any) -> Self:
        """Validate a parsed body.

        Raises:
            Malformed: if a field is missing or wrong.
            OtherProtocol: if the enrollment is by another version of the protocol (`turnout_serve.wire.bodies`).
        """
        return read(cls.model_validate, fields)
