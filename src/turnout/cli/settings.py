"""A run in plain values, and the experiment that they describe."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from turnout.algorithms import ALGORITHMS
from turnout.cli import defaults, own
from turnout.cli.layers import merge
from turnout.cli.names import ALSO, AUGMENTATIONS, AVAILABILITY, PACES, PARTITIONS, SELECTIONS
from turnout.cli.options import Table, arguments, build, convert, options_of, part, placed, unknown_option
from turnout.core.algorithm import Algorithm
from turnout.core.checks import ConfigurationError, known_name, nearest, refuse
from turnout.core.pieces import Piece
from turnout.data.catalogue import SOURCES
from turnout.data.federated import FederatedData
from turnout.data.partition import Partition
from turnout.data.source import Source
from turnout.experiment import Experiment
from turnout.models import MODELS, ModelSpec
from turnout.pace import Pace
from turnout.population import Availability, Population

NAMED: Mapping[str, Mapping[str, Any]] = {
    "data": SOURCES,
    "model": MODELS,
    "algorithm": ALGORITHMS,
    "selection": SELECTIONS,
    "availability": AVAILABILITY,
    "pace": PACES,
}
"""Sections that name a piece and may hold its options, with what they can name."""

_UNNAMED = ("local", "also", "population")
"""Sections that name nothing, and hold options or tables of them."""

SECTIONS = (*NAMED, *_UNNAMED)
KEYS = (*SECTIONS, *options_of(Experiment), "name")
"""What settings can have at the top."""

_SPLIT = {name: option for name, option in options_of(Source.split).items() if name != "partition"}
_OF_PARTITIONS = {name for partition in PARTITIONS.values() for name in options_of(partition)}


@dataclass(frozen=True)
class Settings:
    """All settings of a run, as a TOML file has them; those that are left out have the defaults of their pieces.

    Attributes:
        table: ``name`` (what reports call the run), a table for each of `SECTIONS`, and the numbers of `Experiment`.
    """

    table: Table

    @classmethod
    def of(cls, *layers: Mapping[str, Any], own_tests: bool = False, pace: str | None = None) -> Settings:
        """Settings from layers, the last one first, over the defaults of the command line.

        Args:
            own_tests: whether clients have test examples of their own where no layer says so, as they do for an algorithm
                with a personal part.
            pace: the pace where no layer names one; None is the one that suits the algorithm.

        Raises:
            ConfigurationError: for anything that cannot be run, as far as this shows without the data.
        """
        named = [as_table("data", layer["data"]) for layer in (defaults.ANY, *layers) if "data" in layer]
        data = known_name("data set", reduce(merge, named)["name"], SOURCES)
        given = [tidy(layer, data) for layer in layers]
        below = (defaults.ANY, {"data": {"name": data}}, defaults.BY_DATA.get(data, {}), _of_pace(given, pace))
        under = reduce(merge, below)
        # Under and, for what a layer replaced and a later one put back, once more under the outcome.
        table = merge(under, reduce(merge, given, under))
        kind = _chosen("availability", table["availability"], AVAILABILITY)
        table = merge({"availability": defaults.availability(kind, table["availability"], data)}, table)
        if "personal" in options_of(_recipe(table["algorithm"])):
            table = merge({"algorithm": defaults.PERSONAL.get(table["model"].get("name"), {})}, table)
        settings = cls({"name": own.short(table["algorithm"]["name"]), **table})
        settings.check()
        if own_tests or settings.algorithm().personal is not None:
            settings = cls(merge(defaults.OWN_TESTS.get(data, {}), settings.table))
        return settings

    def seeded(self, seed: int) -> Settings:
        """The same settings with another seed."""
        return replace(self, table={**self.table, "seed": seed})

    @property
    def name(self) -> str:
        """What reports call the run."""
        return self.table["name"]

    def check(self) -> None:
        """Refuse what cannot be run, as far as this shows without the data."""
        if not isinstance(self.name, str) or not re.fullmatch(r"[A-Za-z0-9][\w.-]*", self.name):
            raise refuse("name", given=self.name, needed="letters, digits, '_', '-' and '.', a letter or digit first")
        self.numbers()
        self.algorithm()
        self.population()
        self.pace()
        self.model()
        self._data_options()
        self._augmentation()

    def __call__(self, seed: int) -> Experiment:
        """The experiment with another seed; makes settings what `turnout.comparison.compare` takes."""
        return self.seeded(seed).experiment()

    def experiment(self, data: FederatedData | None = None) -> Experiment:
        """The experiment; loads the data unless they are given."""
        numbers = self.numbers()
        return Experiment(
            data=data or self.data(),
            model=self.model(),
            algorithm=self.algorithm(),
            population=self.population(),
            pace=self.pace(),
            **numbers,
        )

    def numbers(self) -> dict[str, Any]:
        """The options of `Experiment` itself: rounds, seed, device, ..."""
        names = options_of(Experiment)
        return arguments(Experiment, {k: v for k, v in self.table.items() if k in names}, "", ready=names)

    def model(self) -> ModelSpec:
        """The model, or the specification of it."""
        return self._named("model")

    def availability(self) -> Availability:
        """Who is there when."""
        return self._named("availability")

    def pace(self) -> Pace:
        """When the server asks and steps."""
        return self._named("pace")

    def population(self) -> Population:
        """How clients behave: when they are there, and whatever else the settings say of them."""
        return build(Population, self.table.get("population", {}), "population", availability=self.availability())

    def algorithm(self) -> Algorithm:
        """The algorithm, with the local rule, selection and further pieces that the settings have for it."""
        table = self.table["algorithm"]
        recipe = _recipe(table)
        ready: dict[str, Any] = {"also": self._also()}
        options = {key: value for key, value in table.items() if key != "name"}
        if local := {**self.table.get("local", {}), **options.pop("local", {})}:
            known = options_of(recipe)
            kind = part(known["local"].hint) if "local" in known else None
            if kind is None:
                raise ConfigurationError(f"local: {recipe.__name__} has no local rule with options: leave it out")
            ready["local"] = build(kind, local, "local")
        algorithm = build(recipe, options, "algorithm", **ready)
        if not isinstance(algorithm, Algorithm):
            raise refuse(
                table["name"], given=algorithm, needed="an algorithm", instead="Return what to.compose(...) makes"
            )
        return algorithm.named(self.name)

    def data(self) -> FederatedData:
        """Load the data and give them to clients."""
        source_options, split, partition = self._data_options()
        table = self.table["data"]
        seed = {"seed": self.numbers().get("seed", 0)}
        make = SOURCES[table["name"]]
        # What a source draws at random follows the run's seed too, as who holds what does.
        drawn = seed if "seed" in options_of(make) else {}
        source: Source = build(make, drawn | source_options, "data")
        if augmentation := self._augmentation():
            source = replace(source, transforms=AUGMENTATIONS[augmentation]())
        with placed("data", Source.split):
            return source.split(partition, **seed | split)

    def _data_options(self) -> tuple[Table, Table, Partition | None]:
        """Options of the source, options of the split (seed and num_clients may be of both), and the partition."""
        options = self._options("data")
        source, wanted = SOURCES[self.table["data"]["name"]], options.pop("partition", None)
        options.pop("augmentation", None)
        partition, known = None, [*options_of(source), *_SPLIT, "partition", "augmentation"]
        if wanted is not None:
            kind = _chosen("data.partition", wanted, PARTITIONS)
            partition = build(kind, {k: v for k, v in wanted.items() if k != "name"}, "data.partition")
            known += options_of(kind)
        for key in options:
            if key not in known:
                raise unknown_option(f"data.{key}", source.__name__, known)
        split = {key: value for key, value in options.items() if key in _SPLIT}
        own = {key: value for key, value in options.items() if key in options_of(source)}
        return (
            arguments(source, own, "data"),
            arguments(Source.split, split, "data", ready=("self",)),
            partition,
        )

    def _augmentation(self) -> str | None:
        """The name of the augmentation, if there is one."""
        name = convert(str | None, self.table["data"].get("augmentation"), "data.augmentation")
        return name and known_name("augmentation", name, AUGMENTATIONS)

    def _also(self) -> tuple[Piece, ...]:
        """The selection, if the settings have one, and the further pieces."""
        pieces = [self._named("selection")] if "selection" in self.table else []
        for name, options in self.table.get("also", {}).items():
            kind = ALSO[known_name("piece", name, ALSO)]
            if not isinstance(options, Mapping):
                raise refuse(f"also.{name}", given=options, needed="a table of options")
            pieces.append(build(kind, options, f"also.{name}"))
        return tuple(pieces)

    def _options(self, section: str) -> Table:
        return {key: value for key, value in self.table[section].items() if key != "name"}

    def _named(self, section: str) -> Any:
        """The piece that a section names, with its options."""
        known, options = NAMED[section], self._options(section)
        kind = _chosen(section, self.table[section], known)
        for key in options:
            having = [name for name, piece in known.items() if key in options_of(piece)]
            if having and key not in options_of(kind):
                raise ConfigurationError(
                    f"unknown option '{section}.{key}' of {kind.__name__}: it is an option of {', '.join(having)}; write "
                    f"{section}={having[0]} too, or leave it out"
                )
        return build(kind, options, section)


def _of_pace(layers: Sequence[Table], pace: str | None) -> Table:
    """What goes under all layers because of the pace that they name, or that suits their algorithm."""

    def last(section: str) -> str:
        return next((table[section]["name"] for table in reversed(layers) if "name" in table.get(section, {})), "")

    table = defaults.BY_PACE.get(last("pace") or pace or defaults.PACES.get(last("algorithm"), ""), {})
    says = any(_says_speed(layer.get("population", {})) for layer in layers)
    return table if says or not table else merge(table, {"population": {"speed": defaults.SPEED}})


def _says_speed(population: Table) -> bool:
    """Whether a layer says how fast clients are, and not only by how much they differ from the default."""
    speed = population.get("speed", {})
    return "kind" in speed if isinstance(speed, Mapping) else True


def tidy(layer: Mapping[str, Any], data_set: str) -> Table:
    """A layer with every section as a table, and the partition's options in the partition's table.

    An option that the data set itself has, or its split, is no option of the partition.

    Raises:
        ConfigurationError: for keys that settings do not have, and sections that are neither name nor table.
    """
    for key in layer:
        if key not in KEYS:
            raise ConfigurationError(f"unknown setting {key!r}: {nearest(key, KEYS)}")
    table = {key: as_table(key, value) if key in SECTIONS else value for key, value in layer.items()}
    if "data" in table:
        data = table["data"]
        own = {"name", "partition", "augmentation", *_SPLIT, *options_of(SOURCES[data_set])}
        moved = {key: data.pop(key) for key in list(data) if key in _OF_PARTITIONS - own}
        if "partition" in data or moved:
            data["partition"] = as_table("data.partition", data.get("partition", {})) | moved
    return table


def _chosen(section: str, table: Table, known: Mapping[str, Any]) -> Any:
    """What a section names."""
    if "name" not in table:
        raise ConfigurationError(
            f"{section} has options but no name: write {section}=NAME too, one of {', '.join(known)}"
        )
    return known[known_name(section.rpartition(".")[2], table["name"], known)]


def _recipe(table: Table) -> Any:
    """The recipe of an algorithm, of the package or of one's own."""
    return own.recipe(table.get("name", "")) or _chosen("algorithm", table, ALGORITHMS)


def as_table(section: str, value: Any) -> Table:
    """A section as a table: ``"markov"`` is ``{"name": "markov"}``."""
    named = section not in _UNNAMED
    if isinstance(value, str) and named:
        return {"name": value}
    if not isinstance(value, Mapping):
        raise refuse(section, given=value, needed="a name or a table" if named else "a table of options")
    if named and not isinstance(value.get("name", ""), str):
        raise refuse(f"{section}.name", given=value["name"], needed="a text")
    return dict(value)
