"""Perform runs of a comparison, in any process, and report their progress."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turnout.callbacks import Callback, Callbacks
from turnout.comparison.folders import is_finished
from turnout.comparison.update import Listener, Update
from turnout.core.checks import ConfigurationError, TurnoutError
from turnout.core.numerics import default_settings
from turnout.core.signals import Flag
from turnout.core.system import same_directory
from turnout.experiment import Experiment
from turnout.record import lock
from turnout.reporting.progress import Notes
from turnout.simulation.dispatch import Steps
from turnout.simulation.lockstep import together
from turnout.simulation.running import Interrupted, stops_on_signal

_PAUSE = 0.1
"""The least number of seconds between two updates of a run."""


@dataclass(frozen=True, eq=False)
class Run:
    """One run of a comparison.

    Attributes:
        name: name of the experiment.
        seed: passed to `make`.
        make: function that makes the experiment of a seed.
        folder: folder of the run.
        checkpoint_every: rounds between checkpoints; None is about one minute.
        group: the panel of a reproduction; empty in a single comparison.
    """

    name: str
    seed: int
    make: Callable[[int], Experiment]
    folder: Path
    checkpoint_every: int | None = None
    group: str = ""

    @property
    def label(self) -> str:
        """The name of the run in updates: ``"mnist/folb"``."""
        return f"{self.group}/{self.name}" if self.group else self.name

    def __str__(self) -> str:
        return f"{self.label}, seed {self.seed}"


@dataclass(frozen=True)
class Resources:
    """The processes, threads and devices for the runs of a comparison.

    Attributes:
        jobs: local processes; None is one per GPU of `devices` or, without any, the number of processors divided by
            `threads`.
        threads: number of threads of each run.
        executor: performs the runs in place of local processes.
        runs_per_job: the number of runs that a job of the executor performs one after another.
        devices: GPUs, ``"cuda:0"``, over which local processes are distributed; each process sees its own as ``"cuda"``.
        lockstep: the number of runs that a process performs in lock-step.
    """

    jobs: int | None = None
    threads: int = 1
    executor: Executor | None = None
    runs_per_job: int = 1
    devices: tuple[str, ...] = ()
    lockstep: int = 1


def perform(runs: Sequence[Run], listener: Listener, must_stop: Callable[[], bool]) -> list[Update]:
    """Perform runs in lock-step until they end or until `must_stop` returns True, and return their last updates.

    The listener receives the updates before the last ones. Errors of a run are part of its last update.
    """
    experiments = [_experiment(run, listener, must_stop) for run in runs]
    with stops_on_signal() as signal, default_settings():
        watches = [_Watch(run, listener, must_stop) for run in runs]
        return together([_steps(*of_run, signal) for of_run in zip(runs, experiments, watches, strict=True)])


def _experiment(run: Run, listener: Listener, must_stop: Callable[[], bool]) -> Experiment | Exception:
    """Return the experiment of a run, or the error that its function raises."""
    listener(Update(run.label, run.seed, "started"))
    try:
        if must_stop():
            raise Interrupted("not begun")
        experiment = run.make(run.seed)
        if not isinstance(experiment, Experiment):
            raise ConfigurationError(f"{run.name}({run.seed}) gave {experiment!r}, needed an Experiment")
        if experiment.seed != run.seed:
            raise ConfigurationError(
                f"{run.name}({run.seed}) gave an experiment with seed {experiment.seed}: pass the seed on to it"
            )
        return replace(experiment, algorithm=experiment.algorithm.named(run.name))
    except Exception as error:
        return error


def _steps(run: Run, experiment: Experiment | Exception, watch: _Watch, signal: Flag) -> Steps[Update]:
    """Perform a run, and return its last update; yield each assignment of its clients."""
    try:
        if isinstance(experiment, Exception):
            raise experiment
        with same_directory(), lock.locked(run.folder):  # no other process writes while `is_finished` reads
            if is_finished(run.folder, experiment):
                watch.last = replace(watch.last, note="was finished")
            else:
                yield from experiment.steps(
                    run.folder,
                    resume=True,
                    checkpoint_every=run.checkpoint_every,
                    callbacks=Callbacks([watch]),
                    signal=signal,
                )
        return replace(watch.last, status="done", done=experiment.rounds, rounds=experiment.rounds)
    except lock.InUse as error:
        return replace(watch.last, status="elsewhere", note=str(error))
    except Interrupted as stop:
        return replace(watch.last, status="stopped", note=str(stop))
    except TurnoutError as error:
        return replace(watch.last, status="failed", note=str(error), trace=traceback.format_exc())
    except Exception as error:  # a run that fails does not end the others
        text = f"{type(error).__name__}: {error}"
        return replace(watch.last, status="failed", note=text, trace=traceback.format_exc())


class _Watch(Callback):
    """Send an update after each round of a run, and stop the run if necessary."""

    def __init__(self, run: Run, listener: Listener, must_stop: Callable[[], bool]) -> None:
        self._listener, self._must_stop, self._notes = listener, must_stop, Notes()
        self.last, self._sent = Update(run.label, run.seed, "running"), 0.0

    def on_start(self, config: Mapping[str, Any], folder: Path | None) -> None:
        """Store the number of rounds."""
        self.last = replace(self.last, rounds=config["rounds"])

    def on_round(self, row: Mapping[str, Any]) -> None:
        """Send an update, unless one was sent a moment ago, and stop the run if necessary."""
        self.last = replace(self.last, done=row["round"], note=self._notes(row))
        if time.monotonic() - self._sent > _PAUSE:
            self._listener(self.last)
            self._sent = time.monotonic()
        if self._must_stop():
            raise Interrupted(f"stopped after round {self.last.done} of {self.last.rounds}, all saved")
