"""``turnout run``: one run, from settings to its result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli import flags
from turnout.cli.errors import guarded
from turnout.cli.groups import AlgorithmOption, ExperimentOptions, takes

EPILOG = r"""[bold]Examples[/bold]

turnout run --algorithm fedau --data digits --rounds 500

turnout run --algorithm fedvarp --availability bernoulli availability.mean=0.3 local.lr=0.05

turnout run --data mnist --model mlp model.hidden=64,30 data.alpha=0.3 data.num_clients=50

turnout run 'local.lr={kind="halving", initial=0.1, start=200, every=100}' also.prox.mu=0.01

turnout run --config examples/demo.toml --algorithm mifa --seed 1

turnout run --track tensorboard --track mlflow

turnout run --algorithm mifa --print-config > mifa.toml

turnout run --resume runs/fedau-digits-0 --rounds 1000

torchrun --nproc-per-node 2 -m turnout run --algorithm fedau --data digits"""


@dataclass(frozen=True, kw_only=True)
class RunOptions(ExperimentOptions, AlgorithmOption):
    """Options of ``turnout run``."""

    overrides: flags.Overrides = None
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Of everything random in the run (default: 0).", rich_help_panel=flags.SETTINGS),
    ] = None
    threads: flags.Threads = None
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where tables and checkpoints go (default: runs/ALGORITHM-DATA-SEED).", rich_help_panel=flags.OUTCOME
        ),
    ] = None
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Go on with a run that was stopped or killed, or add --rounds to it."),
    ] = None
    code: flags.Code = None
    checkpoint_every: flags.CheckpointEvery = None
    stop_at: Annotated[
        float | None,
        typer.Option(
            metavar="X", help="End the run once its accuracy is X, e.g. 0.9: on validation examples, or else test."
        ),
    ] = None
    patience: Annotated[
        int | None, typer.Option(metavar="N", help="End the run after N evaluations without a better accuracy.")
    ] = None
    track: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Hand figures on to tensorboard, wandb, mlflow or trackio; may be repeated."),
    ] = None
    print_config: flags.PrintConfig = False
    dry_run: flags.DryRun = False
    quiet: flags.Quiet = False


@guarded
@takes(RunOptions)
def run(options: RunOptions) -> None:
    """Train one model over clients who come and go, and print its accuracy.

    Without any settings: FedAU on digits, 100 clients who hold few classes each and come and go.

    The processes that torchrun starts train one model together, each its share of every cohort.
    """
    from turnout.cli import layers
    from turnout.cli.dry_run import planned, table_of
    from turnout.cli.output import introduce, show
    from turnout.cli.print_config import completed
    from turnout.cli.run import callbacks_of, conclude, one_algorithm, perform, place_of, resumed
    from turnout.cli.toml import toml
    from turnout.distributed import collectives

    given = [*options.layers(seed=options.seed), *map(layers.override, options.overrides or ())]
    flags.use_threads(options.threads)
    resume, quiet = options.resume, options.quiet
    if resume is None:
        settings = one_algorithm(given, options.algorithm)
    else:
        alone = not (options.config or options.folder or options.algorithm)
        settings = resumed(resume, given, options.code or (), alone=alone)
    watching = callbacks_of(options.track, options.patience, options.stop_at)
    if options.print_config:
        typer.echo(toml(completed(settings.table)), nl=False)
        return
    if options.dry_run:
        show(table_of(planned(settings.experiment())))
        return
    with collectives.started(settings.numbers().get("device", "cpu")):
        first, experiment = collectives.rank() == 0, settings.experiment()
        name = f"runs/{settings.name}-{experiment.data.name}-{experiment.seed}"
        target, goes_on = collectives.broadcast(
            (resume, True) if resume else place_of(name, options.folder, experiment)
        )
        if first and not quiet:
            introduce(settings.name, [settings], experiment.data)
        perform(experiment, settings, target, goes_on, options.checkpoint_every, quiet, watching)
    if first:
        conclude(target)
