"""Default settings of the command line, depending on the data and the pace.

Defaults that depend on the algorithm are declared with it (`turnout.algorithms.defaults`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path

from turnout.algorithms.defaults import Defaults
from turnout.cli import user_code
from turnout.cli.layers import merge
from turnout.cli.names import ALGORITHMS
from turnout.cli.options import Table, options_of, without

_DEFAULTS = tomllib.loads(Path(__file__).with_name("defaults.toml").read_text("utf-8"))
ANY: Table = _DEFAULTS["any"]
"""Settings for all data."""

BY_PACE: Mapping[str, Table] = _DEFAULTS["by_pace"]
"""Settings for each pace."""

BY_DATA: Mapping[str, Table] = _DEFAULTS["by_data"]
"""Settings for each data set."""

OWN_TESTS: Mapping[str, Table] = _DEFAULTS["own_tests"]
"""Settings for each data set and algorithms with a personal part."""

PERSONAL: Mapping[str, Table] = _DEFAULTS["personal"]
"""Options of algorithms with a personal part, for each model of which it is not the head."""


def availability(kind: Callable[..., object], options: Table, data: str) -> Table:
    """Return the option that correlates participation with labels, as in FedAU's experiments, for patterns without rates.

    Not where rows of a trace belong to the clients that they name, which no option moves. Not for text, which has no
    labels; the labels of Shakespeare are letters, whose distribution hardly depends on the role.
    """
    texts = ("shakespeare", "instructions")
    named = "drawn" in options_of(kind) and not options.get("drawn")
    applies = (
        "correlated_with_labels" in options_of(kind) and "rates" not in options and data not in texts and not named
    )
    return {"correlated_with_labels": 0.1} if applies else {}


def of_recipe(name: str) -> Defaults:
    """Return the defaults that a recipe declares; empty ones for an unknown name."""
    return Defaults.of(user_code.recipe(name) or ALGORITHMS.get(name))


def of_pace(layers: Sequence[Table], pace: str | None, data: str) -> Table:
    """Return the defaults of the pace that layers name, or that of their algorithm."""

    def last(section: str) -> str:
        return next((table[section]["name"] for table in reversed(layers) if "name" in table.get(section, {})), "")

    suited = of_recipe(last("algorithm"))
    table = BY_PACE.get(last("pace") or pace or suited.pace.get("name", ""), {})
    if not table:
        return {}
    table = merge(table, {"pace": without(suited.pace, ("name",))})
    if lr := suited.lr.get(data):
        table = merge(table, {"local": {"lr": lr}})
    speeds = [layer.get("population", {}).get("speed", {}) for layer in layers]
    # Options of the default model of speed are no other model.
    if any("kind" in speed if isinstance(speed, Mapping) else True for speed in speeds):
        return table
    return merge(table, {"population": {"speed": _DEFAULTS["speed"]}})


def local(under: Table, layers: Sequence[Table]) -> Table:
    """Return the default options of the solver that layers name, or that of their algorithm.

    Those of the data are step sizes for SGD, and do not apply to other solvers.
    """
    merged = reduce(merge, layers, under)
    suited = of_recipe(merged["algorithm"]["name"]).local
    inner = merged["algorithm"].get("local", {})
    options = {**suited, **merged.get("local", {}), **(inner if isinstance(inner, Mapping) else {})}
    solver = options.get("solver", "sgd")
    return {
        **(under.get("local", {}) if solver == "sgd" else {}),
        **(suited if suited.get("solver", "sgd") == solver else {}),
    }
