"""Sources from tables with a column that says whose each row is: files, data frames, Arrow tables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from turnout.core.checks import ConfigurationError, DataError, known_name
from turnout.data.arrays import number_clients
from turnout.data.source import Source

_FORMATS = (".csv", ".tsv", ".parquet", ".feather", ".arrow", ".jsonl")


def table(
    path: str,
    label: str,
    client: str | None = None,
    *,
    features: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    test: str | None = None,
) -> Source:
    """Table in a file, whose rows belong to clients: CSV, TSV, Parquet, Feather, Arrow or JSON lines.

    See `from_table` for what the options mean.
    """
    return from_table(path, label=label, client=client, features=features, categories=categories, test=test)


def from_table(
    table: Any,
    *,
    label: str,
    client: str | None = None,
    features: Sequence[str] = (),
    categories: Sequence[str] = (),
    test: Any = None,
    num_classes: int | None = None,
    name: str | None = None,
) -> Source:
    """Return a source from a table with an example in each row, such as the patients of several hospitals.

    Inputs are float32 ``[n, d]``: numbers and truth values as they are, and a 0 or 1 for each value of a column of
    `categories`. Whole numbers are labels; texts, categories and truth values are labels too, numbered in sorted order; other
    numbers are to be predicted.

    Args:
        table: a file (``.csv``, ``.tsv``, ``.parquet``, ``.feather``, ``.arrow``, ``.jsonl``), a data frame of pandas or
            polars, an Arrow table, a Hugging Face ``Dataset``, or a mapping of columns.
        label: name of the column to predict.
        client: name of the column that says whose the row is; `split` without a partition keeps these clients.
        features: names of the columns that are inputs; none are all the others.
        categories: those among them that are 0 or 1 for each of their values, in sorted order.
        test: another such table, the official test split.
        num_classes: C; None is one more than the largest label.
        name: what reports call the data; None is the name of the file, or ``"table"``.

    Raises:
        ConfigurationError: for a column that is not there, a column of texts among the inputs, or an unknown kind of table.
        DataError: for a file that is missing or damaged, and for columns with missing values.

    Example:
        >>> hospitals = {"age": [61, 48, 55], "sex": ["f", "m", "f"], "ill": ["no", "yes", "yes"], "at": ["A", "B", "A"]}
        >>> source = from_table(hospitals, label="ill", client="at", categories=("sex",))
        >>> source.x
        tensor([[61.,  1.,  0.],
                [48.,  0.,  1.],
                [55.,  1.,  0.]])
        >>> source.y.tolist(), source.client_names
        ([0, 1, 1], ('A', 'B'))
    """
    parts = [_read(table)] if test is None else [_read(table), _read(test)]
    columns = _inputs(parts, label, client, features, categories)
    inputs = np.column_stack([_numbers(parts, column, column in categories) for column in columns])
    targets, classes = _targets(parts, label)
    size = len(parts[0])
    ids, test_ids, names = (None, None, None) if client is None else _owners(parts, client)
    x, y = torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(targets)
    name = name or (Path(table).stem if isinstance(table, str | os.PathLike) else "table")
    return Source(
        name=name,
        x=x[:size],
        y=y[:size],
        num_classes=num_classes if classes is None else len(classes),
        test_x=None if test is None else x[size:],
        test_y=None if test is None else y[size:],
        client_ids=ids,
        client_names=names,
        test_client_ids=test_ids,
        recipe={"source": name, "columns": columns, "categories": list(categories), "classes": classes},
    )


def _inputs(
    parts: Sequence[pa.Table], label: str, client: str | None, features: Sequence[str], categories: Sequence[str]
) -> list[str]:
    """Return the names of the columns that are inputs.

    Raises:
        ConfigurationError: for a column that is not there, and categories that are no inputs.
    """
    columns = list(features) or [each for each in parts[0].column_names if each not in (label, client)]
    for column in (label, *([client] if client is not None else []), *columns, *categories):
        for part in parts:
            known_name("column", column, part.column_names)
    if apart := [each for each in categories if each not in columns]:
        raise ConfigurationError(f"categories: {apart[0]!r} is none of the inputs ({', '.join(columns)})")
    return columns


def _owners(parts: Sequence[pa.Table], client: str) -> tuple[np.ndarray, np.ndarray | None, tuple[str, ...]]:
    """Return whose each row is, and each row of the test's table if there is one, and the clients' names."""
    owners = [_column(part, client) for part in parts]
    return number_clients(owners[0], owners[1] if len(owners) > 1 else None)


def _read(table: Any) -> pa.Table:
    """Return any kind of table as an Arrow table."""
    if isinstance(table, str | os.PathLike):
        return _file(Path(table))
    if isinstance(table, pa.Table):
        return table
    if hasattr(table, "with_format") and hasattr(table, "column_names"):  # a Hugging Face data set
        return table.with_format("arrow")[:]
    if isinstance(table, Mapping) or hasattr(table, "__arrow_c_stream__"):
        try:
            return pa.table(table)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise DataError(f"the table cannot be read: {error}") from error
    if hasattr(table, "iloc"):  # pandas before 2.2
        return pa.Table.from_pandas(table, preserve_index=False)
    raise ConfigurationError(
        f"table: got {type(table).__name__}, needed a file, a data frame, an Arrow table, a Hugging Face data set or a "
        "mapping of columns"
    )


def _file(path: Path) -> pa.Table:
    """Read a file by the end of its name."""
    from pyarrow import csv, feather, json, parquet

    ending = path.suffix.lower()
    if ending not in _FORMATS:
        raise ConfigurationError(f"table {path}: its name ends in {ending!r}, needed one of {', '.join(_FORMATS)}")
    if not path.is_file():
        raise DataError(f"table {path}: no such file")
    try:
        if ending in (".csv", ".tsv"):
            return csv.read_csv(path, parse_options=csv.ParseOptions(delimiter="\t" if ending == ".tsv" else ","))
        if ending == ".jsonl":
            return json.read_json(path)
        return parquet.read_table(path) if ending == ".parquet" else feather.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"table {path} cannot be read: {error}") from error


def _column(part: pa.Table, name: str) -> np.ndarray:
    """Return a column without missing values as an array."""
    column = part.column(name)
    if column.null_count:
        raise DataError(
            f"column {name!r} has {column.null_count} missing values in {len(column)} rows: fill them in, leave these rows "
            "out, or leave the column out by features=(...)"
        )
    return column.to_numpy()


def _numbers(parts: Sequence[pa.Table], name: str, category: bool) -> np.ndarray:
    """Return a column of all parts as numbers ``[n]``, or ``[n, values]`` of 0 and 1."""
    values = np.concatenate([_column(part, name) for part in parts])
    if category:
        return (values[:, None] == np.unique(values)).astype(np.float32)
    if values.dtype.kind not in "bfiu":
        raise ConfigurationError(
            f"column {name!r} holds {parts[0].schema.field(name).type}, which are no numbers: write categories=({name!r},) "
            "for a 0 or 1 for each value, or leave it out by features=(...)"
        )
    return values


def _targets(parts: Sequence[pa.Table], name: str) -> tuple[np.ndarray, list[str] | None]:
    """Return labels or numbers to predict, and what classes are called where labels are no numbers."""
    values = np.concatenate([_column(part, name) for part in parts])
    if values.dtype.kind == "f":
        return values.astype(np.float32), None
    if values.dtype.kind in "iu":
        return values.astype(np.int64), None
    classes, labels = np.unique(values, return_inverse=True)
    return labels.astype(np.int64), [str(each) for each in classes]
