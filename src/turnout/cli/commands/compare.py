"""``turnout compare``: compare algorithms over several seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from turnout.cli.command import argument, command, option, options
from turnout.cli.groups import OUTCOME, ExperimentOptions, PreviewOptions, folder_option, names_of, seeds_option
from turnout.cli.runs_options import RunsOptions
from turnout.core.checks import counted


@options
class CompareOptions(PreviewOptions, RunsOptions, ExperimentOptions):
    """Options of ``turnout compare``."""

    names: list[str] | None = argument(
        "Algorithms (turnout list algorithms) and settings of all, local.lr=0.05, or of one, fedau.cutoff=10",
        "ALGORITHM|KEY=VALUE", None, autocompletion=names_of("algorithm"),
    )  # fmt: skip
    seeds: str | None = seeds_option()
    folder: Path | None = folder_option("runs/CONFIG, runs/compare-DATA, or runs/tuned-DATA with --tune")
    to_accuracy: float | None = option(
        "Also report the rounds, bytes and simulated seconds until this accuracy was reached, e.g. 0.8.",
        "SHARE", panel=OUTCOME,
    )  # fmt: skip
    tune: int | None = option(
        "First tune the step sizes of each algorithm with this number of client updates, by validation examples of other "
        "seeds.",
        "UPDATES",
    )  # fmt: skip


@command(CompareOptions)
def compare(options: CompareOptions) -> None:
    """Compare algorithms over several seeds: a table of means and standard deviations, and a report.

    For each seed, all algorithms have the same clients, data, initial model and participation.

    Examples:
        turnout compare fedau average_participating average_all --seeds 5 --rounds 300
        turnout compare fedau average_all --seeds 0,3,7 local.lr=0.1 average_all.server_lr=10
        turnout compare fedau fedau_inf fedau_inf.algorithm=fedau fedau_inf.cutoff=none
        turnout compare fedavg average_participating --to-accuracy 0.8
        turnout compare examples/patient.py:patient fedstaleweight fedbuff
        turnout compare --config examples/demo.toml --jobs 2
        turnout compare fedau average_all --rounds 300 --seeds 5 --tune 100000
        turnout compare --config examples/demo.toml --on slurm:partition=cpu,time=60 --folder /shared/demo

    The same command resumes where it was stopped, and does not repeat finished runs. Several instances, also on several
    machines that share the folder, divide the runs among themselves: turnout status FOLDER.
    """
    from turnout.cli import runs, tune
    from turnout.cli.compare import conclude, planned
    from turnout.cli.console import show
    from turnout.cli.dry_run import planned_of_all
    from turnout.cli.print_config import file_of, toml
    from turnout.cli.run_plan import Plan
    from turnout.cli.variants import seeds_of

    whole, settings = planned(options.names or [], options.layers(seeds=options.seeds, to_accuracy=options.to_accuracy))
    if options.print_config:
        typer.echo(toml(file_of(settings, whole)), nl=False)
        return
    first, config = next(iter(settings.values())), options.config
    kind = "compare" if options.tune is None else "tuned"
    target = options.folder or Path("runs") / (config.stem if config else f"{kind}-{first.table['data']['name']}")
    plan = Plan(settings, seeds_of(3 if whole.seeds is None else whole.seeds), target)
    if options.dry_run:
        show(planned_of_all(plan, "algorithm"))
        return
    resources = options.resources([first], options.device)
    data = plan.check(target=whole.to_accuracy is not None)
    if not options.quiet:
        what = f"{counted(len(settings), 'algorithm')}, {counted(len(plan.seeds), 'seed')}"
        runs.introduce(what, settings.values(), data)

    tuned = {}
    # A search chooses settings that the folder may have already, so only the names of runs are compared before it.
    fits = Plan.check_folder if options.tune is None else Plan.check_order
    plan = plan.placed(fits, numbered=options.folder is None)
    target = plan.folder
    if options.tune is not None:
        with runs.resources_on(options, resources, target) as performers:
            plan, tuned = tune.tuned_plan(plan, options.tune, performers, not options.quiet)
        plan.check_folder()
        tune.tell(plan, tuned, whole)

    def tell(done: Any, _: str = "") -> None:
        conclude(done, target, data, whole.to_accuracy, options.report, tune.lines_of(tuned))

    runs.perform(options, plan.runs(options.checkpoint_every), target, resources, tell)
