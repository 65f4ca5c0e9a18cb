"""``turnout report``: a page with pictures from the folders of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.errors import guarded
from turnout.cli.flags import Code, Runs

EPILOG = r"""[bold]Examples[/bold]

turnout report runs/demo

turnout report runs/fedau-digits-0 runs/mifa-digits-0 --output fedau-or-mifa.html

turnout report slow=runs/fedau-digits-0 fast=runs/fedau-digits-0-2"""


@guarded
def report(
    folders: Runs,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.html", help="(default: report.html in the first folder)"),
    ] = None,
    title: Annotated[
        str, typer.Option(metavar="TEXT", help="Heading of the page.")
    ] = "Federated training with turnout",
    code: Code = None,
) -> None:
    """Write one HTML file with the tables and figures of finished runs; it needs nothing else."""
    from turnout.cli.output import show
    from turnout.cli.report import data_of, environment_of, records_of
    from turnout.reporting import comparison, rich_tables, write_report

    records, paths = records_of(folders), [Path(text.rpartition("=")[2]) for text in folders]
    show(rich_tables(comparison(records)))
    target = output or paths[0] / "report.html"
    path = write_report(
        records, target, data=data_of(paths, code or ()), title=title, environment=environment_of(paths)
    )
    typer.echo(f"report: {path}")
