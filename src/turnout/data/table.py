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

from turnout.core.checks import ConfigurationError, known_name, refuse
from turnout.core.other_names import explains_arguments
from turnout.data.cells import MISSING, Missing, numbers, read_table, without_missing
from turnout.data.columns import Categories, Columns, input_columns, specified_columns
from turnout.data.csv_tables import Codes
from turnout.data.directory import declare
from turnout.data.labels import Task, declared_classes, labels_of, named
from turnout.data.names import Names, note, note_classes
from turnout.data.source import SOURCES, Source
from turnout.data.transformer import Transform, Transformed, is_transform
from turnout.data.values import number_clients

declare("table", elsewhere="a file of your own: data.path=FILE data.label=COLUMN data.client=COLUMN")


@SOURCES.register
def table(
    path: str,
    label: str,
    client: str | None = None,
    *,
    features: tuple[str, ...] = (),
    categories: tuple[str, ...] | dict[str, tuple[str, ...]] = (),
    weight: str | None = None,
    scale: bool = False,
    transform: Transform | None = None,
    test: str | None = None,
    missing: Missing = "refuse",
    task: Task | None = None,
    classes: tuple[str, ...] = (),
    mean: dict[str, float] | None = None,
    std: dict[str, float] | None = None,
) -> Source:
    """Table in a file, whose rows belong to clients: CSV, TSV, Parquet, Feather, Arrow or JSON lines.

    The options are those of `from_table`.
    """
    options = {"label": label, "client": client, "weight": weight, "features": features, "categories": categories}
    options |= {"scale": scale, "transform": transform, "test": test, "missing": missing}
    return from_table(path, **options, task=task, classes=classes, mean=mean, std=std)


@explains_arguments
def from_table(
    table: Any,
    *,
    label: str,
    client: str | None = None,
    features: Sequence[str] = (),
    categories: Categories = (),
    weight: str | None = None,
    scale: bool = False,
    transform: Transform | None = None,
    test: Any = None,
    num_classes: int | None = None,
    name: str | None = None,
    missing: Missing = "refuse",
    task: Task | None = None,
    classes: Sequence[str] = (),
    mean: Mapping[str, float] | None = None,
    std: Mapping[str, float] | None = None,
) -> Source:
    """Make a source from a table with an example in each row, such as the patients of several hospitals.

    Inputs are float32 ``[n, d]``: numbers and booleans, dates and times in days since 1970, and one-hot encoded columns of
    `categories`. Integer targets are labels; texts, categories and booleans are labels as well, numbered in sorted order;
    floats are numbers to predict. Nulls, NaN, and empty or blank texts are missing values.

    Sites that train together have to declare `classes`, the values of `categories`, and `mean` and `std` where they scale:
    what a site does not declare is numbered and scaled by what it happens to have.

    Args:
        table: a file (``.csv``, ``.tsv``, ``.parquet``, ``.feather``, ``.arrow``, ``.jsonl``), a data frame of pandas or
            polars, an Arrow table, a Hugging Face ``Dataset``, or a mapping of columns.
        label: name of the column of targets.
        client: name of the column of clients; `split` without a partition keeps these clients. Of a CSV file they are texts:
            001, 01 and 1 are three clients. Labels and categories are texts as well if some have leading zeros.
        features: names of the columns of inputs; empty for all other columns.
        categories: columns of inputs to be one-hot encoded over their sorted values; or a mapping of these columns to their
            values, ``{"sex": ("f", "m")}``, in the order of the inputs.
        weight: name of the column of example weights, numbers > 0; see `turnout.data.weights`.
        scale: standardize numbers and dates to mean 0 and standard deviation 1.
        transform: converts the columns to inputs in place of `categories` and `scale`, with ``fit(frame, y)`` and
            ``transform(frame)`` of pandas frames, such as a ``ColumnTransformer`` or ``Pipeline`` of scikit-learn. It is
            copied, and receives missing values of inputs.
        test: another such table, the official test split.
        num_classes: C; None is one more than the largest label.
        name: name of the data in reports; None is the name of the file, or ``"table"``.
        missing: ``"refuse"`` raises an error for missing values, ``"drop"`` drops their rows, and ``"fill"`` imputes means of
            numbers and zeros for categories. With ``"fill"``, a missing client or label is an error.
        task: ``"classification"`` or ``"regression"``; None goes by the type of the column of targets.
        classes: names of classes 0, 1, ..., as texts; empty takes the classes of a ``ClassLabel`` of Hugging Face or of
            categories of pandas, and otherwise numbers the labels as above.
        mean, std: mean and standard deviation of columns of numbers, which are standardized with them and not with those of
            the training rows.

    `split` fits means, standard deviations and `transform` to the rows on which clients train, not to rows for validation or
    tests or of other clients. Before, in `Source.x`, they are fitted to all rows of `table`. What was fitted is
    `FederatedData.preparation`, and ``data.prepare(frame)`` converts further rows.

    Raises:
        ConfigurationError: if a column is missing, a column of texts is among the inputs, there are no inputs, the kind
            of table is unknown, `transform` fails or is combined with options that it replaces, or `mean` and `std` are
            about different columns.
        DataError: if a file is missing or damaged, column names are duplicate, missing values are neither dropped nor
            imputed, a label or category is not among the declared ones, or whole numbers as floats could be labels.

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
    known_name("value of missing", missing, MISSING)
    _check_transform(transform, categories, scale or bool(mean))
    tables = (table,) if test is None else (table, test)
    codes: Codes = dict.fromkeys(categories, "category") | ({} if task == "regression" else {label: "label"})
    parts = [read_table(part, client, codes) for part in tables]
    others = [column for column in (label, client, weight) if column is not None]
    columns = input_columns(parts, others, features, tuple(categories))
    parts = without_missing(parts, others, columns, missing, transform is not None)
    classes = tuple(classes) or (declared_classes(table, label) if task != "regression" else ())
    parts = [named(part, of, label) if classes else part for part, of in zip(parts, tables, strict=True)]
    targets, names = labels_of(parts, label, task, tuple(classes))
    if names is not None and num_classes not in (None, len(names)):
        needed = f"{len(names)}, as column {label!r} has the classes {', '.join(names)}"
        raise refuse("num_classes", given=num_classes, needed=needed, instead="Write classes=(...) if there are others")
    everyone, described = np.arange(len(parts[0])), {"label": label, "classes": None if names is None else tuple(names)}
    if transform is None:
        specified = specified_columns(columns, categories, mean or {}, std or {})
        prepare = Columns.of(parts, specified, **described, scale=scale, fills=missing == "fill")
        note(Names(f"column {label!r}", prepare.fitted(everyone).names))
    else:
        prepare = Transformed.of(parts, columns, targets, transform, **described)
        note_classes(f"column {label!r}", names)
    values = {"x": prepare(everyone), "y": torch.from_numpy(targets)} | _weights(parts, weight)
    name = name or (Path(table).stem if isinstance(table, str | os.PathLike) else "table")
    options = {"weight": weight, "scale": scale, "transform": transform, "missing": missing, "task": task}
    return Source(
        name=name,
        num_classes=num_classes if names is None else len(names),
        prepare=prepare,
        recipe={"source": name, "columns": columns, "categories": list(categories), "classes": names}
        | _described(options),
        **_splits(parts, values),
        **_clients(parts, client),
    )


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


def _check_transform(transform: Any, categories: Categories, scale: bool) -> None:
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
    defaults = {"weight": None, "scale": False, "transform": None, "missing": "refuse", "task": None}
    different = {name: value for name, value in options.items() if value is not None and value != defaults[name]}
    if "transform" in different:
        different["transform"] = re.sub(r" at 0x\w+", "", str(different["transform"]))
    return different
