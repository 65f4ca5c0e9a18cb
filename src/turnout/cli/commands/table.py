"""``turnout table``: the comparison of finished runs as LaTeX, Markdown, HTML or CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.errors import guarded
from turnout.cli.flags import Runs

EPILOG = r"""[bold]Examples[/bold]

turnout table runs/demo

turnout table runs/demo --format latex --columns test_accuracy,client_test_worst --output results.tex

turnout table slow=runs/fedau-digits-0 fast=runs/fedau-digits-0-2 --format csv"""


@guarded
def table(
    folders: Runs,
    format: Annotated[
        str, typer.Option("--format", "-f", metavar="latex|csv|markdown|html", help="How to write it.")
    ] = "markdown",
    columns: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Columns by name, with commas between (default: those of the report)."),
    ] = None,
    spread: Annotated[
        str,
        typer.Option(
            metavar="std|interval", help="Standard deviation over seeds, or the 95 % confidence interval of the mean."
        ),
    ] = "std",
    window: Annotated[
        int | None,
        typer.Option(metavar="ROUNDS", min=1, help="Last rounds to average over (default: the last tenth of them)."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="(default: standard output)")
    ] = None,
) -> None:
    """Write a table of finished runs: mean and spread over seeds, and a paired t-test against the first algorithm."""
    from turnout.cli.report import records_of, table_of
    from turnout.core.checks import known_name
    from turnout.core.display import printable
    from turnout.record.storage import replace_files

    known_name("format", format, ("latex", "csv", "markdown", "html"))
    known_name("spread", spread, ("std", "interval"))
    text = table_of(records_of(folders), format, columns, spread == "interval", window)
    if output is None:
        typer.echo(printable(text, len(text)), nl=False)
    else:
        replace_files({output: lambda part: part.write_text(text, encoding="utf-8") and None})
        typer.echo(f"table: {output}")
