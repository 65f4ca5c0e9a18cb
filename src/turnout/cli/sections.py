"""The sections of settings: the pieces that each can name, and its normal form as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnout.cli import names, user_code
from turnout.cli.options import Table, build, options_of, part, without
from turnout.core.checks import ConfigurationError, nearest, refuse
from turnout.core.other_names import our_name
from turnout.core.registry import Family
from turnout.data.declared import declared
from turnout.data.source import Source
from turnout.experiment import Experiment
from turnout.population import Population
from turnout.results.grid import written

NAMED: Mapping[str, Family] = {
    "data": names.SOURCES,
    "model": names.MODELS,
    "algorithm": names.ALGORITHMS,
    "selection": names.SELECTIONS,
    "aggregation": names.AGGREGATIONS,
    "server": names.SERVER_OPTIMIZERS,
    "availability": names.AVAILABILITY,
    "pace": names.PACES,
    "loss": names.LOSSES,
}
"""The family of each section that names a piece."""

_UNNAMED = ("local", "also", "population")
"""Sections without a name, which contain options or tables of options."""

SECTIONS = (*NAMED, *_UNNAMED)
KEYS = (*SECTIONS, *options_of(Experiment), "name")
"""The keys of settings at the top level."""

OF_SPLIT = without(options_of(Source.split), ("partition",))
"""Options of the section ``data`` for the split, except for the partition."""

OF_DECLARED = options_of(declared)
"""Options of the section ``data`` that declare the shape of the data, which a server then does not load."""

_OF_COMMANDS = ("folder", "jobs", "threads", "checkpoint_every")
"""Options of commands that are no settings."""

_FLAGS = ("algorithm", "data", "model", "availability", "pace")


def _options_of_partitions() -> set[str]:
    """Return the options of all partitions."""
    return {name for partition in names.PARTITIONS.values() for name in options_of(partition)}


def _options() -> Mapping[str, set[str]]:
    """Return the names of options by section."""
    return {
        "local": {"solver", *(name for piece in names.SOLVERS.values() for name in options_of(piece))},
        "data": {*OF_SPLIT, *OF_DECLARED, *_options_of_partitions()},
        "population": set(options_of(Population)),
        **{
            section: {name for piece in NAMED[section].values() for name in options_of(piece)} - {"local", "also"}
            for section in ("algorithm", "model", "availability", "pace", "selection")
        },
    }


def tidy(layer: Mapping[str, Any], data_set: str) -> Table:
    """Return a layer with every section as a table, and options of the partition in a nested table.

    An option of the data set itself, or of its split, is not an option of the partition.

    Raises:
        ConfigurationError: if keys are unknown, or sections are neither a name nor a table.
    """
    for key in layer:
        if key not in KEYS:
            raise ConfigurationError(f"unknown setting {key!r}: {_meant(key, layer[key])}")
    table = {key: as_table(key, value) if key in SECTIONS else value for key, value in layer.items()}
    if "data" in table:
        data = table["data"]
        source = user_code.member(names.SOURCES, data_set)
        partitions = _options_of_partitions() - {"name", "partition", "augmentation", *OF_SPLIT, *options_of(source)}
        moved = {key: data.pop(key) for key in list(data) if key in partitions}
        if "partition" in data or moved:
            data["partition"] = as_table("data.partition", data.get("partition", {})) | moved
    return table


def _meant(key: str, value: Any) -> str:
    """Suggest a replacement for an unknown setting: a flag, the same option with its section, or the nearest key."""
    if (flag := our_name(key)) in _OF_COMMANDS:
        return f"it is no part of an experiment: write --{flag.replace('_', '-')} {written(value)} on the command line"
    places = meant_by(key, written(value))
    return f"did you mean {places}?" if places else nearest(key, KEYS)


def meant_by(key: str, value: str) -> str:
    """Return the settings that a name can mean, with a value: ``"local.lr=0.1"``; empty if there are none."""
    key = our_name(key)
    if key in KEYS:
        return f"{key}={value}"
    return " or ".join(f"{section}.{key}={value}" for section, options in _options().items() if key in options)


def flag_of(name: str) -> str | None:
    """Return the flag for a name: ``--algorithm fedau`` for ``fedau``; None for an unknown name."""
    return next((f"--{section} {name}" for section in _FLAGS if name in NAMED[section]), None)


def as_table(section: str, value: Any) -> Table:
    """Return a section as a table: ``"markov"`` is ``{"name": "markov"}``.

    Raises:
        ConfigurationError: if a value is neither a name nor a table.
    """
    named = section not in _UNNAMED
    if isinstance(value, str) and named:
        return {"name": value}
    if not isinstance(value, Mapping):
        raise refuse(section, given=value, needed="a name or a table" if named else "a table of options")
    if named and not isinstance(value.get("name", ""), str):
        raise refuse(f"{section}.name", given=value["name"], needed="a text")
    return dict(value)


def chosen(section: str, table: Table, known: Family) -> Any:
    """Return the piece of a family that a section names.

    Raises:
        ConfigurationError: if the name is missing or unknown.
    """
    if "name" not in table:
        raise ConfigurationError(
            f"{section} has options but no name: write {section}=NAME too, one of {', '.join(known)}"
        )
    return user_code.member(known, table["name"])


def piece_of(section: str, table: Table) -> Any:
    """Build the piece that a section names, with its options.

    Raises:
        ConfigurationError: if options are invalid; see `build`. For an option of another piece it names that piece.
    """
    known, options = NAMED[section], without(table, ("name",))
    return _built(chosen(section, table, known), options, known, section, section)


def _built(kind: Any, options: Table, known: Mapping[str, Any], section: str, named: str) -> Any:
    """Build a piece of a section, which the setting `named` selects; refuse options of another piece."""
    for key in options:
        owners = [name for name, piece in known.items() if key in options_of(piece)]
        if owners and key not in options_of(kind):
            raise ConfigurationError(
                f"unknown option '{section}.{key}' of {kind.__name__}: it is an option of {', '.join(owners)}; write "
                f"{named}={owners[0]} too, or leave it out"
            )
    return build(kind, options, section)


def local_of(table: Table, recipe: Any) -> Any:
    """Return the local solver that a table names, SGD by default.

    Raises:
        ConfigurationError: if the recipe accepts no solver, or not this one, and for invalid options.
    """
    known, options = options_of(recipe), without(table, ("solver",))
    kind, name = part(known["local"].hint) if "local" in known else None, table.get("solver", "sgd")
    if kind is None:
        raise ConfigurationError(f"local: {recipe.__name__} has no local rule with options: leave it out")
    if not isinstance(name, str):
        raise refuse("local.solver", given=name, needed="a text")
    solver = user_code.member(names.SOLVERS, name)
    if not issubclass(solver, kind):
        raise refuse(
            "local.solver",
            given=name,
            needed=f"sgd, for {recipe.__name__} is about steps of {kind.__name__} alone",
            instead="Leave local.solver out",
        )
    return _built(solver, options, names.SOLVERS, "local", "local.solver")
