"""Choose the columns of a table that are inputs, and convert them with statistics of the training rows."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from turnout.core.checks import ConfigurationError, DataError, known_name, positive
from turnout.data.cells import check_values, different_types, numbers, rounds_differences, texts
from turnout.data.preparation import Preparation, PreparedColumn
from turnout.data.values import different_names

Categories = Sequence[str] | Mapping[str, Sequence[str]]
"""Names of columns of categories, or their values by name of the column."""


def specified_columns(
    columns: Sequence[str], categories: Categories, mean: Mapping[str, float], std: Mapping[str, float]
) -> list[PreparedColumn]:
    """Return the columns of inputs with the declared categories, means and standard deviations.

    Raises:
        ConfigurationError: if means and deviations are not those of the same columns of numbers.
    """
    if mean.keys() != std.keys():
        raise ConfigurationError(
            f"mean and std: got those of {sorted(mean)} and {sorted(std)}, needed both for the same columns"
        )
    for name in mean:
        known_name("column of inputs", name, [column for column in columns if column not in categories])
        positive(f"std[{name!r}]", std[name])
    declared = categories if isinstance(categories, Mapping) else dict.fromkeys(categories, ())
    return [
        PreparedColumn(name, "category", tuple(map(str, declared[name])))
        if name in declared
        else PreparedColumn(name, mean=mean.get(name), std=std.get(name))
        for name in columns
    ]


def input_columns(
    parts: Sequence[pa.Table], others: Sequence[str], features: Sequence[str], categories: Sequence[str]
) -> list[str]:
    """Return the names of the columns of inputs.

    Raises:
        ConfigurationError: if a column is missing, there are no columns, or categories are not inputs.
    """
    columns = list(features) or [name for name in parts[0].column_names if name not in others]
    if not features and (unnamed := [name for name in columns if not name.strip() or name == "Unnamed: 0"]):
        raise ConfigurationError(
            f"features: the table has a column {unnamed[0]!r}, such as the row numbers that pandas writes, which would be an "
            "input: write features=(...), or the file by to_csv(index=False)"
        )
    for column in (*others, *columns, *categories):
        for part in parts:
            known_name("column", column, part.column_names)
    if others[0] in columns:
        raise ConfigurationError(f"features: {others[0]!r} is the label, which a model would copy: leave it out")
    if not columns:
        raise ConfigurationError(
            f"features: a table of {' and '.join(map(repr, others))} alone has no inputs, needed one column more"
        )
    if apart := [name for name in categories if name not in columns]:
        raise ConfigurationError(f"categories: {apart[0]!r} is none of the inputs ({', '.join(columns)})")
    return columns


LOG = logging.getLogger("turnout.data")

_PLAIN = (pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_large_string, pa.types.is_null)
"""Types of categories that are compared as texts, 1 of one table with "1" of another."""

_EXACT = 1 << 24  # whole numbers up to it are exact in float32


@dataclass(frozen=True, eq=False)
class Columns:
    """Numeric columns, optionally standardized and with missing values imputed by means, and one-hot encoded categories.

    Attributes:
        values: values of all rows in each column, float64 ``[n, d]``; NaN for missing numbers.
        declared: the columns as declared.
        columns: the columns with their categories, without fitted statistics.
        label, classes: name of the column of targets, and names of classes.
        scale: standardize numbers to mean 0 and standard deviation 1.
        fills: impute missing values.
    """

    values: tuple[np.ndarray, ...]
    declared: tuple[PreparedColumn, ...]
    columns: tuple[PreparedColumn, ...]
    label: str
    classes: tuple[str, ...] | None
    scale: bool
    fills: bool

    @classmethod
    def of(cls, parts: Sequence[pa.Table], declared: Sequence[PreparedColumn], **others: Any) -> Columns:
        """Read the columns of one or more tables; the first one has the training rows.

        Raises:
            ConfigurationError: if a column is neither numeric, nor of dates, nor among the categories.
            DataError: if a column has no values in the training rows, or has another category than are declared.
        """
        read, known = [], []
        for column in declared:
            check_values(parts[0].column(column.name), column.name)
            values = numbers(parts, column.name) if column.kind == "number" else None
            if values is None:
                column, values = _one_hot(parts, column)
            elif not others["scale"] and column.mean is None:
                _note_rounded(column.name, values)
            read.append(values)
            known.append(column)
        return cls(tuple(read), tuple(declared), tuple(known), **others)

    def fitted(self, rows: np.ndarray) -> Preparation:
        """Return the preparation with means and standard deviations of `rows`.

        Raises:
            DataError: if a column has no values in `rows`.
        """
        columns = [
            self._fitted(column, values[rows]) if column.kind == "number" else column
            for column, values in zip(self.columns, self.values, strict=True)
        ]
        fitted = [
            before.name
            for before, after in zip(self.declared, columns, strict=True)
            if before.values != after.values or (before.mean is None and (after.mean, after.fill) != (None, None))
        ]
        return Preparation(tuple(columns), self.label, self.classes, self.fills, tuple(fitted))

    def _fitted(self, column: PreparedColumn, values: np.ndarray) -> PreparedColumn:
        """Return a column of numbers with its mean and standard deviation, where they are needed and not declared."""
        if not self.scale and not self.fills and not np.isnan(values).any():
            return column
        if np.isnan(values).all():
            raise DataError(
                f"column {column.name!r} has no value in the training rows, and so no mean: leave it out by features=(...)"
            )
        mean = float(np.nanmean(values)) if column.mean is None else column.mean
        if column.mean is not None or not self.scale:
            return replace(column, fill=mean if self.fills else None)
        # After imputation, as in a pipeline of SimpleImputer and StandardScaler.
        std = float(np.where(np.isnan(values), mean, values).std())
        return replace(column, mean=mean, std=std if std > 0 else 1.0, fill=mean if self.fills else None)

    def __call__(self, rows: np.ndarray) -> torch.Tensor:
        """Return the inputs of all rows, float32 ``[n, d]``, with means and standard deviations of `rows`.

        Standardization is ``x_j <- (x_j - mean_j) / std_j``, as in ``StandardScaler``; a constant column becomes 0.

        Raises:
            DataError: if a column has no values in `rows`.
        """
        fitted = zip(self.fitted(rows).columns, self.values, strict=True)
        with np.errstate(over="ignore"):  # `Source` raises an error for infinity
            return torch.from_numpy(
                np.concatenate([column.scaled(v) for column, v in fitted], axis=1).astype(np.float32)
            )


def _note_rounded(name: str, values: np.ndarray) -> None:
    """Note numbers that inputs in float32 round: whole ones, such as keys, and those of a small range, such as times."""
    whole = (np.abs(values) > _EXACT).any() and (values == np.rint(values)).any()
    if whole or rounds_differences(values):
        LOG.warning("column %r has numbers from %.15g to %.15g, which inputs in float32 round: write scale=True, or subtract "
                    "a number, if their differences matter; leave out a column of keys by features=(...)",
                    name, np.nanmin(values), np.nanmax(values))  # fmt: skip


def _one_hot(parts: Sequence[pa.Table], column: PreparedColumn) -> tuple[PreparedColumn, np.ndarray]:
    """Return a column with its categories, by default the sorted values of all parts, and its one-hot encoding."""
    if not column.values:
        read = [part.column(column.name).drop_null().unique() for part in parts]
        if len({"" if any(is_kind(part.type) for is_kind in _PLAIN) else str(part.type) for part in read}) > 1:
            raise different_types(parts, column.name)
        cells = [(str(text), cell) for part in read for text, cell in zip(texts(part), part.to_pylist(), strict=True)]
        values, of_texts = dict(cells), any(isinstance(cell, str) for _, cell in cells)
        column = replace(column, values=tuple(sorted(values, key=str if of_texts else values.__getitem__)))
        different_names(f"column {column.name!r}", column.values)
    return column, np.concatenate([column.inputs(part, True) for part in parts])
