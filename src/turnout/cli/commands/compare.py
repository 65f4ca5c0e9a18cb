"""``turnout compare``: several algorithms with several seeds, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli import flags
from turnout.cli.completion import names_of
from turnout.cli.errors import guarded
from turnout.cli.groups import ExperimentOptions, RunsOptions, takes
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


@dataclass(frozen=True, kw_only=True)
class CompareOptions(RunsOptions, ExperimentOptions):
    """Options of ``turnout compare``."""

    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ALGORITHM|KEY=VALUE",
            help="What to compare (turnout list algorithms), and any settings: of all, local.lr=0.05, or of one, "
            "fedau.cutoff=10",
            show_default=False,
            autocompletion=names_of("ALGORITHMS"),
        ),
    ] = None
    seeds: flags.Seeds = None
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where everything goes (default: runs/CONFIG, or runs/compare-DATA).", rich_help_panel=flags.OUTCOME
        ),
    ] = None
    to_accuracy: flags.ToAccuracy = None
    print_config: flags.PrintConfig = False
    dry_run: flags.DryRun = False


@guarded
@takes(CompareOptions)
def compare(options: CompareOptions) -> None:
    """Compare algorithms over several seeds: a table of means and deviations, and a report.

    Algorithms share everything but themselves: with one seed, all see the same clients, data, start and participation.
    """
    from turnout.cli.compare import asked, conclude, prepare
    from turnout.cli.dry_run import planned_of_all
    from turnout.cli.output import introduce, show, watched
    from turnout.cli.print_config import file_of
    from turnout.cli.toml import toml
    from turnout.cli.variants import seeds_of
    from turnout.comparison import RunsFailed
    from turnout.comparison.compare import perform_all, runs_of

    found, plan = asked(options.names or [], options.layers(seeds=options.seeds, to_accuracy=options.to_accuracy))
    numbers = seeds_of(3 if found.seeds is None else found.seeds)
    if options.print_config:
        typer.echo(toml(file_of(plan, found)), nl=False)
        return
    if options.dry_run:
        show(planned_of_all(plan, numbers, "algorithm"))
        return
    first, config = next(iter(plan.values())), options.config
    target = options.folder or Path("runs") / (config.stem if config else f"compare-{first.table['data']['name']}")
    at_once = options.at_once([first])
    shared = prepare(plan, numbers, target, found.to_accuracy is not None)
    if not options.quiet:
        introduce(f"{counted(len(plan), 'algorithm')}, {counted(len(numbers), 'seed')}", plan.values(), shared)
    try:
        with (
            options.resources(at_once, target) as resources,
            watched(len(plan) * len(numbers), options.quiet) as tell,
        ):
            runs = runs_of(plan, numbers, target, options.checkpoint_every)
            records = list(perform_all(runs, target, resources, tell).values())
    except RunsFailed as failed:
        if failed.records:
            conclude(failed.records, target, shared, found.to_accuracy, options.report)
        raise
    conclude(records, target, shared, found.to_accuracy, options.report)
