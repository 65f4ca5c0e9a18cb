"""``turnout list``: everything that has a name, and the options it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from turnout.cli import defaults, names
from turnout.cli.options import REQUIRED, options_of
from turnout.data.source import Source
from turnout.experiment import Experiment
from turnout.pieces.local import Sgd

CATALOGUE: Mapping[str, tuple[str, Mapping[str, Callable[..., Any]]]] = {
    "algorithms": ("--algorithm NAME algorithm.OPTION=VALUE", names.ALGORITHMS),
    "data": ("--data NAME data.OPTION=VALUE", names.SOURCES),
    "models": ("--model NAME model.OPTION=VALUE", names.MODELS),
    "availability": ("--availability NAME availability.OPTION=VALUE", names.AVAILABILITY),
    "paces": ("--pace NAME pace.OPTION=VALUE", names.PACES),
    "partitions": ("data.partition=NAME data.OPTION=VALUE", names.PARTITIONS),
    "selections": ("selection=NAME selection.OPTION=VALUE", names.SELECTIONS),
    "aggregations": ("aggregation=NAME aggregation.OPTION=VALUE", names.AGGREGATIONS),
    "mixings": ("aggregation.mixing='{kind=\"NAME\", OPTION=VALUE}'", names.MIXINGS),
    "server_optimizers": ("server=NAME server.OPTION=VALUE", names.SERVER_OPTIMIZERS),
    "local": ("also.NAME.OPTION=VALUE", names.LOCAL_PARTS),
    "personalizations": ("also.NAME.OPTION=VALUE", names.PERSONALIZATIONS),
    "guards": ("also.NAME.OPTION=VALUE", names.GUARDS),
    "weightings": ("also.NAME.OPTION=VALUE", names.WEIGHTINGS),
    "solvers": ("local.solver=NAME local.OPTION=VALUE", names.SOLVERS),
    "schedules": ("local.lr='{kind=\"NAME\", OPTION=VALUE}'", names.SCHEDULES),
    "requirements": ("population.requirement='{kind=\"NAME\", OPTION=VALUE}'", names.REQUIREMENTS),
    "behaviours": ("population.behaviour='{kind=\"NAME\", OPTION=VALUE}'", names.BEHAVIOURS),
    "speeds": ("population.speed='{kind=\"NAME\", OPTION=VALUE}'", names.SPEEDS),
    "delays": ("population.speed.compute='{kind=\"NAME\", OPTION=VALUE}'", names.DELAYS),
    "correlations": ("aggregation.correlation='{kind=\"NAME\", OPTION=VALUE}'", names.CORRELATIONS),
    "losses": ("--loss NAME", names.LOSSES),
    "trackers": ("--track NAME", names.TRACKERS),
    "work": ("local.steps='{kind=\"NAME\", OPTION=VALUE}'", names.WORK),
}
"""How each kind is written, and what there is of it."""

MORE: Mapping[str, tuple[tuple[str, str, Callable[..., Any], Mapping[str, Any]], ...]] = {
    "algorithms": (("local.OPTION=VALUE", "local training, whatever the algorithm (turnout list solvers)", Sgd, {}),),
    "data": (
        (
            "data.OPTION=VALUE",
            f"who holds what (turnout list partitions), tests, and augmentation ({' or '.join(names.AUGMENTATIONS)})",
            Source.split,
            {"partition": "by_id", "augmentation": None},
        ),
    ),
}
"""What else can be written for a kind, whatever the name: how, what it is, whose options, and further ones."""


def table_of(kind: str) -> Table:
    """Return what there is of a kind."""
    usage, known = CATALOGUE[kind]
    table = _empty(f"{kind}: {usage}")
    for name, piece in known.items():
        own = defaults.availability(piece, {}, "") if kind == "availability" else {}
        options = _options(piece, own)
        if kind == "data":
            options += f"\nby default: {_flat(defaults.BY_DATA.get(name, {}))}"
        table.add_row(name, _first_line(piece), options)
    for usage, what, piece, own in MORE.get(kind, ()):
        table.add_row(usage, what, _options(piece, own))
    return table


def settings_table() -> Table:
    """Return the settings of the experiment itself."""
    table = _empty("settings: OPTION=VALUE")
    table.add_row("", "of the experiment itself", _options(Experiment, {}))
    return table


def _flat(table: Mapping[str, Any], place: str = "") -> str:
    """Return settings as they are written on the command line."""
    parts = []
    for key, value in table.items():
        at = place if key == "name" else f"{place}.{key}" if place else key
        parts.append(_flat(value, at) if isinstance(value, Mapping) else f"{at}={written(value)}")
    return "  ".join(parts)


def _empty(title: str) -> Table:
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, expand=False)
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("what it is", ratio=2)
    table.add_column("options", ratio=3)
    return table


def _first_line(piece: Callable[..., Any]) -> Text:
    line = (inspect.getdoc(piece) or "").partition("\n")[0]
    return Text(line.replace("``", ""))


def _options(piece: Callable[..., Any], own: Mapping[str, Any]) -> Text:
    """Options and their defaults; `own` are those of the command line, and further ones."""
    found = {name: option.default for name, option in options_of(piece).items() if name not in ("local", "self")}
    return Text("  ".join(f"{name}={written(value)}" for name, value in {**found, **own}.items()) or "–")


def written(value: Any) -> str:
    """Return a default as it would be written on the command line; ``?`` where there is none."""
    if value is REQUIRED:
        return "?"
    if is_dataclass(value):
        kind: Any = type(value)
        options = [f"{field.name}={written(getattr(value, field.name))}" for field in fields(value)]
        return "{" + ", ".join([f'kind="{kind.family.name_of(kind)}"', *options]) + "}"
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
