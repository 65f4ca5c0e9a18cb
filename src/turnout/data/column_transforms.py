"""Transforms of the columns of tables by name; those of a file of one's own are named as ``FILE.py:NAME``."""

from __future__ import annotations

import inspect
from typing import Any

from turnout.core.extras import imported
from turnout.core.registry import Family
from turnout.data.columns import Transform

_NANOSECONDS = 86_400_000_000_000  # of a day


class TransformFamily(Family):
    """Transforms by name: functions and classes that make one, and objects that are one."""

    @property
    def needs(self) -> str:
        """A member in words, for messages."""
        return "an object with fit(frame, y) and transform(frame), or a function or class that makes one"

    def takes(self, piece: object) -> bool:
        """Tell whether an object could be a member."""
        is_one = all(callable(getattr(piece, name, None)) for name in ("fit", "transform"))
        return is_one or inspect.isfunction(piece)


TRANSFORMS = TransformFamily("transform", "transforms", ("turnout.data.column_transforms",))
"""Transforms of a table's columns into inputs, in place of ``scale`` and ``categories``."""


def mixed_columns() -> Transform:
    """Standardise numbers and dates, with means for missing ones, and have a 0 or 1 for each category of other columns.

    A category that was not among the rows that train, or is missing, is 0 everywhere.

    Raises:
        ConfigurationError: where scikit-learn is not installed.

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
    """Return dates as days since 1970; what is missing stays so."""
    return frame.apply(lambda column: column.astype("datetime64[ns]").astype("int64") / _NANOSECONDS).mask(frame.isna())


TRANSFORMS.register(mixed_columns, "mixed")
