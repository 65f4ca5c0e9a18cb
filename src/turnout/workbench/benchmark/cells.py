"""Read the cells of a version of the benchmark, and make the experiment of a rule in a cell."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from inspect import signature
from typing import Any

import numpy as np

from turnout.cli.names import ALGORITHMS
from turnout.cli.options import options_of
from turnout.cli.settings import Settings
from turnout.cli.tune import RATIO, STEPS
from turnout.cli.user_code import member
from turnout.core.checks import known_name
from turnout.experiment import Experiment
from turnout.population.diagnostics import presence

TIERS = ("small", "full")


@dataclass(frozen=True)
class Cell:
    """A data set, a kind of participation, and its rates.

    Attributes:
        name: name of the cell.
        tier: ``"small"`` needs nothing but the package and scikit-learn; ``"full"`` needs downloads.
        rates: what the rates of participation are related to: ``"unrelated"``, ``"labels"`` or ``"speed"``.
        target: the test accuracy whose cost is counted.
        settings: settings of a run, as in a file of ``turnout compare --config``.
    """

    name: str
    tier: str
    rates: str
    target: float
    settings: Mapping[str, Any]

    def experiment(self, rule: str, options: Mapping[str, Any], seed: int, **numbers: Any) -> Experiment:
        """Return the experiment of a rule with these options, with one seed.

        Args:
            rule: name of a recipe, or ``FILE.py:NAME``.
            options: options of the recipe, and ``local.lr``.
            seed: the seed.
            numbers: settings in place of those of the cell, such as ``rounds``.
        """
        own = {name: value for name, value in options.items() if name != "local.lr"}
        local = {"lr": options["local.lr"]} if "local.lr" in options else {}
        rule_settings = {"algorithm": {"name": rule, **own}, "local": local}
        return Settings.of(self.settings, rule_settings, numbers)(seed)

    @cached_property
    def _first(self) -> Experiment:
        """The experiment of the first seed with the default rule, for its splits and participation."""
        return Settings.of(self.settings)(0)

    @property
    def model(self) -> Any:
        """The model that rules train."""
        return self._first.model

    @cached_property
    def present(self) -> np.ndarray:
        """Return which clients are available in which round with the first seed, ``[clients, rounds]``."""
        return available_in(self._first)

    @cached_property
    def hash(self) -> str:
        """The hash of the settings, and of splits and participation of the first seed in the first rounds."""
        digest = hashlib.sha256(json.dumps([self.target, dict(self.settings)], sort_keys=True).encode())
        for shards in self._first.data.splits.values():
            digest.update(np.ascontiguousarray(shards.offsets, dtype=np.int64).tobytes())
            digest.update(np.ascontiguousarray(shards.y.numpy()).tobytes())
        for present in self.present.T:
            digest.update(np.packbits(present).tobytes())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Version:
    """The declarations of a version; its rows can be compared with each other only."""

    name: str
    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]
    tuning_budget: Mapping[str, int]
    reference: str
    rules: Mapping[str, Mapping[str, Any]]
    cells: tuple[Cell, ...]
    baselines: tuple[str, ...] = ()

    @classmethod
    def read(cls, name: str = "v1") -> Version:
        """Read the declarations of a version that the package contains."""
        folder = files("turnout.workbench.benchmark")
        known_name("version", name, sorted(file.name[:-5] for file in folder.iterdir() if file.name.endswith(".toml")))
        table = tomllib.loads(folder.joinpath(f"{name}.toml").read_text("utf-8"))
        return cls(
            table["version"], tuple(table["seeds"]), tuple(table["tuning_seeds"]), table["tuning_budget"],
            table["reference"], table["rules"],
            tuple(_cell(name, cell, table) for name, cell in table["cells"].items()), tuple(table["baselines"]),
        )  # fmt: skip

    def of_tier(self, tier: str, names: Sequence[str] = ()) -> list[Cell]:
        """Return the cells of a tier: those with these names, or all of them."""
        known_name("tier", tier, TIERS)
        cells = {cell.name: cell for cell in self.cells if cell.tier == tier}
        for name in names:
            known_name(f"cell of the {tier} tier", name, sorted(cells))
        return [cells[name] for name in names or cells]

    def options(self, rule: str) -> dict[str, Any]:
        """Return the options of a rule that are not searched: every available client takes part, unless the rule selects."""
        recipe, declared = member(ALGORITHMS, rule), dict(self.rules.get(rule, {}))
        if (size := options_of(recipe).get("cohort_size")) is not None and size.default is not None:
            declared = {"cohort_size": None, **declared}
        return {name: value for name, value in declared.items() if name not in STEPS}

    def axes(self, rule: str, cell: Cell) -> dict[str, tuple[float, ...]]:
        """Return the first values of the searched options of a rule: its local step size, and that of the server."""
        recipe, lr = member(ALGORITHMS, rule), cell.settings["local"]["lr"]
        axes = {"local.lr": (lr / RATIO, lr, lr * RATIO)}
        for name in STEPS:
            if name in options_of(recipe) and (default := signature(recipe).parameters[name].default) is not None:
                least = float(self.rules.get(rule, {}).get(name, default))
                axes[name] = (least, least * RATIO, least * RATIO**2)
                break
        return axes


def available_in(experiment: Experiment) -> np.ndarray:
    """Return the availability ``[clients, rounds]`` of an experiment."""
    data = experiment.data
    counts = data.label_counts() if data.has_labels else None
    bound = experiment.population.availability.bind(data.num_clients, counts, experiment.seed)
    return presence(bound, experiment.rounds)


def _cell(name: str, cell: Mapping[str, Any], table: Mapping[str, Any]) -> Cell:
    """Return a cell with the settings of its data and of its participation."""
    known_name("tier", cell["tier"], TIERS)
    data, own = table["data"][cell["data"]], {"availability", "pace", "population"}
    settings = {**table["defaults"], **data, **{key: cell[key] for key in own & cell.keys()}}
    settings["local"] = {**table["defaults"]["local"], **data.get("local", {})}
    return Cell(name, cell["tier"], cell["rates"], cell["target"], settings)
