"""``turnout run``: one run, from settings to its result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from turnout import checkpoint, storage
from turnout.callbacks import AfterRound, Callback, EarlyStopping
from turnout.cli import flags, layers
from turnout.cli.errors import RunFailed, guarded
from turnout.cli.options import Table
from turnout.cli.output import console, introduce, say, show, warn_of_dropped
from turnout.cli.settings import Settings
from turnout.cli.variants import Layers
from turnout.comparison import is_finished, load_record
from turnout.core.checks import CheckpointError, ConfigurationError, TurnoutError, counted, known_name
from turnout.distributed import collectives
from turnout.experiment import Experiment
from turnout.history import History
from turnout.progress import BY_IMPORTANCE, Progress, quality
from turnout.reporting import comparison, rich_tables
from turnout.reporting.style import name_of
from turnout.running import Interrupted
from turnout.trackers import TRACKERS

SETTINGS = "settings.json"

EPILOG = r"""[bold]Examples[/bold]

turnout run --algorithm fedau --data digits --rounds 500

turnout run --algorithm fedvarp --availability bernoulli availability.mean=0.3 local.lr=0.05

turnout run --data mnist --model mlp model.hidden=64,30 data.alpha=0.3 data.num_clients=50

turnout run 'local.lr={kind="halving", initial=0.1, start=200, every=100}' also.prox.mu=0.01

turnout run --config examples/demo.toml --algorithm mifa --seed 1

turnout run --track tensorboard --track mlflow

turnout run --resume runs/fedau-digits-0 --rounds 1000

torchrun --nproc-per-node 2 -m turnout run --algorithm fedau --data digits"""


@guarded
def run(
    overrides: flags.Overrides = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="How to train: turnout list algorithms (default: fedau).",
            rich_help_panel=flags.SETTINGS,
        ),
    ] = None,
    data: flags.Data = None,
    model: flags.Model = None,
    availability: flags.Availability = None,
    pace: flags.Pace = None,
    rounds: flags.Rounds = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Of everything random in the run (default: 0).", rich_help_panel=flags.SETTINGS),
    ] = None,
    every: flags.Every = None,
    engine: flags.Engine = None,
    device: flags.Device = None,
    config: flags.Config = None,
    threads: flags.Threads = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where tables and checkpoints go (default: runs/ALGORITHM-DATA-SEED).", rich_help_panel=flags.OUTCOME
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Go on with a run that was stopped or killed, or add --rounds to it."),
    ] = None,
    checkpoint_every: flags.CheckpointEvery = None,
    stop_at: Annotated[
        float | None, typer.Option(metavar="X", help="End the run once its test accuracy is X, e.g. 0.9.")
    ] = None,
    patience: Annotated[
        int | None, typer.Option(metavar="N", help="End the run after N evaluations without a better test accuracy.")
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Hand figures on to tensorboard, wandb, mlflow or trackio; may be repeated."),
    ] = None,
    quiet: flags.Quiet = False,
) -> None:
    """Train one model over clients who come and go, and print its accuracy.

    Without any settings: FedAU on digits, 100 clients who hold few classes each and come and go.

    The processes that torchrun starts train one model together, each its share of every cohort.
    """
    given = flags.layer(
        data=data, model=model, availability=availability, pace=pace, rounds=rounds, seed=seed, evaluate_every=every,
        engine=engine, device=device,
    )  # fmt: skip
    own = [given, *map(layers.override, overrides or ())]
    flags.use_threads(threads)
    if resume is not None:
        if config or folder or algorithm:
            raise ConfigurationError(
                f"{resume} has its settings: leave --config, --folder and --algorithm out beside --resume"
            )
        settings = Settings.of(saved(resume), *own)
    else:
        settings = one_algorithm([layers.read(config), *own] if config else own, algorithm)
    with collectives.started(settings.numbers().get("device", "cpu")):
        first, experiment = collectives.rank() == 0, settings.experiment()
        name = f"runs/{settings.name}-{experiment.data.name}-{experiment.seed}"
        target, goes_on = collectives.broadcast((resume, True) if resume else _place(name, folder, experiment))
        if first and not quiet:
            introduce(settings.name, [settings], experiment.data)
        watching: list[Callback] = [TRACKERS[known_name("tracker", each, TRACKERS)]() for each in track or ()]
        if patience is not None or stop_at is not None:
            watching.append(EarlyStopping(patience, stop_at))
        perform(experiment, settings, target, goes_on, checkpoint_every, quiet, watching)
    if first:
        record = load_record(target)
        show(rich_tables(comparison([record])))
        warn_of_dropped([record])
        typer.echo(f"tables and checkpoint: {target}")
        typer.echo(final(record.history))


def perform(
    experiment: Experiment,
    settings: Settings,
    folder: Path,
    resume: bool,
    checkpoint_every: int | None,
    quiet: bool,
    watching: Sequence[Callback] = (),
) -> None:
    """Run in a folder that also says how to go on, with further callbacks."""
    first = collectives.rank() == 0
    told = say if first and not quiet else _nothing
    if collectives.broadcast(resume and is_finished(folder, experiment)):
        told(f"all {experiment.rounds} rounds are done already; --rounds adds more")
        return
    if resume:
        told(f"going on with the run in {folder}; another --folder starts anew")
    begun = [False]
    with ExitStack() as held:
        if first:
            held.enter_context(storage.locked(folder))
            save(settings, folder)
        shown = [Progress(console())] if first and not quiet else []

        def begin(row: Mapping[str, Any]) -> None:
            del row
            begun[0] = True

        try:
            experiment.run(
                folder,
                resume=resume,
                checkpoint_every=checkpoint_every,
                callbacks=[AfterRound(begin), *shown, *watching],
            )
        except Interrupted:
            raise
        except TurnoutError as error:
            raise RunFailed(str(error)) if begun[0] else error from error


def _nothing(text: str) -> None:
    """Say nothing."""
    del text


def save(settings: Settings, folder: Path) -> None:
    """Keep the settings of a run in its folder."""
    storage.save(folder, {SETTINGS: storage.json_writer(settings.table)})


def saved(folder: Path) -> Table:
    """Return the settings of the run in a folder."""
    return storage.read_json(
        folder / SETTINGS, instead="give the folder of a run that `turnout run` or `turnout compare` made"
    )


def final(history: History) -> str:
    """Say what accuracy, or else what error, a run ends with, and over which evaluations that is a mean."""
    found = (name for name in BY_IMPORTANCE if name in history.column_names and len(history.column(name)[1]))
    metric = next(found)
    rounds, window = history.column(metric)[0], math.ceil(history.last_round / 10)
    number = max(1, int((rounds > history.last_round - window).sum()))
    when = f" after {counted(history.last_round, 'round')}"
    if number > 1:
        when = f", mean of the last {number} evaluations, rounds {rounds[-number]} to {rounds[-1]}"
    return f"{quality(name_of(metric), history.final(metric), 2)}{when}"


def one_algorithm(given: Sequence[Table], algorithm: str | None) -> Settings:
    """Return settings from layers; of a file for several algorithms, those of the one that was asked for."""
    found = Layers.of(given)
    if algorithm is not None:
        return found.settings(algorithm)
    if found.names and not any("algorithm" in layer for layer in found.common):
        raise ConfigurationError(f"the settings are for several algorithms: add --algorithm {'|'.join(found.names)}")
    return Settings.of(*found.common)


def _place(name: str, folder: Path | None, experiment: Experiment) -> tuple[Path, bool]:
    """Return the folder of a run, and whether it is there already and goes on, as the runs of a comparison do.

    Without a folder of the user's own it is the one of this name, or with the next number behind it where that is another
    run's.
    """
    if folder is not None:
        is_finished(folder, experiment)  # refuses another run's
        return folder, checkpoint.exists(folder)
    for number in count(1):
        place = Path(name if number == 1 else f"{name}-{number}")
        with suppress(CheckpointError):
            is_finished(place, experiment)
            if checkpoint.exists(place) or not place.exists():
                return place, checkpoint.exists(place)
    raise AssertionError("numbers end")
