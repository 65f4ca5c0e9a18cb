"""Drop or refuse the missing values of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from turnout.core.checks import ConfigurationError, DataError

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
