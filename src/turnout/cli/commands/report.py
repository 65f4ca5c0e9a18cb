"""``turnout report``: a page with pictures from the folders of finished runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.errors import guarded
from turnout.core.checks import ConfigurationError

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
    from turnout.cli.output import show
    from turnout.cli.report import data_of, environment_of
    from turnout.comparison import load_records
    from turnout.reporting import RunRecord, comparison, rich_tables, write_report

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
    target = output or paths[0] / "report.html"
    path = write_report(records, target, data=data_of(paths), title=title, environment=environment_of(paths))
    typer.echo(f"report: {path}")
