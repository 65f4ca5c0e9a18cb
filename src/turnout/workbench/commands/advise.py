"""``turnout advise``: measure participation, and recommend a rule for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from turnout.cli.command import argument, command, option, options, switch

if TYPE_CHECKING:
    import numpy as np

    from turnout.workbench.advise.trials import Stage, Trial
    from turnout.workbench.benchmark.cells import Cell


@options
class AdviseOptions:
    """Options of ``turnout advise``."""

    source: Path | None = argument("Folder of a run, or file of a trace.", "[RUN|TRACE.csv]", None)
    availability: str | None = option("Pattern of availability, instead of a run or trace.", "NAME")
    output: Path | None = option("Output file of a figure of participation.", "FILE.svg")
    trial: bool = switch("Try the leading rules on the trace, with data of the benchmark.", "--try")
    config: Path | None = option(
        "Try the leading rules with the data, model and local training of this settings file.",
        "FILE",
        None,
        "--config",
        "-c",
    )


@command(AdviseOptions)
def advise(options: AdviseOptions) -> None:
    """Measure participation, and name the nearest cells of the benchmark and the rules that lead in them.

    With --try or --config, the three leading rules run on the trace over twelve seeds, and one is recommended only if it is
    better than the plain mean by more than a point of accuracy, with 95 % confidence. Measuring needs no labels.

    Examples:
        turnout advise runs/fedau-digits
        turnout advise trace.csv --try
        turnout advise trace.csv --config mine.toml
        turnout advise --availability markov

    A trace is a CSV or Parquet file with the columns client, from and to, in rounds.
    """
    from turnout.workbench.advise.advice import Participation, leaders, nearest, standing
    from turnout.workbench.advise.trials import tried
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
        for cell, distance in cells:
            typer.echo(f"near {cell.name} (distance {distance:.1f})")
        typer.echo(f"no advice: the benchmark has no row of {version.reference}: write turnout benchmark run")
        return
    table = table_of(rows, version, "small")
    for cell, distance in cells:
        better = [f"{rule} {each.gap.points}" for rule, each in standing(table, cell) if each.gap][:3]
        led = (
            f"better than the plain mean by points of test accuracy: {', '.join(better)}"
            if better
            else "no rule is better"
        )
        typer.echo(f"near {cell.name} (distance {distance:.1f}): {led}")
    stages = _stages(options, present, cells[0][0])
    for premise, stage in stages.items():
        _recommend(premise, tried(stage, leaders(table, [cell for cell, _ in cells]), rows, version))
    if not stages:
        typer.echo("try the leading rules on this participation: --try, or --config FILE with your data")


def _stages(options: AdviseOptions, present: np.ndarray, near: Cell) -> dict[str, Stage]:
    """Return where rules are tried, by what is assumed about the data."""
    from turnout.cli import layers
    from turnout.workbench.advise.trials import Stage, own_cell

    if options.config is not None:
        return {"with your data": Stage(present, near, own_cell(layers.read(options.config)))}
    if not options.trial:
        return {}
    return {
        "if rates are unrelated to labels": Stage(present, near),
        "if clients with some labels are rarely there": Stage(present, near, related=True),
    }


def _present(options: AdviseOptions) -> np.ndarray:
    """Return who took part when."""
    from turnout.cli.settings import Settings
    from turnout.core.checks import ConfigurationError
    from turnout.workbench.advise.advice import present_in
    from turnout.workbench.benchmark.cells import available_in

    if (options.source is None) == (options.availability is None):
        raise ConfigurationError("give one of RUN, TRACE.csv and --availability: turnout advise trace.csv")
    if options.source is not None:
        return present_in(options.source, everyone=options.config is not None)
    return available_in(Settings.of({"availability": {"name": options.availability}, "rounds": 500})(0))


def _draw(present: np.ndarray, path: Path) -> None:
    """Draw participation: visits, the share of clients, and the lengths of visits and absences."""
    from turnout.population.availability import Trace
    from turnout.reporting.availability_figure import availability_figure
    from turnout.reporting.page import save_figure
    from turnout.workbench.advise.trials import visits

    bound = Trace(visits(present), rounds=present.shape[1]).bind(len(present))
    save_figure(availability_figure({"participation": bound}, present.shape[1]), path)
    typer.echo(f"picture: {path}")


def _recommend(premise: str, trials: list[Trial]) -> None:
    """Print the tried rules, and the recommendation with its uncertainty."""
    from turnout.workbench.advise.trials import LEAD

    typer.echo(f"{premise}:")
    for trial in trials:
        typer.echo(f"  {trial.rule}: {trial.gap.points} points (p {trial.gap.p:.2g})")
    if best := next((trial for trial in trials if trial.is_better), None):
        values = " ".join(f"{name}={value:g}" for name, value in best.options.items())
        typer.echo(f"  recommended: {best.rule} {values}")
    else:
        most = max((100 * (trial.gap.mean + (trial.gap.margin or 0.0)) for trial in trials), default=0.0)
        typer.echo(
            f"  recommended: the plain mean: no rule is ahead by more than {100 * LEAD:g} point with 95 % confidence, "
            f"and leads above {max(most, 0.0):.1f} points are unlikely"
        )
