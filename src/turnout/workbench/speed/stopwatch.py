"""Time the stages of a simulation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

import numpy as np
import torch

from turnout.configuration import Configuration
from turnout.core.types import Report, State, Task
from turnout.engine.hardware import synchronize
from turnout.pieces.local import Sgd
from turnout.simulation.dispatch import SimulatedClients
from turnout.simulation.simulation import Simulation


class Stopwatch:
    """Measure the seconds in each stage; the time of a nested stage does not count for the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {"training": 0.0, "server": 0.0, "evaluation": 0.0}
        self._open: list[str] = []
        self._since = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time of a block to a stage."""
        self._settle()
        self._open.append(name)
        try:
            yield
        finally:
            self._settle()
            self._open.pop()

    def _settle(self) -> None:
        """Add the time since the last change of stage to the innermost open stage."""
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now


class TimedClients(SimulatedClients):
    """Simulated clients with a stopwatch and a count of local steps."""

    watch: Stopwatch
    num_trained = 0
    num_examples_used = 0.0
    last: list[np.ndarray]

    @classmethod
    def of(cls, clients: SimulatedClients, watch: Stopwatch) -> TimedClients:
        """Return the same clients with a stopwatch."""
        timed = cls(**{field.name: getattr(clients, field.name) for field in fields(clients)})
        timed.watch, timed.last = watch, []
        return timed

    def step(self, ids: np.ndarray, task: Task) -> tuple[Report, State]:
        """Have clients perform a task; measure its duration, and count updates and examples."""
        with self.watch.stage("training"):
            report, memory = super().step(ids, task)
        if task.phase == "train":
            local = self.algorithm.local
            minibatch = np.minimum(getattr(local, "batch_size", np.inf), report.num_examples)
            self.last.append(ids)
            self.num_trained += len(ids)
            self.num_examples_used += float((report.num_steps * minibatch).sum()) * getattr(local, "per_step", 1)
        return report, memory


class TimedSimulation(Simulation):
    """A simulation with a stopwatch and a count of local steps.

    Stages are ``training`` (the work of clients), ``evaluation``, and ``server`` (the rest of a round, from the selection of
    its cohort to its records).

    On a GPU a stage ends when its kernels are queued; the rest of their time counts in the stage in which the host waits.

    Attributes:
        watch: the stopwatch.
        seconds, updates: duration of each round without its evaluation, and its number of updates.
        workers: the clients, which count updates and the examples of gradients in local steps.
    """

    def __init__(self, experiment: Configuration) -> None:
        super().__init__(experiment)
        self.watch = Stopwatch()
        self.seconds, self.updates = list[float](), list[int]()
        self.workers: TimedClients = TimedClients.of(self.workers, self.watch)

    def round(self) -> None:
        """Take and time a round; what is neither training nor evaluation counts for the server."""
        begin, scoring, trained = time.perf_counter(), self.watch.seconds["evaluation"], self.workers.num_trained
        self.workers.last = []
        with self.watch.stage("server"):
            super().round()
        synchronize(torch.device(self.experiment.device))
        self.seconds.append(time.perf_counter() - begin - (self.watch.seconds["evaluation"] - scoring))
        self.updates.append(self.workers.num_trained - trained)

    def evaluate(self) -> dict[str, float]:
        """Evaluate the current model."""
        with self.watch.stage("evaluation"):
            return super().evaluate()

    def data_seconds(self) -> float | None:
        """Measure the time of gathering the minibatches of the last round, and scale it to all rounds.

        It is measured separately, after the rounds, because engines gather inside of traced steps or in several threads. None
        for a local rule that plans no minibatches.
        """
        local, trained = self.experiment.algorithm.local, sum(map(len, self.workers.last))
        if not isinstance(local, Sgd):
            return None
        begin = time.perf_counter()
        for ids in self.workers.last:
            clients, task = (
                self.workspace.clients(ids),
                Task(self.state.params, self.state.version, self.experiment.seed),
            )
            planned = local.plan(task, self.memory.gather(ids), clients)
            for minibatch in planned.on(self.state.params.device, np.arange(len(ids))):
                clients.minibatch(minibatch, None)
        return (time.perf_counter() - begin) * self.workers.num_trained / max(trained, 1)
