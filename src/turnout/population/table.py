"""Tables that describe clients: CSV or Parquet files, read with every cell checked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from turnout.core.checks import ConfigurationError, DataError


def check_path(path: str, what: str) -> None:
    """Refuse a path that is neither .csv nor .parquet."""
    if Path(path).suffix not in (".csv", ".parquet"):
        raise ConfigurationError(f"{what} {path}: needed a file that ends in .csv or .parquet")


def read_table(path: str, what: str, needed: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, list[Any]]:
    """The cells of a file by column, None where one is empty.

    Raises:
        ConfigurationError: for another kind of file.
        DataError: for a file that is missing, unreadable, empty, lacks a column, or has one that is not known.
    """
    check_path(path, what)
    file = Path(path)
    if not file.is_file():
        raise DataError(f"{what} {path}: no such file")
    try:
        table = csv.read_csv(file) if file.suffix == ".csv" else parquet.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{what} {path}: cannot be read: {error}") from error
    names = table.column_names
    wrong = [name for name in names if name not in (*needed, *optional)]
    if wrong or any(name not in names for name in needed):
        also = f", and perhaps {list(optional)}" if optional else ""
        raise DataError(f"{what} {path}: got columns {names}, needed {list(needed)}{also}")
    if not table.num_rows:
        raise DataError(f"{what} {path}: it has no rows")
    columns = table.to_pydict()
    # The empty text of a CSV file is a missing value as well.
    return {name: [None if cell == "" else cell for cell in cells] for name, cells in columns.items()}


def numbers(cells: list[Any], column: str, what: str, *, whole: bool = False) -> np.ndarray:
    """Cells as finite numbers >= 0: float64, or int64 where they must be whole.

    Raises:
        DataError: naming the first cell that is none.
    """
    for row, cell in enumerate(cells, 1):
        good = isinstance(cell, int | float) and not isinstance(cell, bool) and math.isfinite(cell) and cell >= 0
        if not good or (whole and cell != int(cell)):
            kind = "a whole number >= 0" if whole else "a finite number >= 0"
            raise DataError(f"{what}, row {row}: got {cell!r} as {column!r}, needed {kind}")
    return np.array(cells, dtype=np.int64 if whole else np.float64)
