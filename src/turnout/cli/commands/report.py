"""``turnout report``, ``table`` and ``plot``: make pages, tables and figures of finished runs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from turnout.cli.command import REQUIRED, argument, command, option, options
from turnout.cli.console import say, show
from turnout.cli.groups import CodeOption
from turnout.core.checks import ConfigurationError, TurnoutError, known_name
from turnout.core.display import printable

if TYPE_CHECKING:
    from turnout.data.federated import FederatedData
    from turnout.results.records import RunRecord


@options
class FinishedRuns:
    """The argument that names finished runs."""

    folders: list[str] = argument("Runs or comparisons; NAME replaces the name of the algorithm.", "[NAME=]FOLDER")

    @property
    def paths(self) -> list[Path]:
        """The folders."""
        return [Path(text.rpartition("=")[2]) for text in self.folders]

    def records(self) -> list[RunRecord]:
        """Load the finished runs.

        Raises:
            ConfigurationError: if runs of several algorithms have one name.
        """
        from turnout.comparison.folders import load_records

        records: list[RunRecord] = []
        for text in self.folders:
            name, _, path = text.rpartition("=")
            runs = load_records([path])
            if name and len({record.algorithm for record in runs}) > 1:
                raise ConfigurationError(f"{text}: {path} holds runs of several algorithms, which cannot all be {name}")
            records += [replace(record, algorithm=name) if name else record for record in runs]
        return records


@options
class ReportOptions(FinishedRuns, CodeOption):
    """Options of ``turnout report``."""

    output: Path | None = option(
        "Output file (default: report.html in the first folder).", "FILE.html", None, "--output", "-o"
    )
    title: str = option("Heading of the page.", "TEXT", "Federated training with turnout")


@options
class TableOptions(FinishedRuns):
    """Options of ``turnout table``."""

    format: str = option("Output format.", "latex|csv|markdown|html", "markdown", "--format", "-f")
    columns: str | None = option("Columns, separated by commas (default: those of the report).", "NAMES")
    spread: str = option(
        "Standard deviation over seeds, or the 95 % confidence interval of the mean.", "std|interval", "std"
    )
    window: int | None = option("Average over the last N rounds (default: the last tenth).", "N", None, min=1)
    output: Path | None = option("Output file (default: standard output).", "FILE", None, "--output", "-o")


@options
class PlotOptions(FinishedRuns):
    """Options of ``turnout plot``."""

    output: Path = option("Output file; its extension is .pdf, .svg or .png.", "FILE", REQUIRED, "--output", "-o")
    what: str | None = option(
        "A recorded column, or clients, weights, influence, gains, confusion, calibration or participation (default: the "
        "test accuracy).",
        "NAME",
    )
    dpi: int = option("Dots per inch of a PNG.", None, 200, min=1)


@command(ReportOptions)
def report(options: ReportOptions) -> None:
    """Write a self-contained HTML file with the tables and figures of finished runs.

    Examples:
        turnout report runs/demo
        turnout report runs/fedau-digits-0 runs/mifa-digits-0 --output fedau-or-mifa.html
        turnout report slow=runs/fedau-digits-0 fast=runs/fedau-digits-0-2
    """
    from turnout.cli.tune import lines_in
    from turnout.reporting.report import write_report
    from turnout.results.table import comparison, rich_tables

    records, paths = options.records(), options.paths
    tuning = lines_in(paths, {record.algorithm for record in records})
    show(rich_tables(comparison(records)))
    path = write_report(
        records, options.output or paths[0] / "report.html",
        data=_data(paths, options.code or ()), title=options.title, environment=_environment(paths), tuning=tuning,
    )  # fmt: skip
    typer.echo(f"report: {path}")


@command(TableOptions)
def table(options: TableOptions) -> None:
    """Write a table of finished runs: mean and spread over seeds, and a paired t-test against the first algorithm.

    Examples:
        turnout table runs/demo
        turnout table runs/demo --format latex --columns test_accuracy,client_test_worst --output results.tex
        turnout table slow=runs/fedau-digits-0 fast=runs/fedau-digits-0-2 --format csv
    """
    from turnout.record.storage import replace_files, text_writer

    known_name("format", options.format, ("latex", "csv", "markdown", "html"))
    known_name("spread", options.spread, ("std", "interval"))
    text = _table(options)
    if options.output is None:
        typer.echo(printable(text, len(text)), nl=False)
    else:
        replace_files({options.output: text_writer(text)})
        typer.echo(f"table: {options.output}")


@command(PlotOptions)
def plot(options: PlotOptions) -> None:
    """Plot finished runs in one figure: means over seeds, and bands of one standard deviation.

    Examples:
        turnout plot runs/demo --output accuracy.pdf
        turnout plot runs/demo --what test_loss --output loss.svg
        turnout plot runs/demo --what clients --output clients.png --dpi 300
    """
    from turnout.reporting.page import save_figure
    from turnout.reporting.plot import plot as draw

    records, output = options.records(), options.output
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        figure = draw(records, options.what)
    for warning in caught:
        say(str(warning.message), style="yellow")
    save_figure(figure, output, options.dpi)
    typer.echo(f"figure: {output}")


def _table(options: TableOptions) -> str:
    """Format the comparison of runs; ``csv`` has by default all columns, at full precision.

    Raises:
        ConfigurationError: if no run recorded the column.
    """
    from turnout.results.column import GAP, RESULTS
    from turnout.results.formats import FORMATS, csv
    from turnout.results.table import comparison

    rows, names = comparison(options.records(), options.window), options.columns
    recorded = [key for key in dict.fromkeys(key for row in rows for key in row.figures) if not key.startswith(GAP)]
    keys = [known_name("column", name.strip(), recorded) for name in names.split(",")] if names else None
    if options.format == "csv":
        return csv(rows, keys=keys)
    return FORMATS[options.format](rows, RESULTS if keys is None else keys, options.spread == "interval")


def _environment(folders: list[Path]) -> dict[str, str] | None:
    """Return the recorded environment of the first run; None if it is missing."""
    from turnout.comparison.folders import run_folders
    from turnout.record.storage import read_json
    from turnout.reporting.page import environment

    try:
        return environment(read_json(run_folders(folders)[0] / "environment.json", instead="make the run anew"))
    except TurnoutError:
        return None


def _data(folders: list[Path], code: Sequence[Path]) -> FederatedData | None:
    """Load the data of the first run, for the plot of the clients' data; None if they cannot be loaded.

    Args:
        folders: folders of runs.
        code: trusted files that their settings may name.
    """
    from turnout.cli.run_plan import saved
    from turnout.cli.settings import Settings
    from turnout.comparison.folders import run_folders

    try:
        return Settings(saved(run_folders(folders)[0], code)).data()
    except TurnoutError as error:
        say(f"no plot of the clients' data: {error}", style="yellow")
        return None
