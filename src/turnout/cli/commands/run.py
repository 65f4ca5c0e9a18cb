"""``turnout run``: perform one run from settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from turnout.cli.command import command, option, options
from turnout.cli.console import show
from turnout.cli.groups import (
    SETTINGS,
    AlgorithmOption,
    CodeOption,
    ExperimentOptions,
    PreviewOptions,
    ThreadsOption,
    WatchedOptions,
    folder_option,
    settings_argument,
)

if TYPE_CHECKING:
    from turnout.cli.settings import Settings


@options
class RunOptions(WatchedOptions, PreviewOptions, CodeOption, ThreadsOption, ExperimentOptions, AlgorithmOption):
    """Options of ``turnout run``."""

    overrides: list[str] | None = settings_argument()
    seed: int | None = option("Seed of all random numbers (default: 0).", "N", panel=SETTINGS)
    folder: Path | None = folder_option("runs/ALGORITHM-DATA-SEED")
    resume: Path | None = option("Resume a run that was stopped or killed, or extend it with --rounds.", "FOLDER")
    stop_at: float | None = option(
        "Stop at this accuracy, e.g. 0.9, on validation examples or else test examples.", "X"
    )
    patience: int | None = option("Stop after N evaluations without a better accuracy.", "N")
    track: list[str] | None = option("Log to tensorboard, wandb, mlflow or trackio; repeatable.", "NAME")


@command(RunOptions)
def run(options: RunOptions) -> None:
    """Train a model with partial participation of clients, and print its accuracy.

    The default settings are FedAU on digits, with 100 non-IID clients and Markov availability.

    Processes that torchrun starts train one model together, and divide every cohort among themselves.

    Examples:
        turnout run --algorithm fedau --data digits --rounds 500
        turnout run --algorithm fedvarp --availability bernoulli availability.mean=0.3 local.lr=0.05
        turnout run --data mnist --model mlp model.hidden=64,30 data.alpha=0.3 data.num_clients=50
        turnout run 'local.lr={kind="halving", initial=0.1, start=200, every=100}' also.prox.mu=0.01
        turnout run --config examples/demo.toml --algorithm mifa --seed 1
        turnout run --track tensorboard --track mlflow
        turnout run --algorithm mifa --print-config > mifa.toml
        turnout run --resume runs/fedau-digits-0 --rounds 1000
        torchrun --nproc-per-node 2 -m turnout run --algorithm fedau --data digits
    """
    from turnout.cli.dry_run import planned, table_of
    from turnout.cli.print_config import completed, toml
    from turnout.cli.run import callbacks_of, conclude, folder_of, perform
    from turnout.cli.runs import introduce
    from turnout.distributed import collectives

    settings = _settings(options)
    options.use_threads()
    resume, quiet = options.resume, options.quiet
    callbacks = callbacks_of(options.track, options.patience, options.stop_at)
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
            (resume, True) if resume else folder_of(name, options.folder, experiment)
        )
        if first and not quiet:
            introduce(settings.name, [settings], experiment.data)
        perform(experiment, settings, target, goes_on, options.checkpoint_every, quiet, callbacks)
    if first:
        conclude(target, quiet)


def _settings(options: RunOptions) -> Settings:
    """Return the settings of the command line, which override those of a run to resume."""
    from turnout.cli import layers
    from turnout.cli.run import one_algorithm, resumed

    under = [*options.layers(seed=options.seed), *map(layers.override, options.overrides or ())]
    if options.resume is None:
        return one_algorithm(under, options.algorithm)
    alone = not (options.config or options.folder or options.algorithm)
    return resumed(options.resume, under, options.code or (), alone=alone)
