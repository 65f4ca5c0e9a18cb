"""Make tables with declared columns, and read and write them as Parquet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from turnout.core.arrow import decompressed_bytes
from turnout.core.checks import CheckpointError, ConfigurationError
from turnout.core.earlier_names import present
from turnout.core.system import memory_bytes
from turnout.record import storage
from turnout.record.contents import Unreadable

Types = Mapping[str, pa.DataType]

_NUMBERS = ("round", "client", "evaluation")
_GROUP = 1 << 16  # rows that are written together


def build(columns: Mapping[str, Any], types: Types) -> pa.Table:
    """Build a table with the columns of `types`, null if missing, then any others, sorted by name, as float64.

    Raises:
        ConfigurationError: if a column has values of another type.
    """
    length = len(next(iter(columns.values()), ()))
    arrays: dict[str, pa.Array] = {}
    for name in [*types, *sorted(columns.keys() - types.keys())]:
        kind, values = types.get(name, pa.float64()), columns.get(name)
        try:
            arrays[name] = pa.nulls(length, kind) if values is None else array_of(values, kind)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise ConfigurationError(f"column {name!r}: needed values of type {kind}; {error}") from error
    return pa.table(arrays)


def read(path: Path, types: Types) -> pa.Table:
    """Read a Parquet table with the columns of `types`, also by their names in earlier versions; others must be float64.

    Raises:
        CheckpointError: if the file is missing or damaged, or has other columns.
    """
    try:
        storage.check(path)
        file = pq.ParquetFile(path, page_checksum_verification=True)
        old = file.schema_arrow
        schema = pa.schema([field.with_name(present(field.name)) for field in old], old.metadata)
        _check_types(path, schema, types, may_be_null=False)  # before text expands that nobody asks for
        if 8 * file.metadata.num_rows * file.metadata.num_columns > memory_bytes():  # which a few bytes may say
            raise damaged(path, f"it has {file.metadata.num_rows:,} rows, more than there is memory for")
        table = pa.Table.from_arrays(file.read().columns, schema=schema)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path.parent} holds no {path.name}: give the folder of a run that saved its tables, or run it again"
        ) from error
    except (OSError, ValueError, pa.ArrowException) as error:
        raise damaged(path, error) from error
    check(path, table, types)
    return table


def read_stream(source: pa.NativeFile) -> pa.Table:
    """Read an Arrow stream, and leave the source at its end.

    Raises:
        ValueError: if buffers are compressed, because a few bytes may expand to more than there is memory for. None are
            written here, and Arrow has no limit for them.
    """
    start = source.tell()
    for message in pa.ipc.MessageReader.open_stream(source):
        if decompressed_bytes(message) is not None:
            raise ValueError("its tables are compressed")
    source.seek(start)
    return pa.ipc.open_stream(source).read_all()


def check(path: Path, table: pa.Table, types: Types, *, may_be_null: bool = False) -> None:
    """Check that a table has each column of `types` once, and that its other columns are float64.

    Numbers of rounds, clients and evaluations must be >= 0.

    Args:
        path: the name of the file in error messages.
        table: its contents.
        types: the types of the required columns.
        may_be_null: whether an empty column may have the type null.

    Raises:
        CheckpointError: if not, naming the file and the column.
    """
    _check_types(path, table.schema, types, may_be_null)
    for name in _NUMBERS:
        if name not in table.column_names:
            continue
        if table[name].null_count or numbers(table[name]).min(initial=0) < 0:
            raise damaged(path, f"its column {name!r} holds nulls, or numbers below 0")


def _check_types(path: Path, schema: pa.Schema, types: Types, may_be_null: bool) -> None:
    """Check the names and types of columns as `check` does."""
    names = Counter(schema.names)  # which Arrow makes anew at each access
    for name in {*types, *names}:
        if (number := names[name]) != 1:
            raise damaged(path, f"it has {number or 'no'} column{'s' * (number > 1)} {name!r}")
        actual, needed = schema.field(name).type, types.get(name, pa.float64())
        if actual != needed and not (may_be_null and pa.types.is_null(actual)):
            raise damaged(path, f"its column {name!r} is {actual}, not {needed}")


def damaged(path: str | Path, why: object) -> CheckpointError:
    """Return the error for a table that cannot be used, because of its contents or of an error of reading it."""
    if isinstance(why, OSError) and why.errno:
        return Unreadable.of(path, why)
    return CheckpointError(f"{path} is damaged or not a table of a run: {why}. Restore it from a copy, or run again")


def write(path: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Write concatenated tables as one Parquet file with checksums; missing columns are null."""
    with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as file:
        group: list[pa.Table] = []
        for table in tables:
            group.append(table)
            if sum(map(len, group)) >= _GROUP:
                file.write_table(concatenated(group, schema))
                group.clear()
        file.write_table(concatenated(group, schema))


def concatenated(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Concatenate tables with exactly the columns of `schema`; missing columns are null."""
    empty = pa.table([pa.nulls(0, field.type) for field in schema], schema=schema)  # `empty_table` imports pandas
    names = set(schema.names)
    parts = (table.select([name for name in table.column_names if name in names]) for table in tables)
    return pa.concat_tables([empty, *parts], promote_options="default")


def schema_of(types: Types, others: Iterable[str]) -> pa.Schema:
    """Return the columns of `types`, then the others, sorted by name, as float64."""
    return pa.schema([*types.items(), *((name, pa.float64()) for name in sorted(others))])


def array_of(values: Any, kind: pa.DataType, nan_is_null: bool = False) -> pa.Array:
    """Return an Arrow array of a list, in which None is null, an array or a tensor.

    By default, NaN (a diverged loss) stays distinct from null (not measured). Numbers are passed as buffers, because
    `pyarrow.array` imports pandas where it is installed, which takes half a second.

    Example:
        >>> array_of([1, None], pa.int64()).to_pylist()
        [1, None]
    """
    values = values if isinstance(values, list | tuple) else np.asarray(values)
    if not (pa.types.is_int64(kind) or pa.types.is_float64(kind)):
        return pa.array(values, type=kind, from_pandas=False)
    dtype = np.dtype(np.int64 if pa.types.is_int64(kind) else np.float64)
    is_known = None
    if isinstance(values, list | tuple):
        is_known = np.array([value is not None for value in values], dtype=bool)
        values = np.array([0 if value is None else value for value in values])
    if values.ndim != 1 or (len(values) and not np.can_cast(values.dtype, dtype, "same_kind")):
        raise TypeError(f"got an array of shape {values.shape} and type {values.dtype}")
    is_known = ~np.isnan(values) if nan_is_null else is_known
    bits = None if is_known is None or is_known.all() else pa.py_buffer(np.packbits(is_known, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(np.ascontiguousarray(values, dtype))])


def numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column of numbers without nulls as an array, without importing pandas as its method `to_numpy` does.

    Example:
        >>> numbers(pa.chunked_array([array_of([1, 2], pa.int64())]))
        array([1, 2])
    """
    parts = [np.from_dlpack(part) for part in column.chunks if len(part)]
    return np.concatenate(parts) if parts else np.empty(0, column.type.to_pandas_dtype())


def is_known(column: pa.ChunkedArray) -> np.ndarray:
    """Return whether each value of a column is not null."""
    return numbers(column.is_valid().cast(pa.int64())).astype(bool)
