"""Read data files safely: missing, unreadable and damaged files, and decompression bombs, raise a `DataError`."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from turnout.core.checks import ConfigurationError, DataError
from turnout.data.csv_tables import Codes, read_csv

UNPACKED_BYTES, UNPACKED_RATIO = 256 << 20, 100
"""Limit of the size of a decompressed file: a constant plus a multiple of the compressed size."""

FORMATS = (".csv", ".tsv", ".parquet", ".feather", ".arrow", ".jsonl")
"""File name extensions of tables."""


def most_bytes(path: Path) -> int:
    """Return the limit of the decompressed size of a file."""
    return UNPACKED_BYTES + UNPACKED_RATIO * path.stat().st_size


def too_large(path: Path, size: int) -> DataError:
    """Return the error for a file that decompresses to more bytes than `most_bytes`."""
    return DataError(
        f"{path}: it has {path.stat().st_size:,} bytes and would unpack to {size:,} or more, needed at most "
        f"{most_bytes(path):,}: the file is damaged, or made to exhaust memory; if it is neither, unpack it first"
    )


def check_file(path: Path, what: str = "") -> None:
    """Check that a path is a file.

    Raises:
        DataError: if a file is missing or is a folder.
    """
    if not path.is_file():
        problem = "is a folder, needed a file" if path.is_dir() else "no such file"
        raise DataError(f"{what + ' ' if what else ''}{path}: {problem}")


def read_bytes(path: Path) -> bytes:
    """Read a file.

    Raises:
        DataError: if a file is missing, unreadable, a folder, or does not fit into memory.
    """
    check_file(path)
    try:
        return path.read_bytes()
    except (OSError, MemoryError) as error:
        raise DataError(f"{path} cannot be read: {error or 'it does not fit into memory'}") from error


def open_unpacked(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """Open a file for reading, decompressed if its name ends in ``.gz``; the caller limits the number of bytes.

    Raises:
        DataError: if a file is missing, unreadable or a folder.
    """
    check_file(path)
    try:
        return gzip.open(path) if path.suffix == ".gz" else path.open("rb")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error


UNPACKING_ERRORS = (EOFError, OSError, zlib.error)
"""The errors of reading a damaged gzip file."""


def read_json(path: Path) -> Any:
    """Read a JSON file in UTF-8.

    Raises:
        DataError: if a file is missing, unreadable, not JSON, nested too deeply, or has duplicate keys.
    """
    try:
        return json.loads(read_bytes(path).decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"{path}: not a JSON file that can be read ({type(error).__name__}: {error})") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise an error for duplicate keys, of which Python would keep only the last."""
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} appears twice")
    return table


def read_table_file(
    path: Path,
    what: str = "table",
    formats: tuple[str, ...] = FORMATS,
    texts: Sequence[str] = (),
    codes: Codes | None = None,
) -> pa.Table:
    """Read a table from a file, in the format of its file name extension.

    Args:
        path: the file.
        what: name of the table in errors.
        formats: the file name extensions that are allowed.
        texts: columns of a CSV file that are texts even if they look like numbers, such as names.
        codes: columns of a CSV file that are texts if some of their numbers have leading zeros: 01 and 1 are different. Two
            spellings of one number as a category, 1.1 and 1.10, are an error.

    Raises:
        ConfigurationError: if the extension is another one.
        DataError: if a file is missing, damaged or too large when decompressed, or column names are duplicate.
    """
    from pyarrow import json

    ending = path.suffix.lower()
    if ending not in formats:
        raise ConfigurationError(f"{what} {path}: its name ends in {ending!r}, needed one of {', '.join(formats)}")
    check_file(path, what)
    try:
        if ending in (".csv", ".tsv"):
            table = read_csv(path, what, "\t" if ending == ".tsv" else ",", texts, codes or {})
        elif ending == ".jsonl":
            table = json.read_json(path)
        else:
            table = _unpacked(path, _read_parquet(path) if ending == ".parquet" else _read_feather(path))
        return checked_table(table, f"{what} {path}")
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, MemoryError) as error:
        raise DataError(f"{what} {path}: cannot be read: {error}") from error


def checked_table(table: pa.Table, what: str) -> pa.Table:
    """Return a table unchanged after a check of its column names.

    Raises:
        DataError: if a column name is duplicate.
    """
    names = table.column_names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{what}: {names.count(twice)} columns are called {twice!r}, needed different names")
    return table


def check_zones(table: Any) -> None:
    """Raise an error for a column of Python dates of which only some have a time zone, which Arrow reads as UTC.

    Args:
        table: a data frame, or a mapping of columns; Arrow tables have one type for each column.
    """
    for name, column in table.items() if hasattr(table, "items") else ():
        if str(getattr(column, "dtype", "object")) != "object" or not isinstance(column, Iterable):
            continue
        zones: dict[bool, int] = {}
        for row, cell in enumerate(column, 1):
            if isinstance(cell, datetime) and cell == cell:  # pandas' NaT is unequal to itself
                zones.setdefault(cell.tzinfo is None, row)
        if len(zones) > 1:
            raise DataError(
                f"column {name!r}: the date in row {zones[True]} has no time zone, and that in row {zones[False]} has one: "
                "convert all of them to UTC, as pandas.to_datetime(column, utc=True) does"
            )


def _read_parquet(path: Path) -> Iterator[pa.RecordBatch | pa.Schema]:
    """Yield the schema of a Parquet file, then its rows; raise an error if the size in its header exceeds the limit."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        if (size := sum(group.total_byte_size for group in groups)) > most_bytes(path):
            raise too_large(path, size)
        yield file.schema_arrow
        yield from file.iter_batches(batch_size=1 << 14)


def _read_feather(path: Path) -> Iterator[pa.RecordBatch | pa.Schema]:
    """Yield the schema of an Arrow or Feather file, then its rows."""
    from pyarrow import feather

    from turnout.core.arrow import decompressed_bytes_of_file

    with path.open("rb") as file:
        of_version_1 = file.read(4) == b"FEA1"
    if of_version_1:  # never compressed
        table = feather.read_table(path)
        yield table.schema
        yield from table.to_batches()
        return
    with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as reader:
        with pa.memory_map(str(path)) as mapped:  # before a batch is decompressed, which has no limit
            if (size := decompressed_bytes_of_file(mapped)) > most_bytes(path):
                raise too_large(path, size)
        yield reader.schema
        for i in range(reader.num_record_batches):
            batch = reader.get_batch(i)
            batch.validate(full=True)  # offsets of a damaged file may point beyond its end
            yield batch


def _unpacked(path: Path, parts: Iterator[pa.RecordBatch | pa.Schema]) -> pa.Table:
    """Collect the rows of a compressed table; raise an error if they take more memory than the limit."""
    schema, batches, size = next(parts), [], 0
    for batch in parts:
        batches.append(batch)
        size += batch.nbytes
        if size > most_bytes(path):
            raise too_large(path, size)
    return pa.Table.from_batches(batches, schema)
