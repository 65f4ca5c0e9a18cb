"""Separate settings of a comparison into those of all algorithms and those of single ones.

A table ``[algorithms.NAME]`` contains options of that algorithm, tables ``local``, ``selection``, ``aggregation``,
``server`` and ``also`` that override the common ones, and ``algorithm`` if the name is not that of a recipe:
``[algorithms.fedau_inf]`` ``algorithm = "fedau"``, ``cutoff = "none"``. On the command line that is
``fedau_inf.algorithm=fedau``. A ``pace`` there is for that algorithm only, with the same clients as the others:
``fedavg.pace=rounds`` compares synchronous FedAvg with FedBuff.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnout.base import PoolsExamples
from turnout.cli import defaults, user_code
from turnout.cli.options import Table, only, without
from turnout.cli.sections import KEYS
from turnout.cli.settings import Settings
from turnout.comparison.planned import MOST_SEEDS
from turnout.core.checks import ConfigurationError, refuse

_PARTS = ("local", "selection", "aggregation", "server", "also")
_OF_ALL = ("seeds", "to_accuracy")
"""Settings of the entire comparison."""


@dataclass(frozen=True)
class Layers:
    """Separated layers of settings; later ones override earlier ones.

    Attributes:
        common: settings of all algorithms, per layer.
        single: tables of settings of single algorithms, per layer.
        seeds: their number, or a list; None if not given.
        to_accuracy: target accuracy; None if not given.
    """

    common: tuple[Table, ...]
    single: tuple[Table, ...]
    seeds: Any = None
    to_accuracy: Any = None

    @classmethod
    def of(cls, layers: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> Layers:
        """Separate layers; ``fedau.cutoff=10`` is an option of an algorithm that is in `names` or has a table."""
        tables = [_tables(layer.get("algorithms", {})) for layer in layers]
        known = {*names, *(name for table in tables for name in table)} - set(KEYS)
        common, single, of_all = [], [], dict.fromkeys(_OF_ALL)
        for layer, table in zip(layers, tables, strict=True):
            of_all |= only(layer, _OF_ALL)
            single.append(table | _tables(only(layer, known)))
            common.append(without(layer, {*known, "algorithms", *_OF_ALL}))
        return cls(tuple(common), tuple(single), **of_all)

    @property
    def names(self) -> list[str]:
        """The algorithms that have a table, in order of appearance."""
        return list(dict.fromkeys(name for table in self.single for name in table))

    def plan(self, names: Sequence[str]) -> dict[str, Settings]:
        """Return the settings of several algorithms, with the same pace and evaluation.

        If one has a personal part, or is a baseline, all are evaluated on clients' test examples; if one is asynchronous, all
        are, unless the settings name a pace.
        """
        recipes = [recipe for recipe in map(self._recipe, names) if isinstance(recipe, str)]
        pace = next((name for recipe in recipes if (name := defaults.of_recipe(recipe).pace.get("name"))), None)
        plan = {name: self.settings(name, pace=pace) for name in names}
        algorithms = [settings.algorithm() for settings in plan.values()]
        # These are compared by what they are worth to single clients.
        if any(each.personal is not None or isinstance(each.selection, PoolsExamples) for each in algorithms):
            return {name: self.settings(name, own_tests=True, pace=pace) for name in names}
        return plan

    def settings(self, name: str, own_tests: bool = False, pace: str | None = None) -> Settings:
        """Return the settings of the algorithm called `name`; see `Settings.of` for `own_tests` and `pace`."""
        layers: list[Table] = [{"name": user_code.short(name)}]
        paces: list[Table] = []
        for i, (common, single) in enumerate(zip(self.common, self.single, strict=True)):
            table = {**single.get(user_code.short(name), {}), **single.get(name, {})}
            paces += [only(table, ("pace",))] if "pace" in table else []
            layers += [common, only(table, _PARTS)]
            options = without(table, ("algorithm", "pace", *_PARTS))
            if options or i == 0:
                layers.append({"algorithm": {"name": self._recipe(name), **options}})
        made = Settings.of(*layers, own_tests=own_tests, pace=pace)
        return _at_own_pace(name, made, paces, any("selection" in layer for layer in layers)) if paces else made

    def _recipe(self, name: str) -> Any:
        """Return the recipe of the algorithm called `name`."""
        tables = (table.get(name, {}) for table in reversed(self.single))
        return next((table["algorithm"] for table in tables if "algorithm" in table), name)


def _at_own_pace(name: str, made: Settings, paces: Sequence[Table], selected: bool) -> Settings:
    """Return settings with another pace, but with the same clients.

    A default selection depends on the pace of the others, and is dropped.
    """
    shared = made.table if selected else without(made.table, ("selection",))
    alone = Settings.of(shared, *paces)
    if alone.table["pace"]["name"] == "buffered" != made.table["pace"]["name"]:
        raise ConfigurationError(
            f"{name}.pace: got buffered, where the others go by rounds, in which clients have no speed: write "
            "pace=buffered, and NAME.pace=rounds for each of the others"
        )
    return alone


def _tables(algorithms: Any) -> Table:
    """Return ``algorithms`` as a table for each; a list of names has no options."""
    if isinstance(algorithms, list) and all(isinstance(name, str) for name in algorithms):
        return {name: {} for name in algorithms}
    if not isinstance(algorithms, Mapping):
        raise refuse("algorithms", given=algorithms, needed="a list of names, or a table [algorithms.NAME] for each")
    for name, options in algorithms.items():
        if not isinstance(options, Mapping):
            raise refuse(name, given=options, needed=f"a table of options, or one of them: {name}.cutoff=10")
    return dict(algorithms)


def seeds_of(value: Any) -> list[int]:
    """Parse seeds: 3 or ``"3"`` is 0, 1, 2; a list or ``"0,4,7"`` is that list."""
    if isinstance(value, str) and "," in value:
        value = list(filter(None, map(str.strip, value.split(","))))
    try:
        numbers = list(map(int, map(str, value))) if isinstance(value, list) else range(int(str(value)))
    except ValueError:
        numbers = []
    if len(numbers[: MOST_SEEDS + 1]) > MOST_SEEDS:  # a range may be too long for its length
        raise ConfigurationError(f"seeds: got {value!r}, needed at most {MOST_SEEDS:,}")
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise ConfigurationError(f"seeds: got {value!r}, needed how many, as in 5, or which, as in 0,3,7")
    return list(numbers)
