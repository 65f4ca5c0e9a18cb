"""The settings of a run as plain values, and the experiment that they describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import torch
from torch import nn

from turnout.base import Piece
from turnout.base.algorithm import Algorithm
from turnout.cli import data_section, defaults, user_code
from turnout.cli.layers import data_of, merge
from turnout.cli.names import ALGORITHMS, ALSO, AVAILABILITY, LOSSES, SOURCES
from turnout.cli.options import Table, arguments, build, only, options_of, unknown_option, without
from turnout.cli.sections import chosen, local_of, piece_of, tidy
from turnout.comparison.folders import check_name
from turnout.core.checks import ConfigurationError, refuse
from turnout.core.random import stream
from turnout.data.federated import FederatedData
from turnout.experiment import Experiment
from turnout.models import ModelSpec
from turnout.pieces.selection import Uniform
from turnout.population import Availability, Population
from turnout.protocol.pace import Buffered, BufferedGroups, Pace


@dataclass(frozen=True)
class Settings:
    """All settings of a run, like those of a TOML file; missing ones have the defaults of their pieces.

    Attributes:
        table: ``name`` (of the run in reports), a table for each section, and the numbers of `Experiment`.
    """

    table: Table

    @classmethod
    def of(cls, *layers: Mapping[str, Any], own_tests: bool = False, pace: str | None = None) -> Settings:
        """Merge layers with the defaults of the command line; later ones override earlier ones.

        Args:
            own_tests: whether clients have their own test examples by default, as for algorithms with a personal part.
            pace: default pace; None is that of the algorithm.

        Raises:
            ConfigurationError: if settings are invalid, as far as they can be checked without the data.
        """
        named = data_of(layers)
        data = named.get("name", "declared" if "inputs" in named else defaults.ANY["data"]["name"])
        user_code.member(SOURCES, data)
        tidied = [tidy(layer, data) for layer in layers]
        below = (
            defaults.ANY,
            {"data": {"name": data}},
            defaults.BY_DATA.get(data, {}),
            defaults.of_pace(tidied, pace, data),
        )
        under = reduce(merge, below)
        if local := defaults.local(under, tidied):
            under = {**under, "local": local}
        else:
            under.pop("local", None)
        # Twice, because a layer may replace a table with defaults, and a later one restore it.
        table = merge(under, reduce(merge, tidied, under))
        if "model" not in table:
            raise ConfigurationError(
                f"model: there is no default one for {data}: write --model NAME (turnout list models)"
            )
        kind = chosen("availability", table["availability"], AVAILABILITY)
        # Other losses may be for data without labels.
        if table.get("loss", {}).get("name", "cross_entropy") == "cross_entropy":
            table = merge({"availability": defaults.availability(kind, table["availability"], data)}, table)
        if "personal" in options_of(_recipe(table["algorithm"])):
            table = merge({"algorithm": defaults.PERSONAL.get(table["model"].get("name"), {})}, table)
        of_model = defaults.of_recipe(table["algorithm"]["name"]).model
        table = merge({"model": of_model.get(table["model"].get("name"), {})}, table)
        settings = cls({"name": user_code.short(table["algorithm"]["name"]), **table}).with_selection()
        settings.check()
        if own_tests or settings.algorithm().personal is not None:
            settings = cls(merge(defaults.OWN_TESTS.get(data, {}), settings.table))
        return settings

    def with_selection(self) -> Settings:
        """Select all available clients by default in asynchronous runs.

        The cohort size of a recipe has no meaning there; an explicit one is an error.
        """
        named = "selection" in self.table or "cohort_size" in self.table["algorithm"]
        buffered = isinstance(self.pace(), Buffered | BufferedGroups)
        if named or not buffered or not isinstance(self.algorithm().selection, Uniform):
            return self
        return replace(self, table={**self.table, "selection": {"name": "all_available"}})

    def seeded(self, seed: int) -> Settings:
        """Return the settings with another seed."""
        return replace(self, table={**self.table, "seed": seed})

    @property
    def name(self) -> str:
        """The name of the run in reports."""
        return self.table["name"]

    def check(self) -> None:
        """Raise an error for invalid settings, as far as they can be checked without the data."""
        check_name(self.name)
        self.numbers()
        self.algorithm()
        self.population()
        self.pace()
        self.model()
        self.loss()
        data_section.check(self.table["data"])

    def __call__(self, seed: int) -> Experiment:
        """Return the experiment with another seed, so that settings can be arguments of `turnout.comparison.compare`."""
        return self.seeded(seed).experiment()

    def experiment(self, data: FederatedData | None = None) -> Experiment:
        """Return the experiment; load the data unless they are given."""
        numbers = self.numbers()
        return Experiment(
            data=data or self.data(),
            model=self.model(),
            algorithm=self.algorithm(),
            population=self.population(),
            pace=self.pace(),
            **self.loss(),
            **numbers,
        )

    def numbers(self) -> dict[str, Any]:
        """Return the options of `Experiment` itself: rounds, seed, device, ..."""
        names = options_of(Experiment)
        values = arguments(Experiment, only(self.table, names), "", ready=names)
        if isinstance(metrics := values.get("metrics"), list | tuple):
            values["metrics"] = tuple(user_code.loaded(name) if ".py:" in str(name) else name for name in metrics)
        return values

    def model(self) -> ModelSpec | nn.Module:
        """Return the model or its specification; the weights of a user's module depend on the seed only."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(stream("model weights", self.numbers().get("seed", 0)))
            return self._named("model")

    def loss(self) -> dict[str, Any]:
        """Return the loss, if the settings name one, as an argument of `Experiment`."""
        table = self.table.get("loss", {})
        if not table:
            return {}
        for option in table:
            if option != "name":
                raise unknown_option(f"loss.{option}", str(table.get("name", "the loss")), ())
        return {"loss": chosen("loss", table, LOSSES)}

    def availability(self) -> Availability:
        """Return the availability of clients."""
        return self._named("availability")

    def pace(self) -> Pace:
        """Return the pace."""
        return self._named("pace")

    def population(self) -> Population:
        """Return the population."""
        return build(Population, self.table.get("population", {}), "population", availability=self.availability())

    def algorithm(self) -> Algorithm:
        """Return the algorithm, with its local solver, selection and further pieces."""
        table = self.table["algorithm"]
        recipe = _recipe(table)
        ready: dict[str, Any] = {"also": self._also()}
        options = without(table, ("name",))
        if not isinstance(own_local := options.pop("local", {}), Mapping):
            raise refuse("algorithm.local", given=own_local, needed="a table of options")
        if local := {**self.table.get("local", {}), **own_local}:
            ready["local"] = local_of(local, recipe)
        algorithm = build(recipe, options, "algorithm", **ready)
        if not isinstance(algorithm, Algorithm):
            raise refuse(
                table["name"], given=algorithm, needed="an algorithm", instead="Return what to.compose(...) makes"
            )
        return algorithm.named(self.name)

    def declared(self) -> FederatedData | None:
        """Return zeros of the declared shape of the data; None if the settings declare none."""
        return data_section.declared_by(self.table["data"])

    def data(self) -> FederatedData:
        """Load the data and split them over clients; see `turnout.cli.data_section.load`."""
        return data_section.load(self.table["data"], self.numbers().get("seed", 0))

    def _also(self) -> tuple[Piece, ...]:
        """Return the selection, aggregation and server optimizer, if the settings have one, and the further pieces."""
        pieces = [self._named(section) for section in ("selection", "aggregation", "server") if section in self.table]
        for name, options in self.table.get("also", {}).items():
            kind = user_code.member(ALSO, name)
            if not isinstance(options, Mapping):
                raise refuse(f"also.{name}", given=options, needed="a table of options")
            pieces.append(build(kind, options, f"also.{name}"))
        return tuple(pieces)

    def _named(self, section: str) -> Any:
        """Build the piece that a section names."""
        return piece_of(section, self.table[section])


def _recipe(table: Table) -> Any:
    """Return the recipe of an algorithm, of the package or of a user's file."""
    return user_code.recipe(table.get("name", "")) or chosen("algorithm", table, ALGORITHMS)
