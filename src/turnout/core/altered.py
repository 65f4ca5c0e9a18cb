"""Copies of messages and records with other values in some fields."""

from __future__ import annotations

from typing import Any, TypeVar

Record = TypeVar("Record")


def altered(record: Record, **changes: Any) -> Record:
    """A copy with some fields changed: `dataclasses.replace` for records that check nothing, at a tenth of its time.

    A round makes ten such copies, and of a small model's round that would be a tenth.
    """
    name = type(record).__name__
    if hasattr(record, "__post_init__"):
        raise TypeError(f"{name} checks its fields: use dataclasses.replace")
    if unknown := changes.keys() - record.__dict__.keys():
        raise TypeError(f"{name} has no field {min(unknown)!r}")
    copy = object.__new__(type(record))
    copy.__dict__.update(record.__dict__, **changes)
    return copy
