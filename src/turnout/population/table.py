"""Read tables that describe clients by number or name, from CSV or Parquet files or rows, and check every cell."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turnout.core.checks import ConfigurationError, DataError, is_finite, read_number, shown
from turnout.data.reading import check_zones, read_table_file
from turnout.data.values import canonical

LOG = logging.getLogger(__name__)

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


def clients(column: Column, what: str) -> np.ndarray:
    """Return a column of clients: numbers, int64, or names, texts in one form of Unicode.

    Texts are numbers if all of them are written as Python writes whole numbers; 007 is a name.

    Raises:
        DataError: if a client is missing, or numbers stand beside names.
    """
    column = plain_texts(column)
    if isinstance(column, pa.ChunkedArray) and not pa.types.is_string(column.type):
        return numbers(column, "client", what, whole=True)
    if (fast := as_whole(column)) is not None and fast.cast(pa.string()).equals(column):
        return numbers(fast, "client", what, whole=True)
    values = cells(column)
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values) or all(_is_whole(text) for text in texts):
        if texts and (named := next((text for text in texts if not _is_whole(text)), None)) is not None:
            row = values.index(named) + 1
            raise DataError(
                f"{what}, row {row}: got {shown(named)} as 'client', needed a whole number >= 0 and < 2**62: other rows have "
                "numbers, or none; write names or numbers in all"
            )
        return numbers(values, "client", what, whole=True)
    return np.array([canonical(text) for text in texts], dtype=str)


def _is_whole(text: str) -> bool:
    """Return whether a text is written as Python writes a whole number."""
    return text.isascii() and text.isdecimal() and (text == "0" or text[0] != "0")


def plain_texts(column: Column) -> Column:
    """Return a column with texts of any of Arrow's types as strings."""
    kinds = (pa.types.is_large_string, pa.types.is_string_view, pa.types.is_dictionary)
    is_text = isinstance(column, pa.ChunkedArray) and any(is_kind(column.type) for is_kind in kinds)
    return column.cast(pa.string()) if is_text else column


def as_whole(column: Column) -> pa.ChunkedArray | None:
    """Return a column of texts as int64, without Python objects for its cells; None if some are not whole numbers."""
    try:
        return pc.cast(column, pa.int64()) if isinstance(column, pa.ChunkedArray) else None
    except pa.ArrowInvalid:
        return None


def numbered(client: np.ndarray, names: Sequence[str] | None, what: str) -> np.ndarray | None:
    """Return the number of the client that each row names, -1 for names that do not train; None if rows have numbers.

    Args:
        client: the clients of the rows, from `clients`.
        names: names of the clients of the data; None where they have none.
        what: name of the table in errors.

    Raises:
        DataError: if none of the names is a client of the data, with names of both.
    """
    if client.dtype.kind != "U" and not _are_names(client, names or (), what):
        return None
    client, known = client.astype(str), {canonical(name): number for number, name in enumerate(names or ())}
    number = np.array([known.get(name, -1) for name in client.tolist()])
    if (number < 0).all():
        there, here = _listed(np.unique(client).tolist()), "numbers only" if names is None else _listed(names)
        raise DataError(
            f"{what}: it names the clients {there}, and those of the data are {here}: write the same names, or numbers from "
            "0 on"
        )
    if (number < 0).any():
        others = np.unique(client[number < 0]).tolist()
        LOG.warning("%s: %d of its names are not clients that train, such as %r: their rows are left out",
                    what, len(others), others[0])  # fmt: skip
    return number


def _are_names(client: np.ndarray, names: Sequence[str], what: str) -> bool:
    """Return whether numbers are names of clients, which data call by whole numbers other than 0, 1, ....

    They are if all of them are names, or if some are and not all can be numbers from 0 on.
    """
    there, here = set(np.unique(client).astype(str).tolist()), set(names)
    if list(names) == list(map(str, range(len(names)))) or here.isdisjoint(there):
        return False
    if not there <= here:
        return bool(client.max() >= len(names))
    if client.max() < len(names):
        LOG.warning("%s: its numbers, such as %d, are read as names of the data's clients, not as their numbers from 0 on",
                    what, client[0])  # fmt: skip
    return True


def by_number(client: np.ndarray, what: str) -> np.ndarray:
    """Return numbers of clients unchanged.

    Raises:
        DataError: if clients are named, which only data with these names can number.
    """
    if client.dtype.kind == "U":
        raise DataError(
            f"{what}: it names the clients {_listed(np.unique(client).tolist())}, which data with these names number: "
            "split the data by natural client, or write numbers from 0 on"
        )
    return client


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
