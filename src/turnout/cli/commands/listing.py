"""``turnout list``: list all named pieces and their options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from turnout.cli.command import argument, command, options
from turnout.cli.console import show
from turnout.core.checks import known_name

USAGE: Mapping[str, str] = {
    "algorithms": "--algorithm NAME algorithm.OPTION=VALUE",
    "data": "--data NAME data.OPTION=VALUE",
    "models": "--model NAME model.OPTION=VALUE",
    "availability": "--availability NAME availability.OPTION=VALUE",
    "paces": "--pace NAME pace.OPTION=VALUE",
    "partitions": "data.partition=NAME data.OPTION=VALUE",
    "augmentations": "data.augmentation=NAME",
    "transforms": "data.transform=NAME",
    "selections": "selection=NAME selection.OPTION=VALUE",
    "aggregations": "aggregation=NAME aggregation.OPTION=VALUE",
    "mixings": "aggregation.mixing='{kind=\"NAME\", OPTION=VALUE}'",
    "server_optimizers": "server=NAME server.OPTION=VALUE",
    "local": "also.NAME.OPTION=VALUE",
    "personalizations": "also.NAME.OPTION=VALUE",
    "guards": "also.NAME.OPTION=VALUE",
    "weightings": "also.NAME.OPTION=VALUE",
    "solvers": "local.solver=NAME local.OPTION=VALUE",
    "schedules": "local.lr='{kind=\"NAME\", OPTION=VALUE}'",
    "requirements": "population.requirement='{kind=\"NAME\", OPTION=VALUE}'",
    "behaviors": "population.behavior='{kind=\"NAME\", OPTION=VALUE}'",
    "speeds": "population.speed='{kind=\"NAME\", OPTION=VALUE}'",
    "delays": "population.speed.compute='{kind=\"NAME\", OPTION=VALUE}'",
    "correlations": "aggregation.correlation='{kind=\"NAME\", OPTION=VALUE}'",
    "losses": "--loss NAME",
    "trackers": "--track NAME",
    "work": "local.steps='{kind=\"NAME\", OPTION=VALUE}'",
    "settings": "OPTION=VALUE",
}
"""Families, and the syntax for their members; `turnout.cli.names.LISTED` has the members of all but the last."""


@options
class ListOptions:
    """Options of ``turnout list``."""

    kind: str | None = argument(
        f"{', '.join(USAGE)}.", "KIND", None,
        autocompletion=lambda incomplete: [kind for kind in USAGE if kind.startswith(incomplete)],
    )  # fmt: skip


@command(ListOptions)
def listing(options: ListOptions) -> None:
    """List algorithms, models, data sets and all other pieces, with their options and defaults.

    Examples:
        turnout list
        turnout list algorithms
    """
    for kind in USAGE if options.kind is None else [known_name("kind", options.kind, USAGE)]:
        show(table_of(kind))


def table_of(kind: str) -> Table:
    """Return a table of the members of a family."""
    from turnout.cli import defaults
    from turnout.cli.names import LISTED
    from turnout.record.describe import flat

    table = Table(title=Text(f"{kind}: {USAGE[kind]}"), title_justify="left", box=SIMPLE_HEAD, expand=False)
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("description", ratio=2)
    table.add_column("options", ratio=3)
    for name, piece in LISTED.get(kind, {}).items():
        options = _options(piece, defaults.availability(piece, {}, "") if kind == "availability" else {})
        if kind == "data":
            suited = flat(defaults.BY_DATA.get(name, {}))
            options += "\nby default: " + "  ".join(
                f"{key.removesuffix('.name')}={written_default(x)}" for key, x in suited
            )
        line = (inspect.getdoc(piece) or "").partition("\n")[0]
        table.add_row(name, Text(line.replace("``", "")), options)
    for usage, what, piece, more in _further(kind):
        table.add_row(usage, what, _options(piece, more))
    return table


def _further(kind: str) -> Iterator[tuple[str, str, Callable[..., Any], Mapping[str, Any]]]:
    """Yield the options that all members of a family have: syntax, description, their owner, and further options."""
    from turnout.data.source import Source
    from turnout.experiment import Experiment
    from turnout.pieces.local import Sgd

    if kind == "algorithms":
        yield "local.OPTION=VALUE", "local training of any algorithm (turnout list solvers)", Sgd, {}
    if kind == "data":
        split = "partition (turnout list partitions), tests, and augmentation (turnout list augmentations)"
        yield "data.OPTION=VALUE", split, Source.split, {"partition": "by_id", "augmentation": None}
    if kind == "settings":
        yield "", "of the experiment", Experiment, {}


def _options(piece: Callable[..., Any], more: Mapping[str, Any]) -> Text:
    """Format the options of a piece with their defaults, and further options."""
    from turnout.cli.options import options_of

    values = {name: option.default for name, option in options_of(piece).items() if name not in ("local", "self")}
    return Text("  ".join(f"{name}={written_default(value)}" for name, value in {**values, **more}.items()) or "–")


def written_default(value: Any) -> str:
    """Format a default for the command line; ``?`` for a required option."""
    from turnout.results.grid import written

    if value is inspect.Parameter.empty:
        return "?"
    if is_dataclass(value):
        kind: Any = type(value)
        options = [f"{field.name}={written_default(getattr(value, field.name))}" for field in fields(value)]
        return "{" + ", ".join([f'kind="{kind.family.name_of(kind)}"', *options]) + "}"
    return written(value)
