"""The two drivers of a simulated server: one cohort after another, and virtual time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
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
from turnout.simulation.messages import MessageSizes
from turnout.simulation.virtual_time import VirtualTime
from turnout.simulation.work_times import Effort, WorkTimes, round_seconds


@dataclass(frozen=True, eq=False)
class InStep:
    """Runs one cohort after another, without a clock: all clients report at once.

    Attributes:
        scheduler: the scheduler of the server.
        workers: the clients.
        messages: measures what clients receive.
        least: the least duration of a round in seconds.
    """

    scheduler: Scheduler
    workers: SimulatedClients
    messages: MessageSizes
    least: float

    def __post_init__(self) -> None:
        self.scheduler.start(0.0)

    def advance(self) -> Step | Gather:
        """Advance to the next server step, or to the end of a phase before one."""
        action = carry_out(self.scheduler, self, 0.0)
        assert action is not None  # an empty cohort is a step, too
        return action

    def ask(self, ask: Ask) -> None:
        """Have all clients report at once."""
        pace = self.scheduler.pace
        assert isinstance(pace, BoundRounds)
        self.scheduler.enqueue(pace.all_reported(0.0))

    def dropped(self, drop: Drop) -> None:
        """Do nothing: no state depends on dropped tasks."""

    def timer(self, timer: SetTimer) -> None:
        """Do nothing: there are no deadlines without a clock."""

    def figures(self, stepped: Stepped) -> dict[str, Any]:
        """Return the duration of a step if clients have speeds, and the number of clients that opted in if they do."""
        row: dict[str, Any] = {}
        if (speed := self.workers.speed) is not None:
            algorithm, down = self.workers.algorithm, self.messages.down()
            row["simulated_seconds"] = round_seconds(
                speed, algorithm, stepped.reports, stepped.version, down, self.least
            )
        if (pool := self.workers.opt_in.pool(stepped.version)) is not None:
            row["pool"] = int(pool.sum())
        return row

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """Return an empty state."""
        return {}

    def restore(self, state: dict[str, dict[str, np.ndarray]]) -> None:
        """Restore nothing."""


class ByTheClock(VirtualTime):
    """Runs clients in virtual time.

    Training is deferred to the step that uses it: all reports of a step are trained together, each from the model of its
    version.
    """

    _before, _between = 0.0, True

    def advance(self, until: float = math.inf) -> Step | Gather:
        """Advance to the next server step, or to the end of a phase before one.

        Raises:
            ConfigurationError: if none will follow.
        """
        if self._between:
            self._before = self.clock.now
        action = super().advance(until)
        if action is None:
            raise ConfigurationError(
                f"no event will follow second {self.clock.now:g}: all open tasks take infinitely long, because draws of a "
                "delay overflow: write a delay with a lighter tail, such as delay.Pareto(shape=2.5)"
            )
        self._between = isinstance(action, Step)
        return action

    def figures(self, stepped: Stepped) -> dict[str, Any]:
        """Return the duration and the staleness of a step, the number of unused tasks, and the bytes sent meanwhile."""
        sent = self.traffic.take()
        measured = sent.pop("measure", None)
        down, up = zip(*sent.values(), strict=True)
        return {
            "simulated_seconds": self.clock.now - self._before,
            "num_unused": int((self.log.take()[0]["stepped"] < 0).sum()),
            "bytes_down": sum(down),
            "bytes_up": sum(up),
            **staleness(stepped),
        } | ({} if measured is None else {"bytes_measured": sum(measured)})


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
        return InStep(scheduler, workers, messages, population.round_seconds or 0.0)
    algorithm, seed, speed = server.algorithm, server.federation.seed, workers.speed
    assert speed is not None  # `check_clock` requires one
    task = Task(server.state.params, 0, seed)

    def num_steps(clients: np.ndarray, version: int) -> np.ndarray:
        inputs = algorithm.per_client_inputs(clients, server.state, server.federation)
        return np.maximum(workers.num_steps(clients, replace(task, version=version, own=inputs)), 1)

    steps = num_steps if algorithm.local.traits.varies else num_steps(np.arange(server.federation.num_clients), 0)
    special = dict.fromkeys(algorithm.extra_phases, 0)  # messages alone
    if not any(isinstance(measurement, OfTraining) for measurement in algorithm.selection.measurements):
        special["measure"] = 1  # the gradient
    efforts = {phase: Effort(special.get(phase, steps), *messages.of(phase)) for phase in algorithm.phases}
    dropout = None if population.dropout is None else population.dropout.bind(seed)
    return ByTheClock(scheduler, choice, WorkTimes(speed, dropout, efforts), population.round_seconds)
