"""Make sources from tables with a column of clients: files, data frames, Arrow tables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from turnout.core.checks import LARGEST_COUNT, ConfigurationError, DataError, known_name, refuse
from turnout.data.client_ids import number_clients
from turnout.data.columns import Columns, Transform, Transformed, is_transform, numbers
from turnout.data.directory import declare
from turnout.data.missing import MISSING, Missing, without_missing
from turnout.data.reading import checked_table, read_table_file
from turnout.data.source import SOURCES, Source

declare("table", elsewhere="a file of your own: data.path=FILE data.label=COLUMN data.client=COLUMN")


@SOURCES.register
def table(
    path: str,
    label: str,
    client: str | None = None,
    *,
    features: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    weight: str | None = None,
    scale: bool = False,
    transform: Transform | None = None,
    test: str | None = None,
    missing: Missing = "refuse",
) -> Source:
    """Table in a file, whose rows belong to clients: CSV, TSV, Parquet, Feather, Arrow or JSON lines.

    The options are those of `from_table`.
    """
    options = {"label": label, "client": client, "weight": weight, "features": features, "categories": categories}
    return from_table(path, **options, scale=scale, transform=transform, test=test, missing=missing)


def from_table(
    table: Any,
    *,
    label: str,
    client: str | None = None,
    features: Sequence[str] = (),
    categories: Sequence[str] = (),
    weight: str | None = None,
    scale: bool = False,
    transform: Transform | None = None,
    test: Any = None,
    num_classes: int | None = None,
    name: str | None = None,
    missing: Missing = "refuse",
) -> Source:
    """Make a source from a table with an example in each row, such as the patients of several hospitals.

    Inputs are float32 ``[n, d]``: numbers and booleans, dates and times in days since 1970, and one-hot encoded columns of
    `categories`. Integer targets are labels; texts, categories and booleans are labels as well, numbered in sorted order;
    floats are numbers to predict. Nulls, NaN, and empty or blank texts are missing values.

    Args:
        table: a file (``.csv``, ``.tsv``, ``.parquet``, ``.feather``, ``.arrow``, ``.jsonl``), a data frame of pandas or
            polars, an Arrow table, a Hugging Face ``Dataset``, or a mapping of columns.
        label: name of the column of targets.
        client: name of the column of clients; `split` without a partition keeps these clients. Of a CSV file they are texts:
            001, 01 and 1 are three clients.
        features: names of the columns of inputs; empty for all other columns.
        categories: columns of inputs to be one-hot encoded over their sorted values.
        weight: name of the column of example weights, numbers > 0; see `turnout.data.weights`.
        scale: standardise numbers and dates to mean 0 and standard deviation 1.
        transform: converts the columns to inputs in place of `categories` and `scale`, with ``fit(frame, y)`` and
            ``transform(frame)`` of pandas frames, such as a ``ColumnTransformer`` or ``Pipeline`` of scikit-learn. It is
            copied, and receives missing values of inputs.
        test: another such table, the official test split.
        num_classes: C; None is one more than the largest label.
        name: name of the data in reports; None is the name of the file, or ``"table"``.
        missing: ``"refuse"`` raises an error for missing values, ``"drop"`` drops their rows, and ``"fill"`` imputes means of
            numbers and zeros for categories. With ``"fill"``, a missing client or label is an error.

    `split` fits means, standard deviations and `transform` to the rows on which clients train, not to rows for validation or
    tests or of other clients. Before, in `Source.x`, they are fitted to all rows of `table`.

    Raises:
        ConfigurationError: if a column is missing, a column of texts is among the inputs, there are no inputs, the kind
            of table is unknown, or `transform` fails or is combined with options that it replaces.
        DataError: if a file is missing or damaged, column names are duplicate, or missing values are neither dropped
            nor imputed.

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
    known_name("way with missing values", missing, MISSING)
    _check_transform(transform, categories, scale)
    parts = [_read(part, client) for part in ((table,) if test is None else (table, test))]
    others = [column for column in (label, client, weight) if column is not None]
    columns = _inputs(parts, others, features, categories)
    parts = without_missing(parts, others, columns, missing, transform is not None)
    targets, classes = _targets(parts, label)
    if transform is None:
        prepare: Columns | Transformed = Columns.of(parts, columns, categories, scale)
    else:
        prepare = Transformed.of(parts, columns, targets, transform)
    values = {"x": prepare(np.arange(len(parts[0]))), "y": torch.from_numpy(targets)} | _weights(parts, weight)
    name = name or (Path(table).stem if isinstance(table, str | os.PathLike) else "table")
    options = {"weight": weight, "scale": scale, "transform": transform, "missing": missing}
    return Source(
        name=name,
        num_classes=num_classes if classes is None else len(classes),
        prepare=prepare if prepare.is_fitted else None,
        recipe={"source": name, "columns": columns, "categories": list(categories), "classes": classes}
        | _described(options),
        **_splits(parts, values),
        **_clients(parts, client),
    )


def _inputs(
    parts: Sequence[pa.Table], others: Sequence[str], features: Sequence[str], categories: Sequence[str]
) -> list[str]:
    """Return the names of the columns of inputs.

    Raises:
        ConfigurationError: if a column is missing, there are no columns, or categories are not inputs.
    """
    columns = list(features) or [name for name in parts[0].column_names if name not in others]
    for column in (*others, *columns, *categories):
        for part in parts:
            known_name("column", column, part.column_names)
    if not columns:
        raise ConfigurationError(
            f"features: a table of {' and '.join(map(repr, others))} alone has no inputs, needed one column more"
        )
    if apart := [name for name in categories if name not in columns]:
        raise ConfigurationError(f"categories: {apart[0]!r} is none of the inputs ({', '.join(columns)})")
    return columns


def _clients(parts: Sequence[pa.Table], client: str | None) -> dict[str, Any]:
    """Return the clients of all rows, and their names, as arguments of `Source`."""
    if client is None:
        return {}
    numbered = number_clients(*(_ids(part.column(client)) for part in parts))
    return dict(zip(("client_ids", "test_client_ids", "client_names"), numbered, strict=True))


def _ids(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column of clients as an array; dates are texts."""
    is_date = pa.types.is_temporal(column.type)
    return (column.cast(pa.string()) if is_date else column).to_numpy()


def _weights(parts: Sequence[pa.Table], weight: str | None) -> dict[str, torch.Tensor]:
    """Return the weights of all rows as an argument of `Source`, if there are any."""
    return {} if weight is None else {"weights": torch.from_numpy(numbers(parts, weight)[:, 0])}


def _splits(parts: Sequence[pa.Table], values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the values of training examples and, named ``test_...``, those of a test."""
    size = len(parts[0])
    splits = {name: of_all[:size] for name, of_all in values.items()}
    if len(parts) > 1:
        splits |= {f"test_{name}": of_all[size:] for name, of_all in values.items()}
    return splits


def _read(table: Any, client: str | None) -> pa.Table:
    """Convert any kind of table to an Arrow table; clients of a CSV file are texts."""
    if isinstance(table, str | os.PathLike):
        return read_table_file(Path(table), texts=() if client is None else (client,))
    if isinstance(table, pa.Table):
        return checked_table(table, "the table")
    if hasattr(table, "with_format") and hasattr(table, "column_names"):  # a Hugging Face data set
        return table.with_format("arrow")[:]
    try:
        if isinstance(table, Mapping) or hasattr(table, "__arrow_c_stream__"):
            return checked_table(pa.table(table), "the table")
        if hasattr(table, "iloc"):  # pandas before 2.2
            return checked_table(pa.Table.from_pandas(table, preserve_index=False), "the table")
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"the table cannot be read: {error}") from error
    raise ConfigurationError(
        f"table: got {type(table).__name__}, needed a file, a data frame, an Arrow table, a Hugging Face data set or a "
        "mapping of columns"
    )


def _check_transform(transform: Any, categories: Sequence[str], scale: bool) -> None:
    """Raise an error for an object that is not a transform, and for options that it replaces."""
    if transform is None:
        return
    if not is_transform(transform):
        raise refuse(
            "transform",
            given=transform,
            needed="an object with fit(frame, y) and transform(frame), such as a ColumnTransformer of scikit-learn",
        )
    if categories or scale:
        name = "categories" if categories else "scale"
        raise ConfigurationError(f"{name}: the transform makes all inputs: leave {name} out, or the transform")


def _described(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a source's recipe that do not have their defaults, without addresses in memory."""
    defaults = {"weight": None, "scale": False, "transform": None, "missing": "refuse"}
    different = {name: value for name, value in options.items() if value is not None and value != defaults[name]}
    if "transform" in different:
        different["transform"] = re.sub(r" at 0x\w+", "", str(different["transform"]))
    return different


def _targets(parts: Sequence[pa.Table], name: str) -> tuple[np.ndarray, list[str] | None]:
    """Return labels or numbers to predict, and the names of classes if labels are not numbers."""
    values = [part.column(name).to_numpy() for part in parts]
    kinds = {part.dtype.kind.replace("u", "i") for part in values}
    if len(kinds) > 1:
        types = " and ".join(str(part.column(name).type) for part in parts)
        raise DataError(f"column {name!r} holds {types} in training and test: give both the same type")
    if kinds == {"f"}:
        with np.errstate(over="ignore"):
            return np.concatenate(values).astype(np.float32), None
    if kinds == {"i"}:
        if (largest := max(int(part.max(initial=0)) for part in values)) > LARGEST_COUNT:
            raise DataError(f"column {name!r} has the label {largest}, needed classes numbered from 0")
        # With a type, because NumPy concatenates signed and unsigned integers as floats.
        return np.concatenate(values, dtype=np.int64, casting="unsafe"), None
    classes, labels = np.unique(np.concatenate(values), return_inverse=True)
    return labels.astype(np.int64), [str(name) for name in classes]
