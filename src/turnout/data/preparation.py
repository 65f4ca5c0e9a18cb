"""Hold how the rows of a table become inputs of a model, with fitted statistics, as plain values."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch

from turnout.core.checks import ConfigurationError, DataError, known_name, shown
from turnout.data.cells import numbers, read_columns, texts
from turnout.data.csv_tables import Codes

FILE = "preprocessing.json"
"""The name of the file beside an exported model."""


@dataclass(frozen=True)
class PreparedColumn:
    """Describe how a column becomes inputs.

    Attributes:
        name: name of the column.
        kind: ``"number"`` for numbers, booleans (0 and 1) and dates (days since 1970), ``"category"`` for a 0 or 1 for each
            of `values`.
        values: categories, in the order of the inputs.
        mean, std: a number becomes ``(x - mean) / std``; None leaves its scale.
        fill: the number in place of a missing one; None refuses missing numbers.
    """

    name: str
    kind: Literal["number", "category"] = "number"
    values: tuple[str, ...] = ()
    mean: float | None = None
    std: float | None = None
    fill: float | None = None

    def inputs(self, table: pa.Table, fills: bool) -> np.ndarray:
        """Return the inputs of this column, float64 ``[n, d]``.

        Raises:
            DataError: if a category is unknown, or a value is missing that is not filled in, with its row.
        """
        if self.kind == "number":
            column = numbers([table], self.name)
            missing = np.isnan(column[:, 0])
            if missing.any() and self.fill is None:
                raise self._missing(missing)
            return self.scaled(column)
        cells = np.array(texts(table.column(self.name)), dtype=object)
        missing = np.array([cell is None for cell in cells], dtype=bool)
        if missing.any() and not fills:
            raise self._missing(missing)
        unknown = ~missing & ~np.isin(cells.astype(str), self.values)
        if unknown.any():
            row = int(unknown.argmax())
            raise DataError(
                f"column {self.name!r} has {shown(cells[row])} in row {row + 1}, which is none of {', '.join(self.values)}"
            )
        return np.stack([cells == value for value in self.values], axis=1).astype(np.float64)

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Return values as inputs: missing ones filled in, and on the scale of the model."""
        if self.fill is not None:
            values = np.where(np.isnan(values), self.fill, values)
        return values if self.mean is None or self.std is None else (values - self.mean) / self.std

    def _missing(self, missing: np.ndarray) -> DataError:
        return DataError(
            f"column {self.name!r} has no value in row {int(missing.argmax()) + 1}, and the model was trained without "
            "missing values: fill them in, or train with missing='fill'"
        )


@dataclass(frozen=True)
class Preparation:
    """Turn rows of a table into inputs ``[n, d]``, and name what the outputs of the model mean.

    It is saved with runs, and exported as ``preprocessing.json`` beside a model.

    Attributes:
        columns: the columns of inputs, in their order.
        label: name of the column of targets.
        classes: names of classes 0, 1, ...; None for labels that are numbers already, or numbers to predict.
        fills: True if missing values are filled in: means of numbers, zeros for categories.
        fitted: names of the columns whose means, deviations or categories were computed from training rows, and not declared.

    Example:
        >>> column = PreparedColumn("age", mean=50.0, std=10.0)
        >>> Preparation((column,), label="ill", classes=("no", "yes"))({"age": [60, 45]})
        tensor([[ 1.0000],
                [-0.5000]])
    """

    columns: tuple[PreparedColumn, ...]
    label: str
    classes: tuple[str, ...] | None = None
    fills: bool = False
    fitted: tuple[str, ...] = field(default=(), compare=False)

    def __call__(self, table: Any) -> torch.Tensor:
        """Return the inputs of a table's rows, float32 ``[n, d]``; other columns are ignored.

        Args:
            table: a file, a data frame, an Arrow table or a mapping of columns.

        Raises:
            ConfigurationError: if a column is missing.
            DataError: if a cell has an unknown category, or no value.
        """
        codes: Codes = {column.name: "category" for column in self.columns if column.kind == "category"}
        read = read_columns(table, [column.name for column in self.columns], codes)
        parts = [column.inputs(read, self.fills) for column in self.columns]
        return torch.from_numpy(np.concatenate(parts, axis=1).astype(np.float32))

    @property
    def names(self) -> dict[str, Any]:
        """The names of classes and categories and the declared scales, which all sites of a federation must share."""
        scaled = [column for column in self.columns if column.mean is not None]
        return {
            "classes": None if self.classes is None else list(self.classes),
            "categories": {column.name: list(column.values) for column in self.columns if column.kind == "category"},
            "mean": {column.name: column.mean for column in scaled},
            "std": {column.name: column.std for column in scaled},
        }

    def plain(self) -> dict[str, Any]:
        """Return the preparation as plain values, the content of ``preprocessing.json``."""
        columns = [
            {name: value for name, value in asdict(column).items() if value not in (None, ())}
            for column in self.columns
        ]
        return {"format": 1, "label": self.label, "classes": self.classes, "fills": self.fills, "columns": columns}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Preparation:
        """Return the preparation that plain values describe.

        Raises:
            DataError: if they do not.
        """
        try:
            columns = [dict(column) for column in values["columns"]]
            for column in columns:
                column["values"] = tuple(map(str, column.get("values", ())))
                known_name("kind of column", column.get("kind", "number"), ("number", "category"))
            classes = None if values["classes"] is None else tuple(map(str, values["classes"]))
            made = tuple(PreparedColumn(**column) for column in columns)
            return cls(made, str(values["label"]), classes, bool(values["fills"]))
        except (KeyError, TypeError, AttributeError, ConfigurationError) as error:
            raise DataError(f"this is no preparation of a table: {type(error).__name__}: {error}") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Preparation:
        """Return the preparation in a file such as ``preprocessing.json``.

        Raises:
            DataError: if a file is missing, or holds something else.
        """
        from turnout.data.reading import read_json

        return cls.of(read_json(Path(path)))

    def text(self) -> str:
        """Return the content of ``preprocessing.json``."""
        return json.dumps(self.plain(), indent=2) + "\n"
