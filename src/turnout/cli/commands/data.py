"""``turnout data``: what data sets there are, fetching them, and looking at who would hold what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.errors import guarded

Directory = Annotated[
    Path | None,
    typer.Option("--directory", "-d", help="The data directory (default: TURNOUT_DATA or ~/.cache/turnout/data)."),
]

EPILOG = r"""[bold]Examples[/bold]

turnout data list

turnout data fetch mnist

turnout data show digits alpha=0.3 num_clients=20"""

LIST_EPILOG = r"""[bold]Example[/bold]

turnout data list --directory /data"""

FETCH_EPILOG = r"""[bold]Examples[/bold]

turnout data fetch mnist

turnout data fetch cifar10 --directory /data

TURNOUT_DATA=/data turnout run --data cifar10"""

SHOW_EPILOG = r"""[bold]Examples[/bold]

turnout data show digits

turnout data show mnist alpha=0.3 num_clients=20 --output who.svg

turnout data show digits partition=classes_per_client k=3 client_test_fraction=0.2

turnout data show digits --availability flash availability.available=battery_50

turnout data show digits --availability diurnal availability.correlated_with_labels=0.1"""


@guarded
def catalogue(directory: Directory = None) -> None:
    """List the data sets that have a name, and where on this machine they are."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from turnout.cli.output import show
    from turnout.data.catalogue import inventory

    table = Table(box=SIMPLE_HEAD)
    for column in ("name", "what it is", "here"):
        table.add_column(column, no_wrap=column == "name", overflow="fold")
    for entry in inventory(directory):
        table.add_row(entry.name, entry.description, str(entry.path or f"– ({entry.remedy})"))
    show(table)


@guarded
def fetch(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="mnist, fashion_mnist, emnist, mnist_by_writer, cifar10 or shakespeare."),
    ],
    directory: Directory = None,
    force: Annotated[bool, typer.Option("--force", help="Download again what is there.")] = False,
) -> None:
    """Download a data set, with checksums; a download that broke off goes on where it stopped."""
    from turnout.data.fetch import fetch as download

    typer.echo(str(download(name, directory, force=force)))


@guarded
def show_data(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the data set: turnout data list.")] = "digits",
    options: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="Who holds what: alpha=0.3 num_clients=20 partition=iid", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the partition.")] = 0,
    availability: Annotated[
        str | None,
        typer.Option(
            "--availability", metavar="NAME", help="Show who would be there when: markov, diurnal, flash, ..."
        ),
    ] = None,
    directory: Directory = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help=".png, .svg or .pdf (default: runs/NAME-clients.png or runs/NAME-availability.png)",
        ),
    ] = None,
) -> None:
    """Show who would hold what in a run, or who would be there when: figures here, and a picture in a file."""
    from turnout.cli import layers
    from turnout.cli.data import SHOWN_DAYS, SHOWN_ROUNDS, participation_table, saved_figure, sizes_table
    from turnout.cli.output import show
    from turnout.cli.sections import KEYS
    from turnout.cli.settings import Settings
    from turnout.reporting.availability_figure import availability_figure
    from turnout.reporting.partition_figure import partition_figure

    given = [{"data": name}, {"seed": seed}, *([{"data": {"directory": str(directory)}}] if directory else [])]
    for text in options or ():
        layer = layers.override(text)
        given.append(layer if set(layer) <= set(KEYS) else {"data": layer})
    if availability is not None:
        given.insert(0, {"availability": availability})
    settings = Settings.of(*given)
    data = settings.data()
    if availability is None:
        show(sizes_table(data))
        typer.echo(f"who holds what: {saved_figure(partition_figure(data), output, f'{data.name}-clients')}")
        return
    labels = None if data.train.y.is_floating_point() else data.label_counts()
    pattern = settings.availability()
    bound = pattern.bind(data.num_clients, labels, seed)
    seconds = getattr(pattern, "seconds_per_round", None)
    rounds = max(SHOWN_DAYS * 86_400 // seconds, 10) if seconds else SHOWN_ROUNDS
    show(participation_table(availability, bound, rounds, seconds))
    figure = availability_figure({availability: bound}, rounds, seconds)
    typer.echo(f"who is there when: {saved_figure(figure, output, f'{availability}-availability')}")
