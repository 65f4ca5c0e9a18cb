"""Time a simulation in stages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

import numpy as np
import torch

from turnout.configuration import Configuration
from turnout.core.types import Report, State, Task
from turnout.pieces.local import Sgd
from turnout.simulation.dispatch import SimulatedClients
from turnout.simulation.simulation import Simulation


class Stopwatch:
    """Seconds in each stage; while an inner stage lasts, the outer one stands still."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {"training": 0.0, "server": 0.0, "evaluation": 0.0}
        self.present: list[str] = []
        self._since = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time of a block to a stage."""
        self._settle()
        self.present.append(name)
        try:
            yield
        finally:
            self._settle()
            self.present.pop()

    def _settle(self) -> None:
        """Give the time since the last change to the stage it was spent in."""
        now = time.perf_counter()
        if self.present:
            self.seconds[self.present[-1]] += now - self._since
        self._since = now


class TimedClients(SimulatedClients):
    """Clients whose work is timed, and whose local steps are counted."""

    watch: Stopwatch
    num_trained = 0
    num_examples_used = 0.0
    last: list[np.ndarray]

    @classmethod
    def of(cls, clients: SimulatedClients, watch: Stopwatch) -> TimedClients:
        """Return the same clients, timed."""
        timed = cls(**{field.name: getattr(clients, field.name) for field in fields(clients)})
        timed.watch, timed.last = watch, []
        return timed

    def step(self, ids: np.ndarray, task: Task) -> tuple[Report, State]:
        """Have clients do their task; say what it takes, and how much was trained with it."""
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
    """A simulation whose stages are timed, and whose clients' local steps are counted.

    Stages are ``training`` (all that clients do), ``evaluation``, and ``server`` (the rest of a round, from the choice of
    its cohort to its records).

    On a GPU a stage ends when the work has been handed over: what is left of it counts where the host waits for it.

    Attributes:
        watch: what is timed.
        workers: the clients, who count updates and the examples over which gradients were taken in local steps.
    """

    def __init__(self, experiment: Configuration) -> None:
        super().__init__(experiment)
        self.watch = Stopwatch()
        self.workers: TimedClients = TimedClients.of(self.workers, self.watch)

    def round(self) -> None:
        """Take a round, whose rest is the server's."""
        self.workers.last = []
        with self.watch.stage("server"):
            super().round()

    def evaluate(self) -> dict[str, float]:
        """Score the present model."""
        with self.watch.stage("evaluation"):
            return super().evaluate()

    def data_seconds(self) -> float | None:
        """Return the seconds that gathering the minibatches of the last round takes by itself, scaled to all rounds so far.

        Engines gather in the middle of a traced step or in several threads, so this is timed apart, after the rounds. None
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
            examples = local.plan(task, self.memory.gather(ids), clients).examples
            for minibatch in torch.from_numpy(examples).to(self.state.params.device).unbind(1):
                clients.minibatch(minibatch, None)
        return (time.perf_counter() - begin) * self.workers.num_trained / max(trained, 1)
