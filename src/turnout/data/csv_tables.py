"""Read tables in CSV files: encodings, delimiters, and columns of codes, whose numbers are texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from turnout.core.checks import DataError, shown

if TYPE_CHECKING:
    from pyarrow import csv

Codes = Mapping[str, str]
"""Columns whose numbers may be codes, which are texts, by name: ``"label"`` or ``"category"``."""


def read_csv(path: Path, what: str, delimiter: str, texts: Sequence[str], codes: Codes) -> pa.Table:
    """Read a CSV file in UTF-8.

    Raises:
        DataError: if a file has another encoding or delimiter, or a category two spellings of one number.
    """
    from pyarrow import csv

    with path.open("rb") as file:
        begin = file.read(2)
    if begin in (b"\xff\xfe", b"\xfe\xff"):
        raise _encoding(path, what, "its first bytes are those of UTF-16", "utf-16")
    _check_delimiter(path, what, delimiter)
    options = csv.ParseOptions(delimiter=delimiter)
    convert = csv.ConvertOptions(column_types=dict.fromkeys(texts, pa.string()))
    try:
        table = csv.read_csv(path, parse_options=options, convert_options=convert)
        names = table.column_names
    except UnicodeDecodeError as error:
        raise _encoding(path, what, "names of columns are") from error
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise
        raise _encoding(path, what, str(error)) from error
    for name, column in zip(names, table.columns, strict=True):
        if pa.types.is_binary(column.type):  # Arrow's type of columns that are not UTF-8
            row, cell = _first_undecodable(column)
            raise _encoding(path, what, f"row {row} of column {name!r} is {shown(cell)}")
    return _with_codes(table, codes, path, options)


def _with_codes(table: pa.Table, codes: Codes, path: Path, options: csv.ParseOptions) -> pa.Table:
    """Return a table with texts in those columns of codes in which some numbers have leading zeros."""
    from pyarrow import csv

    kinds = {field.name: field.type for field in table.schema if field.name in codes}
    names = [
        n for n in kinds if pa.types.is_integer(kinds[n]) or (pa.types.is_floating(kinds[n]) and codes[n] == "category")
    ]
    if not names:
        return table
    as_texts = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), include_columns=names, strings_can_be_null=True
    )
    written = csv.read_csv(path, parse_options=options, convert_options=as_texts)
    for name in names:
        texts = pc.call_function("utf8_trim_whitespace", [written.column(name)])
        distinct, leading = texts.unique(), pc.MatchSubstringOptions("^[+-]?0[0-9xX]")
        if pc.call_function("any", [pc.call_function("match_substring_regex", [distinct], leading)]).as_py():
            table = table.set_column(table.column_names.index(name), name, written.column(name))
        elif codes[name] == "category" and len(distinct) > len(table.column(name).unique()):
            raise _two_spellings(name, table.column(name).to_pylist(), texts.to_pylist())
    return table


def _two_spellings(name: str, numbers: list[float], texts: list[str]) -> DataError:
    """Return the error for a column of categories with two texts that are one number."""
    rows = {number: row for row, number in reversed(list(enumerate(numbers)))}
    row, first = next((row, rows[n]) for row, n in enumerate(numbers) if texts[rows[n]] != texts[row])
    return DataError(
        f"column {name!r} has {texts[first]} in row {first + 1} and {texts[row]} in row {row + 1}, which are one number: "
        f"write them alike, or give pandas.read_csv(FILE, dtype={{{name!r}: str}}) if they are two categories"
    )


def _first_undecodable(column: pa.ChunkedArray) -> tuple[int, bytes]:
    """Return the row, counted from 1, and the cell of a column of bytes that is not UTF-8."""
    for row, cell in enumerate(column.to_pylist(), 1):
        try:
            (cell or b"").decode("utf-8")
        except UnicodeDecodeError:
            return row, cell
    return 1, column[0].as_py()


def _check_delimiter(path: Path, what: str, delimiter: str) -> None:
    """Check that the names of columns are not separated by another character, as of programs with decimal commas."""
    with path.open("rb") as file:
        first = file.readline(1 << 16).decode("utf-8", errors="replace").strip()
    other = max(";\t|,", key=first.count)
    if delimiter not in first and other in first:
        decimal = ", decimal=','" if other == ";" else ""
        raise DataError(
            f"{what} {path}: its columns are separated by {other!r}, needed {delimiter!r}: give pandas.read_csv(FILE, "
            f"sep={other!r}{decimal}) instead of the file"
        )


def _encoding(path: Path, what: str, found: str, encoding: str = "latin1") -> DataError:
    """Return the error for a text file in another encoding than UTF-8."""
    return DataError(
        f"{what} {path}: not UTF-8 ({found}): convert it, such as `iconv -f {encoding} -t utf-8 {path.name}`, or give "
        f"pandas.read_csv(FILE, encoding={encoding!r})"
    )
