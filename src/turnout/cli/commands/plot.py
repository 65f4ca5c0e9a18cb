"""``turnout plot``: a figure of finished runs as PDF, SVG or PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.errors import guarded
from turnout.cli.flags import Runs

EPILOG = r"""[bold]Examples[/bold]

turnout plot runs/demo --output accuracy.pdf

turnout plot runs/demo --what test_loss --output loss.svg

turnout plot runs/demo --what clients --output clients.png --dpi 300"""


@guarded
def plot(
    folders: Runs,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="A file that ends in .pdf, .svg or .png.")
    ],
    what: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A recorded column, or clients, weights, influence or participation (default: the test accuracy).",
        ),
    ] = None,
    dpi: Annotated[int, typer.Option(min=1, help="Dots per inch of a PNG.")] = 200,
) -> None:
    """Draw finished runs in one figure: means over seeds, and bands of one standard deviation."""
    from turnout.cli.report import draw, records_of

    draw(records_of(folders), what, output, dpi)
    typer.echo(f"figure: {output}")
