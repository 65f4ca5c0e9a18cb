"""Make the settings of points of a sweep, and the comparison of the best ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnout.cli import layers, user_code
from turnout.cli.options import Table
from turnout.cli.print_config import file_of, toml
from turnout.cli.run import one_algorithm
from turnout.cli.settings import Settings
from turnout.cli.variants import Layers
from turnout.core.checks import ConfigurationError
from turnout.results.grid import Sweep, assignments

BEST = "best.toml"
"""The comparison of the best points, in the folder of a sweep."""


def settings_of(under: Sequence[Table], algorithm: str | None, name: str, point: Mapping[str, Any]) -> Settings:
    """Return the settings of one point."""
    values = [layers.nested(layers.keys_of(axis), value) for axis, value in point.items() if axis != "algorithm"]
    try:
        return one_algorithm([*under, *values, {"name": name}], point.get("algorithm", algorithm))
    except ConfigurationError as error:
        raise ConfigurationError(f"{assignments(point)}: {error}") from error


def best_comparison(result: Sweep, under: Sequence[Table], algorithm: str | None, seeds: Sequence[int]) -> str:
    """Return the comparison of the best point of each algorithm as TOML, on five seeds that chose nothing.

    Args:
        result: the finished sweep.
        under: layers of settings, without examples that are held out for the sweep alone.
        algorithm: the algorithm, unless it is an axis.
        seeds: seeds of the sweep.
    """
    best = result.best_for("algorithm") if "algorithm" in result.axes else {}
    settings = {}
    for point in best.values() or [result.best_point]:
        table = settings_of(under, algorithm, point, result.points[point]).table
        name = user_code.short(table["algorithm"]["name"])
        settings[name] = Settings.of(table, {"name": name})
    others = list(range(max(seeds) + 1, max(seeds) + 6))
    return toml(file_of(settings, Layers((), (), others, result.to_accuracy)))
