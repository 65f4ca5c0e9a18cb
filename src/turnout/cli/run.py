"""Perform one run for ``turnout run``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import typer

from turnout.callbacks import Callback, EarlyStopping
from turnout.cli import layers, user_code
from turnout.cli.console import console, say, show
from turnout.cli.errors import RunFailed
from turnout.cli.options import Table
from turnout.cli.run_plan import save, saved
from turnout.cli.runs import warn_of_dropped
from turnout.cli.settings import Settings
from turnout.cli.variants import Layers
from turnout.comparison.folders import OtherRuns, is_finished, load_record
from turnout.core.checks import ConfigurationError, TurnoutError, counted
from turnout.core.system import same_directory
from turnout.distributed import collectives
from turnout.experiment import Experiment
from turnout.record import checkpoint
from turnout.record.query import History
from turnout.record.schema import explain
from turnout.reporting.progress import BY_IMPORTANCE, Progress, quality
from turnout.results.grid import assignments
from turnout.results.records import RunRecord
from turnout.results.table import comparison, empty_rounds, rich_tables
from turnout.simulation.running import Interrupted
from turnout.trackers import TRACKERS


def perform(
    experiment: Experiment,
    settings: Settings,
    folder: Path,
    resume: bool,
    checkpoint_every: int | None,
    quiet: bool,
    callbacks: Sequence[Callback] = (),
) -> None:
    """Run an experiment in a folder, and save its settings there.

    Args:
        experiment: experiment to run.
        settings: settings of the experiment.
        folder: folder of the run.
        resume: whether to resume the run in the folder.
        checkpoint_every: rounds between checkpoints.
        quiet: whether to hide progress.
        callbacks: callbacks of the run.

    Raises:
        RunFailed: if the run fails after its first round.
        Interrupted: if the user presses Ctrl-C.
    """
    shows, saver = collectives.rank() == 0 and not quiet, _Saver(settings)
    if collectives.broadcast(resume and is_finished(folder, experiment)):
        if shows:
            say(f"all {experiment.rounds} rounds are done already; --rounds adds more")
        return
    if resume and shows:
        say(f"going on with the run in {folder}; another --folder starts anew")
    watching = [saver, *([Progress(console())] if shows else []), *callbacks]
    with saver.failing(), same_directory():
        experiment.run(folder, resume=resume, checkpoint_every=checkpoint_every, callbacks=watching)


class _Saver(Callback):
    """Save the settings of a run in its folder once they are valid, and note the end of its first round."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._has_begun = settings, False

    def on_start(self, config: Mapping[str, Any], folder: Path | None) -> None:
        """Save the settings."""
        if folder is not None:
            save(self._settings, folder)

    def on_round(self, row: Mapping[str, Any]) -> None:
        """Note that a round has ended."""
        self._has_begun = True

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Convert errors after the first round, which are no longer about the settings."""
        try:
            yield
        except TurnoutError as error:
            if isinstance(error, Interrupted) or not self._has_begun:
                raise
            raise RunFailed(str(error)) from error


def final(history: History) -> str:
    """Describe the final accuracy of a run, or else its error, and the evaluations of which that is the mean."""
    metric = next((name for name in BY_IMPORTANCE if history.has_values(name)), None)
    if metric is None:  # a private run of personal models publishes no figure of the clients' examples
        return f"no accuracy or error was recorded in {counted(history.last_round, 'round')}"
    rounds, window = history.column(metric)[0], math.ceil(history.last_round / 10)
    number = max(1, int((rounds > history.last_round - window).sum()))
    when = f" after {counted(history.last_round, 'round')}"
    if number > 1:
        when = f", mean of the last {number} evaluations, rounds {rounds[-number]} to {rounds[-1]}"
    return f"{quality(metric, history.final(metric), 2)}{when}"


def sums_opened(record: RunRecord) -> str | None:
    """Describe how many steps had a secure sum that was opened; None for runs without one, or that do not publish it."""
    aggregation = record.config["algorithm"]["aggregation"]
    if aggregation["kind"] != "SecureSum" and not aggregation.get("secure"):
        return None
    numbers = record.history.column("num_participants")[1]
    return f"{int((numbers > 0).sum())} of {counted(len(numbers), 'secure sum')} opened" if len(numbers) else None


def one_algorithm(under: Sequence[Table], algorithm: str | None) -> Settings:
    """Return settings from layers; of a file for several algorithms, those of the given one."""
    whole = Layers.of(under)
    if algorithm is not None:
        return whole.settings(algorithm)
    if whole.names and not any("algorithm" in layer for layer in whole.common):
        raise ConfigurationError(f"the settings are for several algorithms: add --algorithm {'|'.join(whole.names)}")
    return Settings.of(*whole.common)


def settings_of(under: Sequence[Table], algorithm: str | None, name: str, point: Mapping[str, Any]) -> Settings:
    """Return the settings of one point of a sweep."""
    values = [layers.nested(layers.keys_of(axis), value) for axis, value in point.items() if axis != "algorithm"]
    try:
        return one_algorithm([*under, *values, {"name": name}], point.get("algorithm", algorithm))
    except ConfigurationError as error:
        raise ConfigurationError(f"{assignments(point)}: {error}") from error


def folder_of(name: str, folder: Path | None, experiment: Experiment) -> tuple[Path, bool]:
    """Return the folder of a run, and whether it contains the run, which is then resumed.

    The default is `name`, with the next free number appended if that is the folder of another run.
    """
    if folder is not None:
        is_finished(folder, experiment)  # raises an error for the folder of another run
        return folder, checkpoint.exists(folder)
    for number in count(1):
        target = Path(name if number == 1 else f"{name}-{number}")
        with suppress(OtherRuns):
            is_finished(target, experiment)
            if checkpoint.exists(target) or not target.exists():
                return target, checkpoint.exists(target)
    raise AssertionError("unreachable")


def callbacks_of(trackers: Sequence[str] | None, patience: int | None, stop_at: float | None) -> list[Callback]:
    """Return the callbacks of a run: trackers by their names, and early stopping."""
    callbacks: list[Callback] = [user_code.member(TRACKERS, name)() for name in trackers or ()]
    return callbacks if patience is None and stop_at is None else [*callbacks, EarlyStopping(patience, stop_at)]


def resumed(folder: Path, layers: Sequence[Table], code: Sequence[Path], *, alone: bool) -> Settings:
    """Return the settings of a run to resume, overridden by layers.

    Args:
        folder: folder of the run.
        layers: layers of settings.
        code: trusted files that its settings may name.
        alone: whether no other flag gives settings or a folder.

    Raises:
        ConfigurationError: if there is such a flag, or settings name untrusted code.
    """
    if not alone:
        raise ConfigurationError(
            f"{folder} has its settings: leave --config, --folder and --algorithm out beside --resume"
        )
    return Settings.of(saved(folder, code), *layers)


def conclude(folder: Path, quiet: bool = False) -> None:
    """Show the table of a finished run, and its final accuracy; if `quiet`, also what its progress would have shown."""
    record = load_record(folder)
    show(rich_tables(comparison([record])))
    warn_of_dropped([record])
    for note in empty_rounds([record]):
        say(note, style="yellow")
    if quiet and (note := explain(record.history.stopped_by or "")):
        say(note, style="yellow")
    typer.echo(f"tables and checkpoint: {folder}")
    if (opened := sums_opened(record)) is not None:
        typer.echo(opened)
    typer.echo(final(record.history))
