"""Tables that describe clients: CSV or Parquet files, read with every cell checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from turnout.core.checks import ConfigurationError, DataError, is_finite, shown
from turnout.data.reading import read_table_file

ENDINGS = (".csv", ".parquet")
"""Of the names of files."""

LARGEST = 2**62
"""Whole numbers are less than this, so that they and sums of two fit into 64 bits."""


def check_path(path: str, what: str) -> None:
    """Refuse a path that is neither .csv nor .parquet."""
    if Path(path).suffix not in ENDINGS:
        raise ConfigurationError(f"{what} {path}: needed a file that ends in .csv or .parquet")


def load(path: str, what: str, needed: tuple[str, ...], optional: tuple[str, ...] | None = ()) -> pa.Table:
    """Read a file; `optional` names further columns that it may have, None allows any.

    Raises:
        ConfigurationError: for another kind of file.
        DataError: for a file that is missing, unreadable, lacks a column, or has one that is not known.
    """
    check_path(path, what)
    table = read_table_file(Path(path), what, ENDINGS)
    names = table.column_names
    if not set(needed) <= set(names) or (optional is not None and not set(names) <= {*needed, *optional}):
        also = f", and perhaps {list(optional)}" if optional else ""
        raise DataError(f"{what} {path}: got columns {names}, needed {list(needed)}{also}")
    return table


def read_table(
    path: str, what: str, needed: tuple[str, ...], optional: tuple[str, ...] | None = ()
) -> dict[str, list[Any]]:
    """Return the cells of a file by column, None where one is empty.

    Raises:
        ConfigurationError, DataError: as `load`, and for a file without rows.
    """
    table = load(path, what, needed, optional)
    if not table.num_rows:
        raise DataError(f"{what} {path}: it has no rows")
    return {name: _cells(table.column(name)) for name in table.column_names}


def _cells(column: pa.ChunkedArray) -> list[Any]:
    """Cells as Python has them; the empty text of a CSV file is a missing value as well."""
    return [None if cell == "" else cell for cell in column.to_pylist()]


def numbers(cells: Sequence[Any], column: str, what: str, *, whole: bool = False) -> np.ndarray:
    """Return cells as finite numbers >= 0: float64, or int64 where they must be whole.

    Raises:
        DataError: naming the first cell that is none.
    """
    kind = "a whole number >= 0 and < 2**62" if whole else "a finite number >= 0"
    for row, cell in enumerate(cells, 1):
        if not is_finite(cell) or cell < 0 or (whole and not (cell == int(cell) < LARGEST)):
            raise DataError(f"{what}, row {row}: got {shown(cell)} as {column!r}, needed {kind}")
    return np.array(cells, dtype=np.int64 if whole else np.float64)


def whole_numbers(column: pa.ChunkedArray, name: str, what: str) -> np.ndarray:
    """Return a column as int64, of whatever sign; whole numbers may be written as texts or with a point.

    Raises:
        DataError: naming the first cell that is no whole number.
    """
    if not column.null_count and pa.types.is_integer(column.type):
        return column.to_numpy().astype(np.int64)
    cells = _cells(column)
    for row, cell in enumerate(cells, 1):
        if not _is_whole(cell):
            raise DataError(f"{what}, row {row}: got {shown(cell)} as {name!r}, needed a whole number")
    return np.array([int(float(cell)) for cell in cells], dtype=np.int64)


def _is_whole(cell: Any) -> bool:
    try:
        number = float(cell)
    except (TypeError, ValueError, OverflowError):
        return False
    return number.is_integer() and abs(number) < LARGEST
