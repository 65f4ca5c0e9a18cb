"""Write all settings of a run or comparison as a TOML file, with which it can be repeated."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from turnout.cli import user_code
from turnout.cli.names import SOLVERS
from turnout.cli.options import REQUIRED, Table, only, options_of, without
from turnout.cli.run import settings_of
from turnout.cli.sections import NAMED
from turnout.cli.settings import Settings
from turnout.cli.variants import Layers
from turnout.experiment import Experiment
from turnout.results.grid import Sweep
from turnout.results.range import Range

BEST = "best.toml"
"""The comparison of the best points, in the folder of a sweep."""

_FILLED = ("model", "availability", "pace")
"""Named sections that are written with all options. Not algorithms: an explicit cohort size differs from a default one."""


def completed(table: Table) -> Table:
    """Return settings with defaults filled in, as far as TOML can represent them."""
    filled = {
        key: _filled(table[key], user_code.member(NAMED[key], table[key]["name"])) for key in _FILLED if key in table
    }
    local = {"solver": "sgd", **table.get("local", {})}
    local = {"solver": local["solver"], **_filled(local, SOLVERS[local["solver"]])}
    return {**_filled(table, Experiment), **filled, "local": local}


def _filled(options: Table, piece: Any) -> Table:
    """Return options with the defaults of their piece that TOML can represent filled in, the name first."""
    defaults = {name: option.default for name, option in options_of(piece).items()}
    plain = {name: _plain(value) for name, value in defaults.items() if value is not REQUIRED and _is_plain(value)}
    return {**only(options, ("name",)), **plain, **options}


def _is_plain(value: Any) -> bool:
    """Return whether TOML can represent a value; None is written as text."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value)) and None not in value
    return value is None or isinstance(value, bool | int | float | str)


def _plain(value: Any) -> Any:
    return list(map(_plain, value)) if isinstance(value, tuple) else value


_OF_ONE = ("name", "algorithm", "seed")
"""Settings that a file contains per algorithm, or not at all."""


def file_of(plan: Mapping[str, Settings], comparison: Layers) -> Table:
    """Return a comparison as the content of a file: the shared settings, and a table for each algorithm."""
    tables = {name: completed(settings.table) for name, settings in plan.items()}
    first = next(iter(tables.values()))
    shared = {
        key: value
        for key, value in first.items()
        if key not in _OF_ONE and all(table.get(key) == value for table in tables.values())
    }
    own_tables = {name: _own(name, table, shared) for name, table in tables.items()}
    whole = {} if comparison.to_accuracy is None else {"to_accuracy": comparison.to_accuracy}
    return {"seeds": 3 if comparison.seeds is None else comparison.seeds, **whole, **shared, "algorithms": own_tables}


def _own(name: str, table: Table, shared: Table) -> Table:
    """Return the settings of one algorithm: its recipe, if the name is another, its options, and unshared sections."""
    recipe = dict(table["algorithm"])
    called = {} if (of := recipe.pop("name")) == name else {"algorithm": of}
    return called | recipe | without(table, (*_OF_ONE, *shared))


def sweep_file_of(
    settings: Settings, axes: Mapping[str, Any], seeds: Sequence[int], to_accuracy: float | None
) -> Table:
    """Return a sweep as the content of a file: the settings of one of its points, and the grid.

    Args:
        settings: settings of the point.
        axes: values or a range for each axis.
        seeds: seeds of the runs of each point.
        to_accuracy: target accuracy, if the sweep optimizes the rounds until it.
    """
    left_out = {"name", "seed", *(["algorithm"] if "algorithm" in axes else [])}
    table = without(completed(settings.table), left_out)
    whole = {} if to_accuracy is None else {"to_accuracy": to_accuracy}
    grid = {axis: str(among) if isinstance(among, Range) else list(among) for axis, among in axes.items()}
    return {"seeds": ",".join(map(str, seeds)) + "," * (len(seeds) == 1), **whole, **table, "grid": grid}


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


def toml(table: Mapping[str, Any]) -> str:
    """Write settings as a TOML file; None, which TOML lacks, is written as ``"none"``.

    >>> print(toml({"rounds": 3, "data": {"name": "digits", "alpha": None}}), end="")
    rounds = 3
    <BLANKLINE>
    [data]
    name = "digits"
    alpha = "none"
    """
    return "\n".join(_lines(table, "")).lstrip("\n") + "\n"


def _lines(table: Mapping[str, Any], heading: str) -> list[str]:
    """Return the lines of a table, values before nested tables."""
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = ["", f"[{heading}]"] if heading and (plain or not table) else []
    lines += [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += _lines(value, f"{heading}.{_key(key)}" if heading else _key(key))
    return lines


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def _value(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool | int | float):
        return repr(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return _text(str(value))


def _text(text: str) -> str:
    """Return a TOML basic string: that of JSON, except that DEL is escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
