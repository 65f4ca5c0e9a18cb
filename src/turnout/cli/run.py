"""``turnout run``: one run, from settings to its result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import typer

from turnout.callbacks import AfterRound, Callback, EarlyStopping
from turnout.cli import own
from turnout.cli.errors import RunFailed
from turnout.cli.options import Table
from turnout.cli.output import console, say, show, warn_of_dropped
from turnout.cli.settings import Settings
from turnout.cli.variants import Layers
from turnout.comparison import is_finished, load_record
from turnout.core.checks import CheckpointError, ConfigurationError, TurnoutError, counted
from turnout.distributed import collectives
from turnout.experiment import Experiment
from turnout.record import checkpoint, storage
from turnout.record.query import History
from turnout.reporting import comparison, rich_tables
from turnout.reporting.progress import BY_IMPORTANCE, Progress, quality
from turnout.reporting.style import name_of
from turnout.simulation.running import Interrupted
from turnout.trackers import TRACKERS

SETTINGS = "settings.json"


def perform(
    experiment: Experiment,
    settings: Settings,
    folder: Path,
    resume: bool,
    checkpoint_every: int | None,
    quiet: bool,
    watching: Sequence[Callback] = (),
) -> None:
    """Run in a folder that also keeps the settings, with further callbacks."""
    first = collectives.rank() == 0
    told = say if first and not quiet else _nothing
    if collectives.broadcast(resume and is_finished(folder, experiment)):
        told(f"all {experiment.rounds} rounds are done already; --rounds adds more")
        return
    if resume:
        told(f"going on with the run in {folder}; another --folder starts anew")
    begun = [False]
    shown = [Progress(console())] if first and not quiet else []

    def begin(row: Mapping[str, Any]) -> None:
        del row
        begun[0] = True

    try:
        experiment.run(
            folder,
            resume=resume,
            checkpoint_every=checkpoint_every,
            callbacks=[_Keep(settings), AfterRound(begin), *shown, *watching],
        )
    except Interrupted:
        raise
    except TurnoutError as error:
        raise RunFailed(str(error)) if begun[0] else error from error


class _Keep(Callback):
    """Keep the settings of a run in its folder, once nothing of them was refused."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def on_start(self, config: Mapping[str, Any], folder: Path | None) -> None:
        """Save them."""
        del config
        if folder is not None:
            save(self._settings, folder)


def _nothing(text: str) -> None:
    """Say nothing."""
    del text


def save(settings: Settings, folder: Path) -> None:
    """Keep the settings of a run in its folder, unless they are there: another worker may be at the run."""
    path = folder / SETTINGS
    if not storage.is_whole(path) or _recorded(folder) != settings.table:
        with storage.locked(folder, patience=storage.PATIENCE):
            storage.save(folder, {SETTINGS: storage.json_writer(settings.table)})


def saved(folder: Path, code: Sequence[Path] = ()) -> Table:
    """Return the settings of the run in a folder, to be used.

    Args:
        folder: of the run.
        code: files that the settings may name.

    Raises:
        CheckpointError: where the folder does not say.
        ConfigurationError: where the settings name other code.
    """
    own.refuse_code(found := _recorded(folder), folder, code)
    return found


def _recorded(folder: Path) -> Table:
    """Return the settings of the run in a folder, which may name anybody's code: only to compare."""
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


def place_of(name: str, folder: Path | None, experiment: Experiment) -> tuple[Path, bool]:
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


def callbacks_of(trackers: Sequence[str] | None, patience: int | None, stop_at: float | None) -> list[Callback]:
    """Return what watches a run: trackers by their names, and what may end it early."""
    found: list[Callback] = [own.member(TRACKERS, each, "tracker")() for each in trackers or ()]
    return found if patience is None and stop_at is None else [*found, EarlyStopping(patience, stop_at)]


def resumed(folder: Path, layers: Sequence[Table], code: Sequence[Path], *, alone: bool) -> Settings:
    """Return the settings of a run that is to go on, with layers over them.

    Args:
        folder: of the run.
        layers: of settings.
        code: files that its settings may name.
        alone: whether no other flag names settings or a folder.

    Raises:
        ConfigurationError: where one does, or the settings name other code.
    """
    if not alone:
        raise ConfigurationError(
            f"{folder} has its settings: leave --config, --folder and --algorithm out beside --resume"
        )
    return Settings.of(saved(folder, code), *layers)


def conclude(folder: Path) -> None:
    """Show the table of a finished run, and its last figure."""
    record = load_record(folder)
    show(rich_tables(comparison([record])))
    warn_of_dropped([record])
    typer.echo(f"tables and checkpoint: {folder}")
    typer.echo(final(record.history))
