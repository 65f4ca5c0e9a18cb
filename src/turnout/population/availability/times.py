"""Read times of recorded availability: numbers, dates or ISO 8601 texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from typing import Any

import numpy as np
import pyarrow as pa

from turnout.core.checks import DataError, read_number, shown
from turnout.population.table import Column, as_whole, cells, numbers, plain_texts

UNIX = 100_000_000
"""Seconds from which times are dates: three years after the beginning of 1970, or of a recording."""


def moments(column: Column, name: str, what: str, *, up: bool = False) -> np.ndarray:
    """Return a column of times as whole numbers, int64: dates and ISO 8601 texts as seconds since 1970, in UTC, and durations
    as seconds.

    Args:
        column: the cells.
        name: name of the column.
        what: name of the table in errors.
        up: round fractions of a second up, as at the end of a visit; False rounds down.

    Raises:
        DataError: if a cell is neither a whole number >= 0 nor a date, or only some dates have a time zone.
    """
    column = plain_texts(column)
    if isinstance(column, pa.ChunkedArray):
        is_stamp = pa.types.is_timestamp(column.type)
        if (is_stamp or pa.types.is_duration(column.type)) and not column.null_count:
            kind = pa.timestamp("us", column.type.tz) if is_stamp else pa.duration("us")
            stamps = column.cast(kind, safe=False).cast(pa.int64()).to_numpy()
            seconds = -(-stamps // 1_000_000) if up else stamps // 1_000_000
            return seconds if (seconds >= 0).all() else numbers(seconds.tolist(), name, what, whole=True)
        if not (pa.types.is_string(column.type) or pa.types.is_temporal(column.type)):
            return numbers(column, name, what, whole=True)
        if pa.types.is_string(column.type) and (fast := as_whole(column)) is not None:
            return numbers(fast, name, what, whole=True)
    values = cells(column)
    dates = [_date(value) for value in values]
    if len({when.tzinfo is None for when in dates if when is not None}) > 1:
        bare = next(i for i, when in enumerate(dates) if when is not None and when.tzinfo is None)
        raise DataError(
            f"{what}, row {bare + 1}: {shown(values[bare])} as {name!r} has no time zone, and others have one: write it as "
            "in 2020-02-01T20:00:00+01:00"
        )
    rounded = math.ceil if up else math.floor
    in_zone = [when.replace(tzinfo=when.tzinfo or UTC) if when is not None else None for when in dates]
    plain = [value if when is None else rounded(when.timestamp()) for value, when in zip(values, in_zone, strict=True)]
    return numbers(plain, name, what, whole=True)


def spell_dates(values: np.ndarray) -> bool:
    """Return whether all whole numbers are written like dates of the years 1900 to 2099: 20240131 or 20240131180000.

    >>> spell_dates(np.array([20240131, 20240201])), spell_dates(np.array([20240131, 20240132]))
    (True, False)
    """
    are_dates = np.ones(len(values), dtype=bool)
    while values.min() >= 10**9:  # hours, minutes, seconds
        values, part = np.divmod(values, 100)
        are_dates &= part < 60
    years, months, days = values // 10_000, values // 100 % 100, values % 100
    are_dates &= (years >= 1900) & (years < 2100) & (months >= 1) & (months <= 12) & (days >= 1) & (days <= 31)
    return bool(are_dates.all())


def has_zone(column: Column) -> bool | None:
    """Return whether the first cell of a column of times has a time zone; None if it is no date."""
    column = plain_texts(column[:1])
    if isinstance(column, pa.ChunkedArray) and pa.types.is_timestamp(column.type):
        return column.type.tz is not None
    when = _date(cells(column)[0])
    return None if when is None else when.tzinfo is not None


def _date(value: Any) -> datetime | None:
    """Return the date that a cell is or spells; None for others."""
    if isinstance(value, datetime):
        return value if value == value else None  # pandas' NaT is unequal to itself
    if isinstance(value, date):
        return datetime.combine(value, time())
    if isinstance(value, np.datetime64) and not np.isnat(value):
        return value.astype("datetime64[us]").item()
    if isinstance(value, str) and read_number(value) is None:
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            return None
    return None


def in_words(second: int) -> str:
    """Return a number of seconds since 1970 as a date, for messages."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M UTC")


def are_plain(rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether all cells are numbers or texts, which settings can hold."""
    return all(type(cell) in (int, float, str) for row in rows for cell in row)
