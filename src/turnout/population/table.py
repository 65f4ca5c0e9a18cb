"""Read tables that describe clients, from CSV or Parquet files or rows, and check every cell."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turnout.core.checks import ConfigurationError, DataError, is_finite, read_number, shown
from turnout.data.reading import check_zones, read_table_file

ENDINGS = (".csv", ".parquet")
"""File name extensions."""

LARGEST = 2**62
"""The upper bound of whole numbers, so that the sum of two fits into 64 bits."""

Rows = tuple[tuple[Any, ...], ...]
Column = Any  # of pyarrow, which has no types
"""A ``ChunkedArray`` of a file, or a sequence."""


def check_path(path: str, what: str) -> None:
    """Raise an error for a path that is neither .csv nor .parquet."""
    if Path(path).suffix not in ENDINGS:
        raise ConfigurationError(f"{what} {path}: needed a file that ends in .csv or .parquet")


def as_table(table: object, what: str, form: str, lengths: tuple[int, ...]) -> str | Rows:
    """Return an option that is a path or rows as text or tuples; cells are not checked.

    Args:
        table: the option.
        what: the name of the table in messages.
        form: description of a row, ``"(client, from, to)"``.
        lengths: allowed numbers of cells of a row.

    Raises:
        ConfigurationError: if a value is neither a path to .csv or .parquet nor a sequence.
        DataError: if a row is not a sequence of such a length.
    """
    if isinstance(table, str | os.PathLike):
        check_path(os.fspath(table), what)
        return os.fspath(table)
    if not isinstance(table, Sequence):
        raise ConfigurationError(f"{what}: got {table!r}, needed a path or rows ({form}, ...)")
    for number, row in enumerate(table, 1):
        if not isinstance(row, Sequence) or isinstance(row, str) or len(row) not in lengths:
            raise DataError(f"{what}, row {number}: got {shown(row)}, needed {form}")
    return tuple(map(tuple, table))


def read_table(
    path: str,
    what: str,
    needed: tuple[str, ...],
    optional: tuple[str, ...] | None = (),
    texts: tuple[str, ...] = (),
) -> dict[str, pa.ChunkedArray]:
    """Read the columns of a file; `optional` names further columns that it may have, None allows any.

    Args:
        path: the file.
        what: name of the table in errors.
        needed: names of the columns that it must have.
        optional: names of the columns that it may have besides.
        texts: columns of a CSV file that are texts even if they look like numbers or dates.

    Raises:
        ConfigurationError: if the file is of another kind.
        DataError: if a file is missing, unreadable or without rows, or columns are missing or unknown.
    """
    check_path(path, what)
    table = read_table_file(Path(path), what, ENDINGS, texts)
    names = table.column_names
    if not set(needed) <= set(names) or (optional is not None and not set(names) <= {*needed, *optional}):
        also = f", and perhaps {list(optional)}" if optional else ""
        raise DataError(f"{what} {path}: got columns {names}, needed {list(needed)}{also}")
    if not table.num_rows:
        raise DataError(f"{what} {path}: it has no rows")
    return {name: table.column(name) for name in names}


def columns_of(table: Any, what: str) -> dict[str, pa.ChunkedArray]:
    """Return the columns of a data frame, an Arrow table or a mapping of columns.

    Raises:
        DataError: if it is no table, or only some dates of a column have a time zone.
    """
    check_zones(table)
    try:
        is_frame = hasattr(table, "iloc")  # of pandas, whose index is no column
        whole = pa.Table.from_pandas(table, preserve_index=False) if is_frame else pa.table(table)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{what}: the table cannot be read: {error}") from error
    return {name: whole.column(name) for name in whole.column_names}


def cells(column: Column) -> list[Any]:
    """Return cells as Python objects; an empty text, as in CSV files, is a missing value."""
    values = column.to_pylist() if isinstance(column, pa.ChunkedArray) else column
    return [None if cell == "" else cell for cell in values]


def numbers(column: Column, name: str, what: str, *, whole: bool = False) -> np.ndarray:
    """Convert a column to finite numbers >= 0: float64, or int64 with `whole`; texts are parsed.

    Raises:
        DataError: if a cell is not such a number, with its row.
    """
    kind = np.int64 if whole else np.float64
    if isinstance(column, pa.ChunkedArray) and _is_counted(column):
        return column.to_numpy().astype(kind)
    texts = cells(column)
    values: list[Any] = [read_number(cell) if isinstance(cell, str) else cell for cell in texts]
    for row, value in enumerate(values):
        if not (is_finite(value) and value >= 0 and (not whole or value == int(value) < LARGEST)):
            needed = "a whole number >= 0 and < 2**62" if whole else "a finite number >= 0"
            raise DataError(f"{what}, row {row + 1}: got {shown(texts[row])} as {name!r}, needed {needed}")
    return np.array(values, dtype=kind)


def _is_counted(column: pa.ChunkedArray) -> bool:
    """Return whether a column holds integers in 0 to `LARGEST`, without Python objects for its cells."""
    if not pa.types.is_integer(column.type) or column.null_count:
        return False
    limits = pc.call_function("min_max", [column]).as_py()
    return limits["min"] >= 0 and limits["max"] < LARGEST
