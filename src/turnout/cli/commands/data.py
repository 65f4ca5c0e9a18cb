"""``turnout data``: list and download data sets, and show how they are split over clients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from turnout.cli.command import argument, command, examples, option, options, switch
from turnout.cli.console import show
from turnout.cli.groups import layer

if TYPE_CHECKING:
    from turnout.cli.settings import Settings
    from turnout.data.federated import FederatedData
    from turnout.population import Availability, BoundAvailability

EPILOG = examples(
    "turnout data list",
    "turnout data fetch mnist",
    "turnout data show digits alpha=0.3 num_clients=20",
)

_DAYS, _ROUNDS = 6, 500
"""Length of a plot of availability: in days if rounds have a length, else in rounds."""


@options
class DirectoryOption:
    """The option of the data directory."""

    directory: Path | None = option(
        "The data directory (default: TURNOUT_DATA or ~/.cache/turnout/data).", None, None, "--directory", "-d"
    )


@options
class FetchOptions(DirectoryOption):
    """Options of ``turnout data fetch``."""

    name: str = argument(
        "mnist, fashion_mnist, emnist, mnist_by_writer, cifar10, cifar100, svhn or shakespeare.", "NAME"
    )
    force: bool = switch("Download existing files again.", "--force")


@options
class ShowOptions(DirectoryOption):
    """Options of ``turnout data show``."""

    name: str = argument("The data set: turnout data list.", "NAME", "digits")
    settings: list[str] | None = argument(
        "Options of the split: alpha=0.3 num_clients=20 partition=iid", "KEY=VALUE", None
    )
    seed: int = option("Seed of the partition.", "N", 0)
    availability: str | None = option("Show a pattern of availability instead: markov, diurnal, flash, ...", "NAME")
    output: Path | None = option(
        ".png, .svg or .pdf (default: runs/NAME-clients.png or runs/NAME-availability.png)",
        "FILE",
        None,
        "--output",
        "-o",
    )


@command(DirectoryOption)
def catalog(options: DirectoryOption) -> None:
    """List the data sets, and where they are on this machine.

    Examples:
        turnout data list --directory /data
    """
    from turnout.data.source import inventory

    table = Table(box=SIMPLE_HEAD)
    for column in ("name", "description", "location"):
        table.add_column(column, no_wrap=column == "name", overflow="fold")
    for entry in inventory(options.directory):
        table.add_row(entry.name, entry.description, str(entry.path or f"– ({entry.remedy})"))
    show(table)


@command(FetchOptions)
def fetch(options: FetchOptions) -> None:
    """Download a data set and verify its checksums; an interrupted download is resumed.

    Examples:
        turnout data fetch mnist
        turnout data fetch cifar10 --directory /data
        TURNOUT_DATA=/data turnout run --data cifar10
    """
    from turnout.data.fetch import fetch as download

    typer.echo(str(download(options.name, options.directory, force=options.force)))


@command(ShowOptions)
def show_data(options: ShowOptions) -> None:
    """Show the data of each client, or the availability of clients: a table here, and a plot in a file.

    Examples:
        turnout data show digits
        turnout data show mnist alpha=0.3 num_clients=20 --output clients.svg
        turnout data show digits partition=classes_per_client k=3 client_test_fraction=0.2
        turnout data show digits --availability flash availability.available=battery_50
        turnout data show digits --availability diurnal availability.correlated_with_labels=0.1
    """
    from turnout.reporting.page import save_figure

    settings = _settings(options)
    data = settings.data()
    if options.availability is not None:
        _show_availability(options.availability, settings.availability(), data, options)
        return
    show(sizes_table(data))
    path = options.output or Path(f"runs/{data.name}-clients.png")
    save_figure(data.plot(), path)
    typer.echo(f"data of clients: {path}")


def _settings(options: ShowOptions) -> Settings:
    """Return the settings of the command line, in which options of the data have no section."""
    from turnout.cli import layers
    from turnout.cli.sections import KEYS
    from turnout.cli.settings import Settings

    directory = None if options.directory is None else str(options.directory)
    flags = layer(availability=options.availability, data=options.name, seed=options.seed)
    overrides = map(layers.override, options.settings or ())
    written = (over if set(over) <= set(KEYS) else {"data": over} for over in overrides)
    return Settings.of(flags, {"data": layer(directory=directory)}, *written)


def _show_availability(name: str, pattern: Availability, data: FederatedData, options: ShowOptions) -> None:
    """Show when clients are available: a table, and a plot in a file."""
    from turnout.reporting.availability_figure import availability_figure
    from turnout.reporting.page import save_figure

    labels = None if data.train.y.is_floating_point() else data.label_counts()
    bound = pattern.of_clients(data.client_names).bind(data.num_clients, labels, options.seed)
    seconds = getattr(pattern, "seconds_per_round", None)
    rounds = max(_DAYS * 86_400 // seconds, 10) if seconds else _ROUNDS
    show(participation_table(name, bound, rounds, seconds))
    path = options.output or Path(f"runs/{name}-availability.png")
    save_figure(availability_figure({name: bound}, rounds, seconds), path)
    typer.echo(f"availability: {path}")


def sizes_table(data: FederatedData) -> Table:
    """Return a table of the number of examples in each split, and per client."""
    import numpy as np

    title = f"{data.name}: {data.num_classes} classes, inputs {tuple(data.train.x.shape[1:])}"
    columns = "split", "clients", "examples", "per client: min", "median", "max", "classes per client"
    table = _table(title, *columns)
    parts = {
        "training": data.train,
        "validation": data.validation,
        "validation, unseen": data.unseen_validation,
        "client test": data.client_test,
        "unseen, training": data.unseen_train,
        "unseen, test": data.unseen_test,
        "pooled test": data.test,
    }
    for part, shards in parts.items():
        if shards is None or not len(shards.x):
            continue
        if part == "pooled test":
            table.add_row(part, "", f"{len(shards.x):,}")
            continue
        classes = (shards.label_counts(data.num_outputs) > 0).sum(axis=1).mean()
        sizes = (f"{size:,.0f}" for size in (shards.sizes.min(), np.median(shards.sizes), shards.sizes.max()))
        table.add_row(part, f"{shards.num_clients:,}", f"{len(shards.x):,}", *sizes, f"{classes:.1f}")
    return table


def participation_table(name: str, bound: BoundAvailability, rounds: int, seconds: int | None) -> Table:
    """Return a table of the rates of clients, and the lengths of visits and absences."""
    import numpy as np

    from turnout.population.diagnostics import presence, run_lengths

    here = presence(bound, rounds)
    rates, unit = here.mean(axis=1), "h" if seconds else "rounds"
    length = seconds / 3600 if seconds else 1.0
    table = _table(f"{name}: {bound.num_clients:,} clients over {rounds:,} rounds", "", "mean", "min", "median", "max")
    rows = {
        "rate of a client (%)": 100 * rates,
        "available clients": here.sum(axis=0),
        f"length of a visit ({unit})": run_lengths(here) * length,
        f"length of an absence ({unit})": run_lengths(~here) * length,
    }
    for row, values in rows.items():
        figures = values.mean(), values.min(), np.median(values), values.max()
        table.add_row(row, *(f"{figure:,.1f}" for figure in figures))
    table.add_row("clients never available", f"{int((rates == 0).sum()):,}")
    return table


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(first, title=title, box=SIMPLE_HEAD)
    for column in others:
        table.add_column(column, justify="right")
    return table
