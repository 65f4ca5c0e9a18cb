"""Convert columns of a table to inputs, with statistics of the training rows."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from turnout.core.checks import ConfigurationError, DataError
from turnout.core.extras import imported
from turnout.core.registry import Family

_DAY = 86_400_000_000  # microseconds

_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
"""Types of numeric columns; the last one is that of a column without any value."""


class Transform(Protocol):
    """The interface of scikit-learn's transformers."""

    def fit(self, frame: Any, y: Any = None, /) -> Any:
        """Fit to a frame and targets."""
        ...

    def transform(self, frame: Any, /) -> Any:
        """Return the inputs ``[n, d]`` of a frame."""
        ...


@dataclass(frozen=True, eq=False)
class Columns:
    """Numeric columns, optionally standardised and with missing values imputed by means, and one-hot encoded categories.

    Attributes:
        values: values of all rows, float64 ``[n, d]``; NaN for missing numbers.
        names: names of the table column of each input, of length d.
        is_number: mask of inputs from numeric columns, ``[d]``.
        scale: standardise numbers to mean 0 and standard deviation 1.
    """

    values: np.ndarray
    names: tuple[str, ...]
    is_number: np.ndarray
    scale: bool

    @classmethod
    def of(cls, parts: Sequence[pa.Table], columns: Sequence[str], categories: Sequence[str], scale: bool) -> Columns:
        """Read the columns of one or more tables; the first one has the training rows.

        Raises:
            ConfigurationError: if a column is neither numeric, nor of dates, nor among the categories.
            DataError: if a column has no values in the training rows.
        """
        read = [_categories(parts, name) if name in categories else numbers(parts, name) for name in columns]
        width = [values.shape[1] for values in read]
        is_number = np.repeat([name not in categories for name in columns], width)
        return cls(np.concatenate(read, axis=1), tuple(np.repeat(columns, width).tolist()), is_number, scale)

    @property
    def is_fitted(self) -> bool:
        """True if inputs depend on statistics of the training rows."""
        return self.scale or bool(np.isnan(self.values).any())

    def __call__(self, rows: np.ndarray) -> torch.Tensor:
        """Return the inputs of all rows, float32 ``[n, d]``, with means and standard deviations of `rows`.

        Standardisation is ``x_j <- (x_j - mean_j) / std_j``, as in ``StandardScaler``; a constant column becomes 0.

        Raises:
            DataError: if a column has no values in `rows`.
        """
        values = self.values
        if self.is_fitted:
            train = values[rows]
            if (unknown := np.isnan(train).all(axis=0)).any():
                raise DataError(
                    f"column {self.names[int(unknown.argmax())]!r} has no value in the training rows, and so no mean: "
                    "leave it out by features=(...)"
                )
            mean = np.nanmean(train, axis=0)
            values = np.where(np.isnan(values), mean, values)
            if self.scale:
                # After imputation, as in a pipeline of SimpleImputer and StandardScaler.
                std = values[rows].std(axis=0)
                scaled = (values - mean) / np.where(std > 0, std, 1.0)
                values = np.where(self.is_number, scaled, values)
        with np.errstate(over="ignore"):  # `Source` raises an error for infinity
            return torch.from_numpy(values.astype(np.float32))


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
    is_fitted = True

    @classmethod
    def of(
        cls, parts: Sequence[pa.Table], columns: Sequence[str], targets: np.ndarray, transform: Transform
    ) -> Transformed:
        """Read the columns of one or more tables as a frame.

        Raises:
            ConfigurationError: if pandas is not installed.
        """
        pandas = imported("pandas", "a transform of columns", "pandas")
        frame = pandas.concat(
            [part.select(columns).to_pandas(date_as_object=False) for part in parts], ignore_index=True
        )
        return cls(frame, targets, transform)

    def __call__(self, rows: np.ndarray) -> torch.Tensor:
        """Return the inputs of all rows, float32 ``[n, d]``, of a copy of the transform that is fitted to `rows`.

        Raises:
            ConfigurationError: if the transform fails, or does not return finite numbers for each row.
        """
        name = type(self.transform).__name__
        try:
            fitted = copy.deepcopy(self.transform)
            fitted.fit(self.frame.iloc[rows], self.targets[rows])
            values = fitted.transform(self.frame)
            values = np.asarray(values.toarray() if hasattr(values, "toarray") else values, dtype=np.float32)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigurationError(f"transform: {name} fails on these columns: {error}") from error
        if values.ndim != 2 or len(values) != len(self.frame):
            raise ConfigurationError(
                f"transform: {name} returns {list(values.shape)}, needed a row of numbers for each of {len(self.frame)} rows"
            )
        if not np.isfinite(values).all():
            raise ConfigurationError(
                f"transform: {name} leaves missing or infinite values: add a SimpleImputer, or write missing='drop'"
            )
        return torch.from_numpy(values)


def numbers(parts: Sequence[pa.Table], name: str) -> np.ndarray:
    """Convert a column of all parts to numbers, float64 ``[n, 1]``; NaN for missing values.

    Raises:
        ConfigurationError: if a column is neither numeric nor of dates.
        DataError: if a column has no values in the training rows.
    """
    columns = [part.column(name) for part in parts]
    _check_values(columns[0], name)
    floats = []
    for column in columns:
        if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
            stamps = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=False).cast(pa.int64())
            column = pc.call_function("divide", [stamps.cast(pa.float64()), pa.scalar(float(_DAY))])
        elif not any(is_kind(column.type) for is_kind in _NUMBERS):
            raise ConfigurationError(
                f"column {name!r} holds {column.type}, which are no numbers: write categories=({name!r},) for a 0 or 1 for "
                "each value, or leave it out by features=(...)"
            )
        floats.append(column.cast(pa.float64(), safe=False).to_numpy())
    return np.concatenate(floats)[:, None]


def _categories(parts: Sequence[pa.Table], name: str) -> np.ndarray:
    """Return a one-hot encoding of a column over the sorted values of all parts, ``[n, values]``."""
    columns = [part.column(name) for part in parts]
    _check_values(columns[0], name)
    known = np.unique(np.concatenate([column.drop_null().to_numpy() for column in columns]))
    cells = np.concatenate([column.to_numpy() for column in columns])
    return np.stack([cells == value for value in known], axis=1).astype(np.float64)


def _check_values(column: pa.ChunkedArray, name: str) -> None:
    """Raise an error for a column without any value."""
    if column.null_count == len(column):
        raise DataError(f"column {name!r} has no value in the training rows: leave it out by features=(...)")


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


TRANSFORMS = TransformFamily("transform", "transforms", ("turnout.data.columns",))
"""Transformers of a table's columns, in place of ``scale`` and ``categories``."""


def mixed_columns() -> Transform:
    """Standardise numbers and dates after imputing means, and one-hot encode the other columns.

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
        imported(f"sklearn.{part}", "the transform 'mixed'", "turnout[digits]", "scikit-learn") for part in parts
    )

    def standardised(*first: Any) -> Any:
        return pipeline.make_pipeline(*first, impute.SimpleImputer(), preprocessing.StandardScaler())

    columns = compose.make_column_selector
    return compose.make_column_transformer(
        (standardised(), columns(dtype_include=["number", "bool"])),
        (standardised(preprocessing.FunctionTransformer(_days)), columns(dtype_include=["datetime"])),
        (preprocessing.OneHotEncoder(handle_unknown="ignore"), columns(dtype_exclude=["number", "bool", "datetime"])),
    )


def _days(frame: Any) -> Any:
    """Convert dates to days since 1970; missing values stay missing."""
    return frame.apply(lambda column: column.astype("datetime64[ns]").astype("int64") / _NANOSECONDS).mask(frame.isna())


TRANSFORMS.register(mixed_columns, "mixed")
