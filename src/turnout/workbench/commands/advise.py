"""``turnout advise``: measure participation, and recommend a rule for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from turnout.cli.command import argument, command, examples, option, options, switch

if TYPE_CHECKING:
    import numpy as np

    from turnout.workbench.advise.advice import Trial
    from turnout.workbench.benchmark.cells import Cell

EPILOG = examples(
    """
turnout advise runs/fedau-digits
turnout advise trace.csv --try
turnout advise --availability markov
""",
    "A trace is a CSV or Parquet file with the columns client, from and to, in rounds.",
)


@options
class AdviseOptions:
    """Options of ``turnout advise``."""

    source: Path | None = argument("Folder of a run, or file of a trace.", "[RUN|TRACE.csv]", None)
    availability: str | None = option("Pattern of availability in place of a run or trace.", "NAME")
    output: Path | None = option("File of the picture of participation.", "FILE.svg")
    trial: bool = switch("Try the leading rules on the trace, with data of the benchmark.", "--try")


@command(AdviseOptions, EPILOG)
def advise(options: AdviseOptions) -> None:
    """Measure participation, name the nearest cells of the benchmark and the rules that led there.

    With --try, the three leading rules run on the trace over five seeds, and one is recommended only if it is significantly
    better than the plain mean. Labels are not needed.
    """
    from turnout.workbench.advise.advice import leaders, nearest, standing, tried
    from turnout.workbench.advise.participation import Participation
    from turnout.workbench.benchmark.cells import Version
    from turnout.workbench.benchmark.rows import published
    from turnout.workbench.benchmark.standings import table_of

    present, version = _present(options), Version.read()
    seen = Participation.of(present)
    for line in seen.lines():
        typer.echo(line)
    if options.output is not None:
        _draw(present, options.output)
    cells, rows = nearest(seen, version), published(version)
    if not any(row["rule"] == version.reference for row in rows):
        _tell_cells(cells)
        typer.echo(f"no advice: the benchmark has no row of {version.reference}: write turnout benchmark run")
        return
    table = table_of(rows, version, "small")
    for cell, distance in cells:
        better = [f"{rule} {100 * each.gap.mean:+.1f} ± {100 * (each.gap.margin or 0.0):.1f}"
                  for rule, each in standing(table, cell) if each.gap][:3]  # fmt: skip
        led = (
            f"better than the plain mean by points of test accuracy: {', '.join(better)}"
            if better
            else "no rule is better"
        )
        typer.echo(f"near {cell.name} (distance {distance:.1f}): {led}")
    if not options.trial:
        typer.echo("try the leading rules on this participation: --try")
        return
    _recommend(tried(present, leaders(table, [cell for cell, _ in cells]), rows, cells[0][0], version))


def _present(options: AdviseOptions) -> np.ndarray:
    """Return who took part when."""
    from turnout.cli.settings import Settings
    from turnout.core.checks import ConfigurationError
    from turnout.workbench.advise.participation import available_in, present_in

    if (options.source is None) == (options.availability is None):
        raise ConfigurationError("give one of RUN, TRACE.csv and --availability: turnout advise trace.csv")
    if options.source is not None:
        return present_in(options.source)
    return available_in(Settings.of({"availability": {"name": options.availability}, "rounds": 500})(0))


def _draw(present: np.ndarray, path: Path) -> None:
    """Draw participation: visits, the share of clients, and the lengths of visits and absences."""
    from turnout.population.availability import Trace
    from turnout.reporting.availability_figure import availability_figure
    from turnout.reporting.page import save_figure
    from turnout.workbench.advise.advice import visits

    bound = Trace(visits(present), rounds=present.shape[1]).bind(len(present))
    save_figure(availability_figure({"participation": bound}, present.shape[1]), path)
    typer.echo(f"picture: {path}")


def _tell_cells(cells: list[tuple[Cell, float]]) -> None:
    """Print the nearest cells."""
    for cell, distance in cells:
        typer.echo(f"near {cell.name} (distance {distance:.1f})")


def _recommend(trials: list[Trial]) -> None:
    """Print the tried rules, and the recommendation."""
    for trial in trials:
        margin = 100 * (trial.gap.margin or 0.0)
        typer.echo(f"{trial.rule}: {100 * trial.gap.mean:+.1f} ± {margin:.1f} points (p {trial.p:.2g})")
    if best := next((trial for trial in trials if trial.is_better), None):
        typer.echo(f"recommended: {best.rule} {' '.join(f'{name}={value}' for name, value in best.options.items())}")
    else:
        typer.echo("recommended: the plain mean: differences are within the noise")
