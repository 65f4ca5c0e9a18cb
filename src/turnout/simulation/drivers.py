"""The two drivers of a simulated server: one cohort after another, and virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from turnout.base import OfTraining
from turnout.core.checks import ConfigurationError
from turnout.core.types import Task
from turnout.population import Population
from turnout.protocol.batch import Stepped
from turnout.protocol.choice import Choice
from turnout.protocol.federated_server import FederatedServer
from turnout.protocol.loop import carry_out
from turnout.protocol.pace import Ask, BoundRounds, Drop, Gather, SetTimer, Step
from turnout.protocol.scheduler import Scheduler
from turnout.record.rows import staleness
from turnout.simulation.dispatch import SimulatedClients
from turnout.simulation.message_sizes import MessageSizes
from turnout.simulation.virtual_time import VirtualTime
from turnout.simulation.work_times import Effort, WorkTimes


class InStep:
    """Runs one cohort after another, without a clock: all clients report at once.

    Args:
        scheduler: the scheduler of the server.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        scheduler.start(0.0)

    def advance(self) -> Step | Gather:
        """Advance to the next server step, or to the end of a phase before one."""
        action = carry_out(self._scheduler, self, 0.0)
        assert action is not None  # an empty cohort is a step, too
        return action

    def ask(self, ask: Ask) -> None:
        """Have all clients report at once."""
        pace = self._scheduler.pace
        assert isinstance(pace, BoundRounds)
        self._scheduler.enqueue(pace.all_reported(0.0))

    def dropped(self, drop: Drop) -> None:
        """Do nothing: no state depends on dropped tasks."""

    def timer(self, timer: SetTimer) -> None:
        """Do nothing: there are no deadlines without a clock."""

    def figures(self, stepped: Stepped) -> dict[str, Any]:
        """Return no columns."""
        return {}

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """Return an empty state."""
        return {}

    def restore(self, state: dict[str, dict[str, np.ndarray]]) -> None:
        """Restore nothing."""


class ByTheClock:
    """Runs clients in virtual time.

    Training is deferred to the step that uses it: all reports of a step are trained together, each from the model of its
    version.

    Args:
        virtual: the scheduler in virtual time.
    """

    def __init__(self, virtual: VirtualTime) -> None:
        self.virtual = virtual
        self._before, self._between = 0.0, True

    def advance(self) -> Step | Gather:
        """Advance to the next server step, or to the end of a phase before one."""
        if self._between:
            self._before = self.virtual.clock.now
        action = self.virtual.advance()
        if action is None:
            raise ConfigurationError(
                f"no event will follow second {self._before:g}: all open tasks take infinitely long, because draws of a "
                "delay overflow: write a delay with a lighter tail, such as delay.Pareto(shape=2.5)"
            )
        self._between = isinstance(action, Step)
        return action

    def figures(self, stepped: Stepped) -> dict[str, Any]:
        """Return the duration and the staleness of a step, the number of unused tasks, and the bytes sent meanwhile."""
        sent = self.virtual.traffic.take()
        measured = sent.pop("measure", None)
        down, up = zip(*sent.values(), strict=True)
        return {
            "simulated_seconds": self.virtual.clock.now - self._before,
            "num_unused": int((self.virtual.log.take()[0]["stepped"] < 0).sum()),
            "bytes_down": sum(down),
            "bytes_up": sum(up),
            **staleness(stepped),
        } | ({} if measured is None else {"bytes_measured": sum(measured)})

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """Return the state of virtual time."""
        return self.virtual.state()

    def restore(self, state: dict[str, dict[str, np.ndarray]]) -> None:
        """Restore what `state` returned."""
        self.virtual.restore(state)


Driver = InStep | ByTheClock
"""A driver carries out the actions of the server's pace."""


def driver_of(
    scheduler: Scheduler,
    choice: Choice | None,
    population: Population,
    workers: SimulatedClients,
    server: FederatedServer,
    messages: MessageSizes,
) -> Driver:
    """Return the driver of a run. In virtual time, one client does its task, to measure the size of a report.

    Args:
        scheduler: the scheduler of the server.
        choice: the choice of the scheduler; None without a clock.
        population: the clients.
        workers: the same clients, with their model and data.
        server: the server, before its first step.
        messages: measures what clients send and receive.
    """
    if choice is None:
        return InStep(scheduler)
    algorithm, seed, speed = server.algorithm, server.federation.seed, workers.speed
    assert speed is not None  # `check_clock` requires one
    task = Task(server.state.params, 0, seed)

    def num_steps(clients: np.ndarray, version: int) -> np.ndarray:
        inputs = algorithm.per_client_inputs(clients, server.state, server.federation)
        return np.maximum(workers.num_steps(clients, replace(task, version=version, own=inputs)), 1)

    steps = num_steps if algorithm.local.traits.varies else num_steps(np.arange(server.federation.num_clients), 0)
    gradient_alone = not any(isinstance(measurement, OfTraining) for measurement in algorithm.selection.measurements)
    others = messages.after_training()
    for phase in algorithm.phases:
        if phase not in ("train", *algorithm.extra_phases):
            alone = phase == "measure" and gradient_alone
            others[phase] = Effort(1 if alone else steps, *messages.of(phase))
    dropout = None if population.dropout is None else population.dropout.bind(seed)
    work = WorkTimes(speed, dropout, steps, *messages.of("train"), others)
    return ByTheClock(VirtualTime(scheduler, choice, work, population.round_seconds))
