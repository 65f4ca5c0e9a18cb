"""Perform one run of a comparison, in any process, and report its progress."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from turnout.callbacks import Callback
from turnout.comparison.folders import is_finished
from turnout.core.checks import ConfigurationError, TurnoutError
from turnout.core.system import same_directory
from turnout.experiment import Experiment
from turnout.record import lock
from turnout.reporting.progress import Notes
from turnout.simulation.running import Interrupted

_PAUSE = 0.1
"""Seconds between two updates of a run: more would be work for nobody."""


@dataclass(frozen=True, eq=False)
class Run:
    """One run of a comparison: `make` of `seed`, called `name`, in `folder`.

    Attributes:
        group: what else it is called where there are several comparisons: the panel of a reproduction.
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
class Update:
    """News of a run.

    Attributes:
        name, seed: which one; the name is a run's `Run.label`.
        status: what happened; ``"elsewhere"`` where another process is at the run.
        done, rounds: how far it is; 0 of 0 before its first round.
        note: the latest accuracy, or why it failed.
        trace: of a failure, where it came from.
    """

    name: str
    seed: int
    status: Literal["started", "running", "done", "failed", "stopped", "elsewhere"]
    done: int = 0
    rounds: int = 0
    note: str = ""
    trace: str = ""

    def __str__(self) -> str:
        return f"{self.name}, seed {self.seed}"


Listener = Callable[[Update], None]


@dataclass(frozen=True)
class Resources:
    """Say what performs the runs of a comparison.

    Attributes:
        jobs: processes of this machine; None means one for each of `devices`, or else for each processor, or for so many as a
            run has threads.
        threads: of each run.
        executor: performs the runs in place of processes of this machine.
        runs_per_job: how many runs a job of the executor performs one after another.
        devices: GPUs, ``"cuda:0"``, that processes of this machine share: what is ``"cuda"`` to a process is one of them.
    """

    jobs: int | None = None
    threads: int = 1
    executor: Executor | None = None
    runs_per_job: int = 1
    devices: tuple[str, ...] = ()


def perform(run: Run, tell: Listener, asked_to_stop: Callable[[], bool]) -> Update:
    """Run to the end, or until asked to stop; tells on the way, and returns how it ended. Raises nothing."""
    watch = _Watch(run, tell, asked_to_stop)
    tell(Update(run.label, run.seed, "started"))
    try:
        if asked_to_stop():
            raise Interrupted("not begun")
        experiment = run.make(run.seed)
        if not isinstance(experiment, Experiment):
            raise ConfigurationError(f"{run.name}({run.seed}) gave {experiment!r}, needed an Experiment")
        if experiment.seed != run.seed:
            raise ConfigurationError(
                f"{run.name}({run.seed}) gave an experiment with seed {experiment.seed}: pass the seed on to it"
            )
        experiment = replace(experiment, algorithm=experiment.algorithm.named(run.name))
        with same_directory(), lock.locked(run.folder):  # what is read here is not being written by another process
            if is_finished(run.folder, experiment):
                watch.last = replace(watch.last, note="was finished")
            else:
                experiment.run(run.folder, resume=True, checkpoint_every=run.checkpoint_every, callbacks=[watch])
        return replace(watch.last, status="done", done=experiment.rounds, rounds=experiment.rounds)
    except lock.InUse as error:
        return replace(watch.last, status="elsewhere", note=str(error))
    except Interrupted as stop:
        return replace(watch.last, status="stopped", note=str(stop))
    except TurnoutError as error:
        return replace(watch.last, status="failed", note=str(error), trace=traceback.format_exc())
    except Exception as error:  # whatever it is, the other runs go on
        text = f"{type(error).__name__}: {error}"
        return replace(watch.last, status="failed", note=text, trace=traceback.format_exc())


class _Watch(Callback):
    """Tell of the rounds of a run, and stop it when asked to."""

    def __init__(self, run: Run, tell: Listener, asked_to_stop: Callable[[], bool]) -> None:
        self.run, self.tell, self.asked_to_stop = run, tell, asked_to_stop
        self.last, self.last_told, self.notes = Update(run.label, run.seed, "running"), 0.0, Notes()

    def on_start(self, config: Mapping[str, Any], folder: Path | None) -> None:
        """Note how far it is to go."""
        del folder
        self.last = replace(self.last, rounds=config["rounds"])

    def on_round(self, row: Mapping[str, Any]) -> None:
        """Tell how far it is; stop if asked to."""
        self.last = replace(self.last, done=row["round"], note=self.notes(row))
        if time.monotonic() - self.last_told > _PAUSE:
            self.tell(self.last)
            self.last_told = time.monotonic()
        if self.asked_to_stop():
            raise Interrupted(f"stopped after round {self.last.done} of {self.last.rounds}, all saved")
