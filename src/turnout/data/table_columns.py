"""Choose the columns of a table that are inputs, and describe what is declared of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from turnout.core.checks import ConfigurationError, known_name, positive
from turnout.data.preparation import PreparedColumn

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
