"""Read the column of targets of a table: labels of classes, or numbers to predict."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from turnout.core.checks import LARGEST_COUNT, DataError, known_name, shown
from turnout.data.cells import different_types, rounds_differences, texts
from turnout.data.values import different_names

LOG = logging.getLogger("turnout.data")

Task = Literal["classification", "regression"]

_MISSING = ("", "?", "-", "na", "n/a", "nan", "none", "null", "missing", "unknown")
"""Texts that programs write for missing values, in lower case."""

_FEW = 20  # distinct whole numbers as floats that are taken for classes


def labels_of(
    parts: Sequence[pa.Table], name: str, task: Task | None, classes: tuple[str, ...]
) -> tuple[np.ndarray, list[str] | None]:
    """Return labels, int64, or numbers to predict, float32, and the names of classes if labels are not numbers.

    Args:
        parts: tables of training and test rows.
        name: name of the column.
        task: what the targets are; None goes by the type of the column.
        classes: declared names of classes; empty for none.

    Raises:
        ConfigurationError: if a task is unknown.
        DataError: if a type does not suit the task, labels are not among the classes, or whole numbers as floats could be
            labels.
    """
    if task is not None:
        known_name("task", task, ("classification", "regression"))
    if classes and task != "regression":
        return _numbered(parts, name, classes), list(classes)
    values = [part.column(name).to_numpy() for part in parts]
    kinds = {part.dtype.kind.replace("u", "i") for part in values}
    if task == "regression":
        return _regression(values, name, kinds, classes), None
    if len(kinds) > 1:
        raise different_types(parts, name)
    if kinds == {"f"}:
        whole = whole_floats(values)
        if task is None and whole is None:
            return _floats(values, name), None
        if task is None:
            raise DataError(
                f"column {name!r} holds whole numbers as floats ({whole}), as labels become beside missing values: write "
                f"frame[{name!r}].astype('Int64') or task='classification' for classes, or task='regression' for numbers to "
                "predict"
            )
        if whole is None:
            raise DataError(f"column {name!r} holds fractions, which are no classes: write task='regression'")
        kinds = {"i"}
    if kinds == {"i"}:
        return _integers(values, name, task), None
    known, labels = np.unique(np.concatenate(values), return_inverse=True)
    names = [str(label) for label in known]
    _check_names(name, names)
    return labels.astype(np.int64), names


def _check_names(column: str, names: Sequence[str]) -> None:
    """Refuse names of classes that readers would show alike, and note those that differ by case or may be missing values."""
    different_names(f"column {column!r}", names)
    known: dict[str, str] = {}
    for name in names:
        if (other := known.setdefault(name.casefold(), name)) != name:
            LOG.warning("column %r has the classes %r and %r, which differ by case alone: write them alike if they are one",
                        column, other, name)  # fmt: skip
        if name.casefold() in _MISSING:
            LOG.warning("column %r has the class %r, which many programs write for a missing value: drop these rows if it is "
                        "one", column, name)  # fmt: skip


def named(part: pa.Table, table: Any, label: str) -> pa.Table:
    """Return a table with names of classes in place of the numbers of a ``ClassLabel`` of Hugging Face."""
    names = dict(enumerate(_names_of(table, label) or ()))
    if not names:
        return part
    column = [None if cell is None else names.get(cell, str(cell)) for cell in part.column(label).to_pylist()]
    return part.set_column(part.column_names.index(label), label, pa.array(column, pa.string()))


def declared_classes(table: Any, name: str) -> tuple[str, ...]:
    """Return the names of classes that a table declares: a ``ClassLabel`` of Hugging Face, categories of pandas.

    Classes without a row keep their number in this way. An empty tuple is none.
    """
    if names := _names_of(table, name):
        return tuple(map(str, names))
    if hasattr(table, "iloc") and name in table:
        values = getattr(table[name].dtype, "categories", None)
        return () if values is None else tuple(map(str, texts(pa.chunked_array([pa.array(values)]))))
    return ()


def _names_of(table: Any, name: str) -> Sequence[str] | None:
    """Return the names of a ``ClassLabel``; None for other columns."""
    feature = (getattr(table, "features", None) or {}).get(name) if hasattr(table, "with_format") else None
    return getattr(feature, "names", None)


def _integers(values: Sequence[np.ndarray], name: str, task: Task | None) -> np.ndarray:
    """Return whole numbers as labels, and note that they are taken for classes if more than two."""
    if (largest := max(int(part.max(initial=0)) for part in values)) > LARGEST_COUNT:
        raise DataError(f"column {name!r} has the label {largest}, needed classes numbered from 0")
    distinct = len(np.unique(values[0]))
    if task is None and distinct > 2:
        LOG.warning("column %r holds whole numbers, taken as %d classes: write task='regression' to predict numbers, or "
                    "task='classification'", name, distinct)  # fmt: skip
    # With a type, because NumPy concatenates signed and unsigned integers as floats.
    return np.concatenate(values, dtype=np.int64, casting="unsafe")


def _regression(values: Sequence[np.ndarray], name: str, kinds: set[str], classes: tuple[str, ...]) -> np.ndarray:
    """Return a column of numbers to predict."""
    if classes:
        raise DataError(f"classes: got {', '.join(classes)} beside task='regression', which has none: leave them out")
    if not kinds <= {"i", "f", "b"}:
        raise DataError(f"column {name!r} holds no numbers, which task='regression' needs: write task='classification'")
    return _floats(values, name)


def _floats(values: Sequence[np.ndarray], name: str) -> np.ndarray:
    numbers = np.concatenate([part.astype(np.float64) for part in values])
    if rounds_differences(numbers):
        LOG.warning("column %r has numbers from %.15g to %.15g, whose differences float32 rounds: subtract a number such as "
                    "their mean before", name, numbers.min(), numbers.max())  # fmt: skip
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)


def whole_floats(values: Sequence[np.ndarray]) -> str | None:
    """Return a few distinct whole numbers >= 0 of a column of floats in words; None for others."""
    distinct = np.unique(np.concatenate(values))
    if len(distinct) > _FEW or not len(distinct) or (distinct < 0).any() or (distinct != np.rint(distinct)).any():
        return None
    return ", ".join(str(float(value)) for value in distinct[:3]) + (", ..." if len(distinct) > 3 else "")


def _numbered(parts: Sequence[pa.Table], name: str, classes: tuple[str, ...]) -> np.ndarray:
    """Return the numbers of labels among declared classes."""
    if len(set(classes)) < len(classes):
        raise DataError(f"classes: got {', '.join(map(repr, classes))}, needed different names")
    index = {label: number for number, label in enumerate(classes)}
    if all(pa.types.is_integer(part.column(name).type) for part in parts) and not any(map(_is_number, classes)):
        index = {str(number): number for number in index.values()}  # a ClassLabel has numbers in its rows
    labels = [label for part in parts for label in texts(part.column(name))]
    if unknown := sorted({str(label) for label in labels if label not in index}):
        raise DataError(
            f"column {name!r} has the labels {', '.join(unknown[:10])}, which are not among the declared classes "
            f"{', '.join(classes)} (first in row {labels.index(unknown[0]) + 1}, {shown(unknown[0])})"
        )
    return np.array([index[str(label)] for label in labels], dtype=np.int64)


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdecimal()
