"""``turnout report``: a page with pictures from the folders of finished runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.errors import guarded
from turnout.cli.output import say, show
from turnout.cli.run import saved
from turnout.cli.settings import Settings
from turnout.comparison import load_records
from turnout.comparison.folders import run_folders
from turnout.core.checks import ConfigurationError, TurnoutError
from turnout.data.federated import FederatedData
from turnout.reporting import RunRecord, comparison, rich_tables, write_report

EPILOG = r"""[bold]Examples[/bold]

turnout report runs/demo

turnout report runs/fedau-digits-0 runs/mifa-digits-0 --output fedau-or-mifa.html

turnout report slow=runs/fedau-digits-0 fast=runs/fedau-digits-0-2"""


@guarded
def report(
    folders: Annotated[
        list[str], typer.Argument(metavar="[NAME=]FOLDER", help="Runs or comparisons; NAME is what to call a run.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.html", help="(default: report.html in the first folder)"),
    ] = None,
    title: Annotated[
        str, typer.Option(metavar="TEXT", help="Heading of the page.")
    ] = "Federated training with turnout",
) -> None:
    """Write one HTML file with the tables and figures of finished runs; it needs nothing else."""
    records: list[RunRecord] = []
    paths: list[Path] = []
    for text in folders:
        name, _, path = text.rpartition("=")
        found = load_records([path])
        if name and len({record.algorithm for record in found}) > 1:
            raise ConfigurationError(f"{text}: {path} holds runs of several algorithms, which cannot all be {name}")
        records += [replace(record, algorithm=name) if name else record for record in found]
        paths.append(Path(path))
    show(rich_tables(comparison(records)))
    path = write_report(records, output or paths[0] / "report.html", data=_data(paths), title=title)
    typer.echo(f"report: {path}")


def _data(folders: list[Path]) -> FederatedData | None:
    """Return the data of the first run, for the picture of who holds what, where they can be had."""
    try:
        return Settings(saved(run_folders(folders)[0])).data()
    except TurnoutError as error:
        say(f"no picture of who holds what: {error}", style="yellow")
        return None
