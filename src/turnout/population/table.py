"""Tables that describe clients: CSV or Parquet files, or rows, read with every cell checked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turnout.core.checks import ConfigurationError, DataError, is_finite, shown
from turnout.data.reading import read_table_file

ENDINGS = (".csv", ".parquet")
"""Of the names of files."""

LARGEST = 2**62
"""Whole numbers are less than this, so that they and sums of two fit into 64 bits."""

Rows = tuple[tuple[Any, ...], ...]
Column = Any  # of pyarrow, which has no types
"""Cells of a file, a ``ChunkedArray``, or a sequence of Python's own."""


def check_path(path: str, what: str) -> None:
    """Refuse a path that is neither .csv nor .parquet."""
    if Path(path).suffix not in ENDINGS:
        raise ConfigurationError(f"{what} {path}: needed a file that ends in .csv or .parquet")


def as_table(table: object, what: str, form: str, lengths: tuple[int, ...]) -> str | Rows:
    """Return an option that is a path or rows as text or tuples; cells are not looked at.

    Args:
        table: the option.
        what: what messages call the table.
        form: a row in words, ``"(client, from, to)"``.
        lengths: how many cells a row may have.

    Raises:
        ConfigurationError: for what is neither a path to .csv or .parquet nor a sequence.
        DataError: for a row that is no sequence of such a length.
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
    path: str, what: str, needed: tuple[str, ...], optional: tuple[str, ...] | None = ()
) -> dict[str, pa.ChunkedArray]:
    """Return the columns of a file; `optional` names further ones that it may have, None allows any.

    Raises:
        ConfigurationError: for another kind of file.
        DataError: for a file that is missing, unreadable or without rows, lacks a column, or has one that is not known.
    """
    check_path(path, what)
    table = read_table_file(Path(path), what, ENDINGS)
    names = table.column_names
    if not set(needed) <= set(names) or (optional is not None and not set(names) <= {*needed, *optional}):
        also = f", and perhaps {list(optional)}" if optional else ""
        raise DataError(f"{what} {path}: got columns {names}, needed {list(needed)}{also}")
    if not table.num_rows:
        raise DataError(f"{what} {path}: it has no rows")
    return {name: table.column(name) for name in names}


def cells(column: Column) -> list[Any]:
    """Return cells as Python has them; the empty text of a CSV file is a missing value as well."""
    values = column.to_pylist() if isinstance(column, pa.ChunkedArray) else column
    return [None if cell == "" else cell for cell in values]


def numbers(column: Column, name: str, what: str, *, whole: bool = False) -> np.ndarray:
    """Return a column as finite numbers >= 0: float64, or int64 where they must be whole; texts may hold numbers.

    Raises:
        DataError: naming the first cell that is none.
    """
    if isinstance(column, pa.ChunkedArray) and pa.types.is_integer(column.type) and not column.null_count:
        limits = pc.call_function("min_max", [column]).as_py()
        if limits["min"] >= 0 and limits["max"] < LARGEST:  # without a Python object for each cell
            return column.to_numpy().astype(np.int64 if whole else np.float64)
    needed = "a whole number >= 0 and < 2**62" if whole else "a finite number >= 0"
    values = []
    for row, cell in enumerate(cells(column), 1):
        number = _number(cell)
        if not is_finite(number) or number < 0 or (whole and not (number == int(number) < LARGEST)):
            raise DataError(f"{what}, row {row}: got {shown(cell)} as {name!r}, needed {needed}")
        values.append(number)
    return np.array(values, dtype=np.int64 if whole else np.float64)


def _number(cell: Any) -> Any:
    """Return the number that a text holds; anything else as it is."""
    if isinstance(cell, str):
        for kind in (int, float):
            try:
                return kind(cell)
            except ValueError:
                continue
    return cell
