"""Tables with declared columns, read and written as Parquet; files that are replaced whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from turnout.core.checks import CheckpointError, ConfigurationError

Types = Mapping[str, pa.DataType]


def build(columns: Mapping[str, Any], types: Types) -> pa.Table:
    """A table with the columns of `types`, null where they are not given, then any others by name, as float64.

    Raises:
        ConfigurationError: where a column holds something else than its type.
    """
    length = len(next(iter(columns.values()), ()))
    arrays: dict[str, pa.Array] = {}
    for name in [*types, *sorted(columns.keys() - types.keys())]:
        kind, values = types.get(name, pa.float64()), columns.get(name)
        try:
            arrays[name] = pa.nulls(length, kind) if values is None else _array(values, kind)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise ConfigurationError(f"column {name!r}: needed values of type {kind}; {error}") from error
    return pa.table(arrays)


def read(path: Path, types: Types) -> pa.Table:
    """Read a Parquet table that has the columns of `types`, and others only as float64.

    Raises:
        CheckpointError: where the file is missing, damaged or holds something else.
    """
    try:
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path.parent} holds no {path.name}: give the folder of a run that saved its tables, or run it again"
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, str(error)) from error
    for name in {*types, *table.column_names}:
        if name not in table.column_names:
            raise damaged(path, f"it has no column {name!r}")
        if (found := table.schema.field(name).type) != (needed := types.get(name, pa.float64())):
            raise damaged(path, f"its column {name!r} is {found}, not {needed}")
    return table


def damaged(path: str | Path, why: str) -> CheckpointError:
    """The error for a table that cannot be used."""
    return CheckpointError(f"{path} is damaged or not a table of a run: {why}. Restore it from a copy, or run again")


def writer(table: pa.Table) -> Callable[[Path], None]:
    """What writes a table for `replace_files`: Parquet with checksums."""
    return lambda path: pq.write_table(table, path, compression="zstd", write_page_checksum=True)


def replace_files(writers: Mapping[Path, Callable[[Path], object]]) -> None:
    """Write files through ``write(temporary_path)``, then put all of them in place, in the order given.

    Nothing is replaced before everything is written and on disk, so a failure leaves the old files as they were.

    Raises:
        CheckpointError: where a file cannot be written.
    """
    parts = {path: path.with_name(f".{path.name}.part") for path in writers}
    try:
        for path, write in writers.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write(parts[path])
            with parts[path].open("rb") as written:
                os.fsync(written.fileno())
        for path, part in parts.items():
            part.replace(path)
    except OSError as error:
        names = ", ".join(str(path) for path in writers)
        raise CheckpointError(
            f"cannot write {names}: {error}. What was there before is unchanged: free some space or give another folder"
        ) from error
    finally:
        for part in parts.values():
            if part.exists():
                part.unlink()


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    """An Arrow array of a list (None is null) or an array (a torch tensor is taken too)."""
    values = values if isinstance(values, list | tuple) else np.asarray(values)
    # from_pandas=False: NaN is a value (a loss that diverged); null is "was not measured".
    return pa.array(values, type=kind, from_pandas=False)
