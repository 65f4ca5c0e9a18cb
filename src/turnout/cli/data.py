"""``turnout data``: what data sets there are, fetching them, and looking at who would hold what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from turnout.cli import layers
from turnout.cli.errors import guarded
from turnout.cli.output import show
from turnout.cli.sections import KEYS
from turnout.cli.settings import Settings
from turnout.core.checks import CheckpointError
from turnout.data.catalogue import inventory
from turnout.data.federated import FederatedData
from turnout.data.fetch import fetch as download

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

turnout data show digits partition=classes_per_client k=3 client_test_fraction=0.2"""


@guarded
def catalogue(directory: Directory = None) -> None:
    """List the data sets that have a name, and where on this machine they are."""
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
    typer.echo(str(download(name, directory, force=force)))


@guarded
def show_data(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the data set: turnout data list.")],
    options: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="Who holds what: alpha=0.3 num_clients=20 partition=iid", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the partition.")] = 0,
    directory: Directory = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help=".png, .svg or .pdf (default: NAME-clients.png)"),
    ] = None,
) -> None:
    """Show who would hold what in a run: sizes here, and a picture in a file."""
    given = [{"data": name}, {"seed": seed}, *([{"data": {"directory": str(directory)}}] if directory else [])]
    for text in options or ():
        layer = layers.override(text)
        given.append(layer if set(layer) <= set(KEYS) else {"data": layer})
    data = Settings.of(*given).data()
    show(_sizes(data))
    typer.echo(f"who holds what: {_draw(data, output or Path(f'{data.name}-clients.png'))}")


def _sizes(data: FederatedData) -> Table:
    """How many examples there are of what, and at how many clients."""
    table = Table(
        title=f"{data.name}: {data.num_classes} classes, inputs {tuple(data.train.x.shape[1:])}", box=SIMPLE_HEAD
    )
    for column in ("part", "clients", "examples", "per client: least", "median", "most", "classes per client"):
        table.add_column(column, justify="left" if column == "part" else "right")
    parts = {
        "training": data.train,
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
        classes = (shards.label_counts(data.num_classes) > 0).sum(axis=1).mean()
        figures = (shards.sizes.min(), np.median(shards.sizes), shards.sizes.max())
        table.add_row(
            part,
            f"{shards.num_clients:,}",
            f"{len(shards.x):,}",
            *(f"{figure:,.0f}" for figure in figures),
            f"{classes:.1f}",
        )
    return table


def _draw(data: FederatedData, path: Path) -> Path:
    """Save the picture."""
    from turnout.reporting.partition_figure import partition_figure

    figure = partition_figure(data)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be written: {error}. Write --output FILE.png") from error
    return path
