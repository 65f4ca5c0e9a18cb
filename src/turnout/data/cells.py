"""Read cells of tables: any kind of table as one of Arrow, its missing values, and its columns as numbers or texts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turnout.core.checks import ConfigurationError, DataError, known_name
from turnout.data.csv_tables import Codes
from turnout.data.reading import check_zones, checked_table, read_table_file

Missing = Literal["refuse", "drop", "fill"]

MISSING: tuple[Missing, ...] = ("refuse", "drop", "fill")
"""Treatments of missing values: raise an error, drop rows, or impute features."""


def without_missing(
    parts: Sequence[pa.Table], others: Sequence[str], inputs: Sequence[str], missing: Missing, transformed: bool
) -> list[pa.Table]:
    """Return the needed columns of tables; only those of inputs may have missing values, if these are imputed."""
    nullable = inputs if transformed or missing == "fill" else ()
    needed = list(dict.fromkeys([*others, *inputs]))
    return [_nulls_refused(part.select(needed), inputs, missing, nullable) for part in parts]


def _nulls_refused(part: pa.Table, inputs: Sequence[str], missing: Missing, nullable: Sequence[str]) -> pa.Table:
    """Return a table whose missing values are nulls, and only in columns that are `nullable`.

    Raises:
        DataError: if missing values are neither dropped nor imputed, or a table has no rows.
    """
    part = pa.table([with_nulls(part.column(name), name) for name in part.column_names], part.column_names)
    if missing == "drop":
        rows, part = len(part), part.drop_null()
        if rows and not len(part):
            raise DataError(
                f"every one of {rows} rows has a missing value: write missing='fill', or fewer features=(...)"
            )
    for name in part.column_names:
        column = part.column(name)
        if column.null_count and name not in nullable:
            raise DataError(
                f"column {name!r} has {column.null_count} missing values in {len(column)} rows, first in row "
                f"{pc.index(column.is_null(), True).as_py() + 1}: {_remedy(missing, name in inputs)}"
            )
    return part


def _remedy(missing: Missing, is_input: bool) -> str:
    """Return what to write in place of an option that does not treat the missing values of a column."""
    if missing == "fill":
        return "which cannot be filled in: write missing='drop' to leave these rows out"
    drop = "write missing='drop' to leave these rows out"
    if not is_input:
        return f"{drop}, or correct the table"
    return f"{drop}, missing='fill' to fill them in, or correct the table, or leave the column out by features=(...)"


def with_nulls(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return a column with nulls in place of blank texts and NaN, and one form of texts that Unicode declares equal.

    Raises:
        ConfigurationError: if values are lists or nested in another way, or intervals or periods of pandas.
    """
    kind = column.type
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_nested(values) or isinstance(values, pa.BaseExtensionType):  # intervals and periods of pandas
        instead = f"write frame[{name!r}].astype(str)" if not pa.types.is_nested(values) else "give each its column"
        raise ConfigurationError(f"column {name!r} holds {values}, needed numbers, texts or truth values: {instead}")
    if values != kind or pa.types.is_string_view(kind):
        kind = pa.string() if pa.types.is_string_view(values) else values
        column = column.cast(kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = pc.call_function("utf8_normalize", [column], pc.Utf8NormalizeOptions("NFC"))
        blank = pc.call_function(
            "equal", [pc.call_function("utf8_trim_whitespace", [column]), pa.scalar("", column.type)]
        )
        return pc.call_function("if_else", [blank, pa.scalar(None, column.type), column])
    if pa.types.is_floating(kind):
        column = column.cast(pa.float32()) if pa.types.is_float16(kind) else column
        return pc.call_function("if_else", [pc.call_function("is_nan", [column]), pa.scalar(None, column.type), column])
    return column


_DAY = 86_400_000_000  # microseconds

_ROW_NUMBERS = re.compile(r"__index_level_\d+__")
"""Names that Arrow gives to the index of a data frame."""

_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
"""Types of numeric columns; the last one is that of a column without any value."""


def texts(column: pa.ChunkedArray) -> list[str | None]:
    """Return cells as texts, None where they are missing: whole numbers as 1, booleans as true and false."""
    if pa.types.is_floating(column.type):
        whole = [
            None if cell is None else int(cell) if float(cell).is_integer() else cell for cell in column.to_pylist()
        ]
        return [None if cell is None else str(cell) for cell in whole]
    return column.cast(pa.string()).to_pylist()


def read_columns(table: Any, names: Sequence[str], codes: Codes | None = None) -> pa.Table:
    """Read columns of any kind of table, with nulls in place of blank texts and NaN; `codes` is that of `read_table`.

    Raises:
        ConfigurationError: if a column is missing.
    """
    read = read_table(table, None, codes)
    for name in names:
        known_name("column", name, read.column_names)
    return pa.table([with_nulls(read.column(name), name) for name in names], list(names))


def read_table(table: Any, client: str | None, codes: Codes | None = None) -> pa.Table:
    """Convert any kind of table to an Arrow table; clients of a CSV file are texts, and decimals are float64.

    `codes` is that of `read_table_file`.

    The row numbers of a data frame of pandas are no column, even where Arrow keeps them; levels of its index with a name are.

    Raises:
        ConfigurationError: if it is no table, or a data set with a transform.
        DataError: if it cannot be read, only some dates of a column have a time zone, or a category has two spellings.
    """
    read = _read(table, client, codes)
    read = read.select([name for name in read.column_names if not _ROW_NUMBERS.fullmatch(name)])
    for position, field in enumerate(read.schema):
        if pa.types.is_decimal(field.type):
            read = read.set_column(position, field.name, read.column(position).cast(pa.float64()))
    return read


def _read(table: Any, client: str | None, codes: Codes | None) -> pa.Table:
    if isinstance(table, str | os.PathLike):
        return read_table_file(Path(table), texts=() if client is None else (client,), codes=codes)
    if isinstance(table, pa.Table):
        return checked_table(table, "the table")
    if hasattr(table, "with_format") and hasattr(table, "column_names"):  # a Hugging Face data set
        if getattr(table, "format", {}).get("type") == "custom":
            raise ConfigurationError("table: set_transform of the data set would be left out: write dataset.map(...)")
        return table.with_format("arrow")[:]
    check_zones(table)
    try:
        if hasattr(table, "iloc"):  # pandas
            named = [level for level in table.index.names if level is not None]
            frame = table.reset_index(level=named) if named else table
            return checked_table(pa.Table.from_pandas(frame, preserve_index=False), "the table")
        if isinstance(table, Mapping) or hasattr(table, "__arrow_c_stream__"):
            return checked_table(pa.table(table), "the table")
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"the table cannot be read: {error}: give each column one type, such as frame[column].astype(str) or "
            "astype(float)"
        ) from error
    raise ConfigurationError(
        f"table: got {type(table).__name__}, needed a file, a data frame, an Arrow table, a Hugging Face data set or a "
        "mapping of columns"
    )


def numbers(parts: Sequence[pa.Table], name: str) -> np.ndarray:
    """Convert a column of all parts to numbers, float64 ``[n, 1]``; NaN for missing values.

    Raises:
        ConfigurationError: if a column is neither numeric nor of dates.
    """
    columns = [part.column(name) for part in parts]
    floats = []
    for column in columns:
        if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
            stamps = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=False).cast(pa.int64())
            column = pc.call_function("divide", [stamps.cast(pa.float64()), pa.scalar(float(_DAY))])
        elif not any(is_kind(column.type) for is_kind in _NUMBERS):
            raise ConfigurationError(
                f"column {name!r} holds {column.type}, which are no numbers: write categories=({name!r},) for a 0 or 1 for "
                "each value, or leave it out by features=(...)"
            )
        floats.append(column.cast(pa.float64(), safe=False).to_numpy())
    return np.concatenate(floats)[:, None]


def check_values(column: pa.ChunkedArray, name: str) -> None:
    """Raise an error for a column without any value."""
    if column.null_count == len(column):
        raise DataError(f"column {name!r} has no value in the training rows: leave it out by features=(...)")


def different_types(parts: Sequence[pa.Table], name: str) -> DataError:
    """Return the error for a column that has other types in the training table than in that of the test."""
    types = " and ".join(str(part.column(name).type) for part in parts)
    return DataError(f"column {name!r} holds {types} in training and test: give both the same type")


def rounds_differences(values: np.ndarray) -> bool:
    """Return whether float32 rounds some of these numbers by more than a thousandth of their standard deviation.

    >>> rounds_differences(1e9 + np.arange(9.0)), rounds_differences(np.arange(1e6)), rounds_differences(np.full(9, 0.1))
    (True, False, False)
    """
    known = values[np.isfinite(values)]
    with np.errstate(over="ignore"):
        error = np.abs(known.astype(np.float32) - known).max(initial=0.0)
    return bool(error > 1e-3 * known.std() > 0.0) if len(known) else False
