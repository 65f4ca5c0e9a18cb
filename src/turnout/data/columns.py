"""Convert columns of a table to inputs, with statistics of the training rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from turnout.core.checks import DataError
from turnout.data.cells import check_values, different_types, numbers, rounds_differences, texts
from turnout.data.client_ids import different_names
from turnout.data.preparation import Preparation, PreparedColumn

LOG = logging.getLogger("turnout.data")

_PLAIN = (pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_large_string, pa.types.is_null)
"""Types of categories that are compared as texts, 1 of one table with "1" of another."""

_EXACT = 1 << 24  # whole numbers up to it are exact in float32


@dataclass(frozen=True, eq=False)
class Columns:
    """Numeric columns, optionally standardized and with missing values imputed by means, and one-hot encoded categories.

    Attributes:
        values: values of all rows, float64 ``[n, d]``; NaN for missing numbers.
        columns: the columns without fitted statistics; those with declared means and deviations have them.
        label, classes: name of the column of targets, and names of classes.
        scale: standardize numbers to mean 0 and standard deviation 1.
        fills: impute missing values.
        inferred: names of the columns whose categories are those of the rows.
    """

    values: np.ndarray
    columns: tuple[PreparedColumn, ...]
    label: str
    classes: tuple[str, ...] | None
    scale: bool
    fills: bool
    inferred: tuple[str, ...] = ()

    @classmethod
    def of(cls, parts: Sequence[pa.Table], columns: Sequence[PreparedColumn], **others: Any) -> Columns:
        """Read the columns of one or more tables; the first one has the training rows.

        Raises:
            ConfigurationError: if a column is neither numeric, nor of dates, nor among the categories.
            DataError: if a column has no values in the training rows, or has another category than are declared.
        """
        read, known = [], []
        for column in columns:
            check_values(parts[0].column(column.name), column.name)
            values = numbers(parts, column.name) if column.kind == "number" else None
            if values is None:
                column, values = _one_hot(parts, column)
            elif not others["scale"] and column.mean is None:
                _note_rounded(column.name, values)
            read.append(values)
            known.append(column)
        inferred = [one.name for one, other in zip(columns, known, strict=True) if one.values != other.values]
        return cls(np.concatenate(read, axis=1), tuple(known), **others, inferred=tuple(inferred))

    def fitted(self, rows: np.ndarray) -> Preparation:
        """Return the preparation with means and standard deviations of `rows`.

        Raises:
            DataError: if a column has no values in `rows`.
        """
        train, columns, position = self.values[rows], [], 0
        for column in self.columns:
            values = train[:, position]
            position += 1 if column.kind == "number" else len(column.values)
            columns.append(self._fitted(column, values) if column.kind == "number" else column)
        known = zip(self.columns, columns, strict=True)
        fitted = [
            before.name
            for before, after in known
            if before.name in self.inferred or (before.mean is None and (after.mean, after.fill) != (None, None))
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
        values, position = self.values.copy(), 0
        for column in self.fitted(rows).columns:
            if column.kind == "number":
                number = values[:, position]
                if column.fill is not None:
                    number = np.where(np.isnan(number), column.fill, number)
                if column.mean is not None and column.std is not None:
                    number = (number - column.mean) / column.std
                values[:, position] = number
            position += 1 if column.kind == "number" else len(column.values)
        with np.errstate(over="ignore"):  # `Source` raises an error for infinity
            return torch.from_numpy(values.astype(np.float32))


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
