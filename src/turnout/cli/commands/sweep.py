"""``turnout sweep``: a grid over any settings, and the best point of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnout.cli import flags
from turnout.cli.errors import guarded
from turnout.core.checks import counted

EPILOG = r"""[bold]Examples[/bold]

turnout sweep --algorithm fedau --grid local.lr=0.05,0.1,0.2 --grid algorithm.server_lr=1,3 --rounds 300

turnout sweep --algorithm folb --grid local.lr=0.01,0.03 --grid also.prox.mu=0.001,0.1 --to-accuracy 0.7

turnout sweep --grid algorithm=fedau,mifa --grid local.lr=0.05,0.1 --metric train_loss --seeds 100,101

turnout sweep --algorithm fedavg --grid 'model.hidden=[64],[64,30]' model.dropout=0.1

A comma separates values of the grid; a value that is a list has brackets. Without --grid, model.hidden=64,30 is one list,
as everywhere. In a file: [grid] local.lr = [0.05, 0.1]. The same command goes on where it was stopped."""


@guarded
def sweep(
    overrides: flags.Overrides = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid", "-g", metavar="KEY=VALUE,VALUE", help="A setting, and the values to try; once for each axis."
        ),
    ] = None,
    algorithm: flags.Algorithm = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What decides: the mean over seeds of where this ends, test_accuracy (default) or train_loss, or a "
            "measure such as 'average train_loss'. Choosing by test accuracy spends the test on it.",
        ),
    ] = None,
    to_accuracy: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Let the rounds until this accuracy decide (their median), e.g. 0.8."),
    ] = None,
    seeds: flags.Seeds = None,
    data: flags.Data = None,
    model: flags.Model = None,
    availability: flags.Availability = None,
    pace: flags.Pace = None,
    rounds: flags.Rounds = None,
    every: flags.Every = None,
    engine: flags.Engine = None,
    device: flags.Device = None,
    config: flags.Config = None,
    jobs: flags.Jobs = None,
    threads: flags.ThreadsOfEach = 1,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where everything goes (default: runs/CONFIG, or runs/sweep-DATA).", rich_help_panel=flags.OUTCOME
        ),
    ] = None,
    report: flags.Report = True,
    checkpoint_every: flags.CheckpointEvery = None,
    quiet: flags.Quiet = False,
) -> None:
    """Run every combination of some settings over several seeds, side by side, and tell the best.

    With one seed, all combinations see the same clients, data, start and participation.
    """
    from turnout.cli import layers
    from turnout.cli.output import introduce, jobs_of, watched
    from turnout.cli.sweep import conclude, grid_of, prepare, settings_of
    from turnout.cli.variants import Layers, seeds_of
    from turnout.comparison import RunsFailed
    from turnout.comparison.compare import perform_all, runs_of
    from turnout.comparison.sweep import measure_of, points, sorted_out

    given = flags.layer(
        data=data, model=model, availability=availability, pace=pace, rounds=rounds, evaluate_every=every, engine=engine,
        device=device, seeds=seeds, to_accuracy=to_accuracy,
    )  # fmt: skip
    under = [*([layers.read(config)] if config else []), given, *map(layers.override, overrides or ())]
    axes = grid_of([layer.pop("grid", {}) for layer in under], grid or ())
    asked = Layers.of(under)
    measure = measure_of(metric, asked.to_accuracy)
    combinations = points(axes)
    plan = {name: settings_of(under, algorithm, name, point) for name, point in combinations.items()}
    numbers = seeds_of(3 if asked.seeds is None else asked.seeds)
    first = next(iter(plan.values()))
    target = folder or Path("runs") / (config.stem if config else f"sweep-{first.table['data']['name']}")
    side_by_side = jobs_of(jobs, threads, [first])
    shared = prepare(plan, numbers, target, measure)
    if not quiet:
        introduce(f"{counted(len(plan), 'point')}, {counted(len(numbers), 'seed')}", plan.values(), shared)
    try:
        with watched(len(plan) * len(numbers), quiet) as tell:
            runs = runs_of(plan, numbers, target, checkpoint_every)
            records = list(perform_all(runs, target, jobs=side_by_side, threads=threads, progress=tell).values())
    except RunsFailed as failed:
        if failed.records:
            conclude(sorted_out(axes, combinations, failed.records, measure, asked.to_accuracy), target, report)
        raise
    conclude(sorted_out(axes, combinations, records, measure, asked.to_accuracy), target, report)
