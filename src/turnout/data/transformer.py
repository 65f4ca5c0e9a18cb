"""Convert columns of a table to inputs by transformers of scikit-learn."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import torch

from turnout.core.checks import ConfigurationError
from turnout.core.extras import imported
from turnout.core.registry import Family
from turnout.data.cells import read_columns


class Transform(Protocol):
    """The interface of scikit-learn's transformers."""

    def fit(self, frame: Any, y: Any = None, /) -> Any:
        """Fit to a frame and targets."""
        ...

    def transform(self, frame: Any, /) -> Any:
        """Return the inputs ``[n, d]`` of a frame."""
        ...


@dataclass(frozen=True, eq=False)
class Transformed:
    """Inputs that a scikit-learn transformer makes of a pandas frame.

    Attributes:
        frame: frame of all rows.
        targets: targets of all rows, ``[n]``.
        transform: unfitted.
    """

    frame: Any
    targets: np.ndarray
    transform: Transform
    label: str
    classes: tuple[str, ...] | None

    @classmethod
    def of(
        cls, parts: Sequence[pa.Table], columns: Sequence[str], targets: np.ndarray, transform: Transform, **names: Any
    ) -> Transformed:
        """Read the columns of one or more tables as a frame.

        Raises:
            ConfigurationError: if pandas is not installed.
        """
        pandas = imported("pandas", "a transform of columns", "pandas")
        frame = pandas.concat(
            [part.select(columns).to_pandas(date_as_object=False) for part in parts], ignore_index=True
        )
        return cls(frame, targets, transform, **names)

    def __call__(self, rows: np.ndarray) -> torch.Tensor:
        """Return the inputs of all rows, float32 ``[n, d]``, of a copy of the transform that is fitted to `rows`.

        Raises:
            ConfigurationError: if the transform fails, or does not return finite numbers for each row.
        """
        return self.fitted(rows)(self.frame)

    def fitted(self, rows: np.ndarray) -> FittedTransform:
        """Return a copy of the transform that is fitted to `rows`.

        Raises:
            ConfigurationError: if fitting fails.
        """
        fitted = copy.deepcopy(self.transform)
        with _failing(fitted):
            fitted.fit(self.frame.iloc[rows], self.targets[rows])
        return FittedTransform(fitted, tuple(map(str, self.frame.columns)), self.label, self.classes)


@dataclass(frozen=True, eq=False)
class FittedTransform:
    """A fitted transformer of scikit-learn, with the names of columns and classes.

    Attributes:
        transform: the fitted object.
        columns: names of the columns that it takes.
        label, classes: name of the column of targets, and names of classes.
    """

    transform: Transform
    columns: tuple[str, ...]
    label: str
    classes: tuple[str, ...] | None

    def __call__(self, table: Any) -> torch.Tensor:
        """Return the inputs of a table's rows, float32 ``[n, d]``; other columns are ignored.

        Raises:
            ConfigurationError: if the transform fails, or does not return finite numbers for each row.
        """
        frame = table
        if not hasattr(frame, "iloc"):
            frame = read_columns(table, self.columns).to_pandas(date_as_object=False)
        name = type(self.transform).__name__
        with _failing(self.transform):
            values: Any = self.transform.transform(frame[list(self.columns)])
            values = np.asarray(values.toarray() if hasattr(values, "toarray") else values, dtype=np.float32)
        if values.ndim != 2 or len(values) != len(frame):
            raise ConfigurationError(
                f"transform: {name} returns {list(values.shape)}, needed a row of numbers for each of {len(frame)} rows"
            )
        if not np.isfinite(values).all():
            raise ConfigurationError(
                f"transform: {name} leaves missing or infinite values: add a SimpleImputer, or write missing='drop'"
            )
        return torch.from_numpy(values)


@contextmanager
def _failing(transform: Transform) -> Iterator[None]:
    """Name the transform in its errors."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigurationError(f"transform: {type(transform).__name__} fails on these columns: {error}") from error


_NANOSECONDS = 86_400_000_000_000  # of a day


class TransformFamily(Family):
    """A registry of transformers: objects, and functions and classes that make one."""

    @property
    def needs(self) -> str:
        """Description of a member, for messages."""
        return "an object with fit(frame, y) and transform(frame), or a function or class that makes one"

    def takes(self, piece: object) -> bool:
        """Return whether an object can be a member."""
        return is_transform(piece) or inspect.isfunction(piece)


def is_transform(piece: object) -> bool:
    """Return whether an object has the methods of a `Transform`."""
    return all(callable(getattr(piece, name, None)) for name in ("fit", "transform"))


TRANSFORMS = TransformFamily("transform", "transforms", ("turnout.data.transformer",))
"""Transformers of a table's columns, in place of ``scale`` and ``categories``."""


def mixed_columns() -> Transform:
    """Standardize numbers and dates after imputing means, and one-hot encode the other columns.

    A missing category, or one that is not in the training rows, is encoded as zeros.

    Raises:
        ConfigurationError: if scikit-learn is not installed.

    Example:
        >>> from turnout.data import from_table, mixed_columns
        >>> patients = {"age": [61, None, 55], "sex": ["f", "m", "f"], "ill": [0, 1, 1]}
        >>> from_table(patients, label="ill", transform=mixed_columns(), missing="fill").x.round(decimals=2)
        tensor([[ 1.2200,  1.0000,  0.0000],
                [ 0.0000,  0.0000,  1.0000],
                [-1.2200,  1.0000,  0.0000]])
    """
    parts = ("compose", "impute", "pipeline", "preprocessing")
    compose, impute, pipeline, preprocessing = (
        imported(f"sklearn.{part}", "the transform 'mixed'", ".[digits]", "scikit-learn") for part in parts
    )

    def standardized(*first: Any) -> Any:
        return pipeline.make_pipeline(*first, impute.SimpleImputer(), preprocessing.StandardScaler())

    columns, dates = compose.make_column_selector, ["datetime", "datetimetz"]
    return compose.make_column_transformer(
        (standardized(), columns(dtype_include=["number", "bool"])),
        (standardized(preprocessing.FunctionTransformer(_days)), columns(dtype_include=dates)),
        (preprocessing.OneHotEncoder(handle_unknown="ignore"), columns(dtype_exclude=["number", "bool", *dates])),
    )


def _days(frame: Any) -> Any:
    """Convert dates to days since 1970 in UTC; missing values stay missing."""
    utc = frame.apply(lambda column: column.dt.tz_convert(None) if column.dt.tz else column)
    return utc.apply(lambda column: column.astype("datetime64[ns]").astype("int64") / _NANOSECONDS).mask(frame.isna())


TRANSFORMS.register(mixed_columns, "mixed")
