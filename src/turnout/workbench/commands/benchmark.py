"""``turnout benchmark``: compute, show and check rows of the participation benchmark."""

from __future__ import annotations

from pathlib import Path

import typer

from turnout.cli.command import argument, command, examples, option, options

EPILOG = examples(
    "turnout benchmark run fedau",
    "turnout benchmark show",
)
ROWS = Path("src/turnout/workbench/benchmark/rows")
"""The folder of the published rows in a clone."""


@options
class RunOptions:
    """Options of ``turnout benchmark run``."""

    rule: str = argument("Rule: turnout list algorithms, or FILE.py:NAME.", "RULE")
    tier: str = option("Tier of cells: small, or full, which needs downloads.", "small|full", "small")
    cells: str | None = option("Cells to compute, separated by commas (default: all cells of the tier).", "CELL,CELL")
    jobs: int = option("Number of processes, each of which runs one cell at a time.", "N", 1)
    output: Path | None = option("Output file of the row (default: runs/benchmark/RULE.json).", "FILE")


@options
class ShowOptions:
    """Options of ``turnout benchmark show``."""

    rows: list[Path] | None = argument("Rows to add to the published ones.", "[ROW.json]...", None)
    tier: str = option("Tier of cells: small or full.", "small|full", "small")
    output: Path = option("Output file.", "FILE.html", Path("runs/benchmark/table.html"))


@options
class RowOptions:
    """Options of commands about one row."""

    row: Path = argument("File of the row, written by turnout benchmark run.", "ROW.json")
    seed: int = option("Seed that selects the run to recompute.", "N", 0)


@command(RunOptions)
def run(options: RunOptions) -> None:
    """Tune a rule in each cell, run it with all seeds, and write its row and a page with all rows.

    Examples:
        turnout benchmark run fedau --jobs 2
        turnout benchmark run rules.py:patient --output patient.json
        turnout benchmark run fedau --tier full --cells writers-chance

    The same command resumes where it was stopped.
    """
    from turnout.cli.user_code import short
    from turnout.core.checks import count
    from turnout.workbench.benchmark.cells import Version
    from turnout.workbench.benchmark.rows import compute, published
    from turnout.workbench.reproduction.running import listed

    count("jobs", options.jobs)
    version = Version.read()
    path = options.output or Path(f"runs/benchmark/{short(options.rule)}.json")
    cells = version.of_tier(options.tier, listed(options.cells) or [options.cells] if options.cells else ())
    row = compute(options.rule, version, cells, path, options.jobs, typer.echo)
    typer.echo(f"row: {path}")
    others = [each for each in published(version) if each["rule"] != row["rule"]]
    if any(each["rule"] == version.reference for each in [*others, row]):
        _write_page([*others, row], options.tier, path.with_suffix(".html"))


@command(ShowOptions)
def show(options: ShowOptions) -> None:
    """Write a page with the published rows and, if given, further ones.

    Examples:
        turnout benchmark show
        turnout benchmark show patient.json --output table.html
    """
    from turnout.workbench.benchmark.cells import Version
    from turnout.workbench.benchmark.rows import load, published

    own = [load(path) for path in options.rows or []]
    others = [row for row in published(Version.read()) if row["rule"] not in {each["rule"] for each in own}]
    _write_page([*others, *own], options.tier, options.output)


@command(RowOptions)
def check(options: RowOptions) -> None:
    """Recompute a random run of a row, and compare its figures, bit for bit on the same kind of machine.

    Examples:
        turnout benchmark check patient.json
    """
    from turnout.workbench.benchmark.cells import Version
    from turnout.workbench.benchmark.rows import check, load

    typer.echo(check(load(options.row), Version.read(), options.seed))


@command(RowOptions)
def submit(options: RowOptions) -> None:
    """Check a row, and write the file to add to the published rows in a pull request.

    Examples:
        turnout benchmark submit patient.json
    """
    from turnout.core.checks import ConfigurationError
    from turnout.workbench.benchmark.cells import Version
    from turnout.workbench.benchmark.rows import check, load, missing_seeds, save

    version, row = Version.read(), load(options.row)
    found = row["cells"]
    small = [cell.name for cell in version.of_tier("small")]
    if missing := [name for name in small if name not in found or missing_seeds(found[name], version)]:
        raise ConfigurationError(f"{options.row} lacks {', '.join(missing)}: run turnout benchmark run {row['rule']}")
    typer.echo(check(row, version, options.seed))
    name = row["rule"].rpartition(":")[2]
    target = (ROWS if ROWS.is_dir() else Path(".")) / version.name / f"{name}.json"
    save(row, target)
    typer.echo(f"add this file to a pull request: {target}")


def _write_page(rows: list, tier: str, path: Path) -> None:
    """Write the page of rows, and say where it is."""
    from turnout.workbench.benchmark.cells import Version
    from turnout.workbench.benchmark.page import write
    from turnout.workbench.benchmark.standings import RANKED, table_of

    version = Version.read()
    tables = [table_of(rows, version, tier, figure) for figure in RANKED]
    typer.echo(f"page: {write(tables, version, path)}")
