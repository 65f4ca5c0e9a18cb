"""``turnout compare``: several algorithms with several seeds, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnout.cli import flags
from turnout.cli.completion import names_of
from turnout.cli.errors import guarded
from turnout.core.checks import counted

EPILOG = r"""[bold]Examples[/bold]

turnout compare fedau average_participating average_all --seeds 5 --rounds 300

turnout compare fedau average_all --seeds 0,3,7 local.lr=0.1 average_all.server_lr=10

turnout compare fedau fedau_inf fedau_inf.algorithm=fedau fedau_inf.cutoff=none

turnout compare fedavg average_participating --to-accuracy 0.8

turnout compare examples/patient.py:patient fedstaleweight fedbuff

turnout compare --config examples/demo.toml --jobs 2

turnout compare --config examples/demo.toml --on slurm:partition=cpu,time=60 --folder /shared/demo

The same command goes on where it was stopped, and does not repeat what is finished. Started several times, also on several
machines that see the folder, it shares the runs: turnout status FOLDER."""


@guarded
def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ALGORITHM|KEY=VALUE",
            help="What to compare (turnout list algorithms), and any settings: of all, local.lr=0.05, or of one, "
            "fedau.cutoff=10",
            show_default=False,
            autocompletion=names_of("ALGORITHMS"),
        ),
    ] = None,
    seeds: flags.Seeds = None,
    data: flags.Data = None,
    model: flags.Model = None,
    availability: flags.Availability = None,
    pace: flags.Pace = None,
    loss: flags.Loss = None,
    rounds: flags.Rounds = None,
    every: flags.Every = None,
    engine: flags.Engine = None,
    device: flags.Device = None,
    config: flags.Config = None,
    jobs: flags.Jobs = None,
    on: flags.On = None,
    runs_per_job: flags.RunsPerJob = None,
    threads: flags.ThreadsOfEach = 1,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where everything goes (default: runs/CONFIG, or runs/compare-DATA).", rich_help_panel=flags.OUTCOME
        ),
    ] = None,
    to_accuracy: flags.ToAccuracy = None,
    report: flags.Report = True,
    checkpoint_every: flags.CheckpointEvery = None,
    print_config: flags.PrintConfig = False,
    dry_run: flags.DryRun = False,
    quiet: flags.Quiet = False,
) -> None:
    """Compare algorithms over several seeds: a table of means and deviations, and a report.

    Algorithms share everything but themselves: with one seed, all see the same clients, data, start and participation.
    """
    from turnout.cli.compare import asked, conclude, prepare
    from turnout.cli.dry_run import planned_of_all
    from turnout.cli.output import introduce, jobs_of, resources_of, show, watched
    from turnout.cli.print_config import file_of
    from turnout.cli.toml import toml
    from turnout.cli.variants import seeds_of
    from turnout.comparison import RunsFailed
    from turnout.comparison.compare import perform_all, runs_of

    given = flags.layer(
        data=data, model=model, availability=availability, pace=pace, rounds=rounds, evaluate_every=every, engine=engine,
        device=device, loss=loss, seeds=seeds, to_accuracy=to_accuracy,
    )  # fmt: skip
    found, plan = asked(names or [], config, given)
    numbers = seeds_of(3 if found.seeds is None else found.seeds)
    if print_config:
        typer.echo(toml(file_of(plan, found)), nl=False)
        return
    if dry_run:
        show(planned_of_all(plan, numbers, "algorithm"))
        return
    first = next(iter(plan.values()))
    target = folder or Path("runs") / (config.stem if config else f"compare-{first.table['data']['name']}")
    side_by_side = jobs_of(jobs, threads, on, [first])
    shared = prepare(plan, numbers, target, found.to_accuracy is not None)
    if not quiet:
        introduce(f"{counted(len(plan), 'algorithm')}, {counted(len(numbers), 'seed')}", plan.values(), shared)
    try:
        with (
            resources_of(side_by_side, threads, on, runs_per_job, target) as resources,
            watched(len(plan) * len(numbers), quiet) as tell,
        ):
            runs = runs_of(plan, numbers, target, checkpoint_every)
            records = list(perform_all(runs, target, resources, tell).values())
    except RunsFailed as failed:
        if failed.records:
            conclude(failed.records, target, shared, found.to_accuracy, report)
        raise
    conclude(records, target, shared, found.to_accuracy, report)
