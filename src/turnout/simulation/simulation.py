"""Simulate an experiment: a server, its clients, and the driver that runs them round by round."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import torch

from turnout.configuration import Configuration
from turnout.core.checks import ConfigurationError
from turnout.core.device import memory_budget
from turnout.core.numerics import default_settings
from turnout.core.types import Federation, ServerState, Task
from turnout.engine.objective import Objective
from turnout.population import BoundAttack, BoundAvailability, BoundSpeed
from turnout.protocol.batch import Stepped
from turnout.protocol.choice import Choice
from turnout.protocol.cohorts import SelectedCohorts
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.federated_server import FederatedServer
from turnout.protocol.fits import by_the_clock, check_clock
from turnout.protocol.scheduler import Scheduler
from turnout.record.client_memory import ClientMemory
from turnout.record.describe import describe
from turnout.record.query import History
from turnout.record.rows import Recorder
from turnout.simulation.dispatch import SimulatedClients, Steps
from turnout.simulation.drivers import driver_of
from turnout.simulation.lockstep import together
from turnout.simulation.messages import MessageSizes
from turnout.simulation.metrics import Judge, client_weights
from turnout.simulation.opt_in import OptIn
from turnout.simulation.plan_ahead import PlanAhead
from turnout.simulation.sharding import check_agreement
from turnout.simulation.stall import check_updates
from turnout.simulation.virtual_time import at_random
from turnout.simulation.workspace import PresentModels, workspace_of


class Simulation:
    """A federation that trains on this machine, round by round.

    Args:
        experiment: the configuration.

    Attributes:
        server: the server; ``server.state`` holds the model and the state of all pieces.
        coordinator: schedules tasks, and passes reports to the server.
        workers: the clients.
        messages: measures what clients send and receive.
        recorder: the tables recorded so far.
        row: the row of the last round.
        objective: model, loss and engine.

    Raises:
        ConfigurationError: if the configuration is invalid, before anything is trained.
    """

    @default_settings()
    def __init__(self, experiment: Configuration) -> None:
        _check_simulable(experiment)
        self.experiment, algorithm = experiment, experiment.algorithm
        self.row: dict[str, Any] = {}
        self._steps_lost = 0
        self.recorder = Recorder(algorithm, experiment.evaluate_every, experiment.record_weights)
        self.availability, speed, self.behavior = _population_of(experiment)
        self.workspace = workspace_of(experiment, self.behavior)
        self.objective, self.description = self.workspace.objective, describe(experiment)
        federation, params, self.memory = _federation_of(experiment, self.objective, self.availability)
        self.models = PresentModels(params, self.memory, algorithm.personal)
        self.judge = Judge(experiment, self.workspace, self.models)
        self.opt_in = OptIn(experiment, self.workspace, self.models, self.judge, self.behavior)
        self.workers = workers = SimulatedClients(
            algorithm, self.workspace, self.memory, self.opt_in, speed, self.behavior
        )
        # Try what the first round and the first evaluation compute, so that neither fails after some rounds.
        workers.check(Task(params, 0, experiment.seed))
        self.judge.check()
        self._try_figures(params)
        scheduler, choice = _scheduler_of(experiment, self.availability, self.opt_in)
        self.server = FederatedServer(
            algorithm,
            params,
            federation,
            scheduler.cohorts,
            rounds=experiment.rounds,
            records_influence=choice is not None,
            attack=None if self.behavior is None else workers.colluded,
            separation=experiment.population.separation,
        )
        self.messages = MessageSizes(workers, self.server, experiment.pace)
        if speed is not None and algorithm.local.traits.varies:
            workers.message_bytes = self.messages.of("train")
        self.coordinator = Coordinator(self.server, scheduler, sums_early=not workers.collude)
        self.driver = driver_of(scheduler, choice, experiment.population, workers, self.server, self.messages)
        self.plan_ahead = None
        if self.objective.device.type != "cpu" and experiment.population.opting is None:
            self.plan_ahead = PlanAhead.of(scheduler.cohorts, workers, experiment.rounds, experiment.seed)

    @property
    def history(self) -> History:
        """The tables recorded so far."""
        return self.recorder.history

    @property
    def state(self) -> ServerState:
        """The server's state; ``state.version`` is the number of completed rounds."""
        return self.server.state

    def round(self) -> None:
        """Take one server step, evaluate the model if due, and record a row."""
        together([self.steps()])

    def steps(self) -> Steps[None]:
        """Take a round, as `round` does, and yield each assignment of clients."""
        with default_settings(), self.objective.threads.one_processor_each():
            start = time.perf_counter()
            stepped = yield from self._step()
            figures = {"seconds": time.perf_counter() - start} | self.driver.figures(stepped)
            self.row = self.recorder.step(self.server, stepped, figures, self.evaluate)
            if self.recorder.published.data:
                dropped = stepped.info["num_dropped"]
                self._steps_lost = check_updates(self._steps_lost, len(stepped.reports), dropped, self.state.version)

    def step(self) -> Stepped:
        """Take one server step, with the phases before it."""
        return together([self._step()])[0]

    def _step(self) -> Steps[Stepped]:
        """Take a server step, as `step` does, and yield each assignment of clients."""
        stepped = None
        while stepped is None:
            batch = self.coordinator.batch(self.driver.advance())
            reports = yield from self.workers.reports_of(self.coordinator, batch)
            if self.plan_ahead is not None and batch.phase == "train":
                self.plan_ahead(self.state)
            stepped = self.coordinator.take(batch, reports)
        self.show()
        return stepped

    def show(self) -> None:
        """Evaluate the present model from now on."""
        self.models.params = self.state.params
        self.objective.network.rebase(self.server.shared())

    def evaluate(self) -> dict[str, float]:
        """Return loss and score of the present model, and the other figures of evaluations.

        With differential privacy the figures of personal models are left out, because no noise covers what they tell of the
        data of their clients.
        """
        check_agreement(self.state.params)
        if self.models.personal is not None and not self.recorder.published.data:
            return {}
        version = self.state.version
        present = Task(self.state.params, version, self.experiment.seed)
        row = self.judge.figures(present) | self.opt_in.figures(version)
        if version == self.experiment.rounds:
            row |= self.judge.unseen(present)
        return row

    def _try_figures(self, params: torch.Tensor) -> None:
        """Compute for one client what evaluations compute beside scores."""
        if self.models.personal is None or self.recorder.published.data:
            self.judge.check_fitting(Task(params, 0, self.experiment.seed))
        self.opt_in.check()

    @default_settings()
    def finish(self) -> None:
        """Make the table of clients, with their data, participation, weights and scores."""
        data, server = self.experiment.data, self.server
        columns = {
            "name": data.client_names,
            "num_examples": data.train.sizes,
            "known_rate": self.availability.rates,
            "weight": client_weights(server.algorithm, server.state, server.federation),
            **self.judge.by_client(),
            **self.opt_in.client_columns(),
        }
        if server.influence is not None:
            columns |= server.influence.columns()
        if self.behavior is not None:
            columns["byzantine"] = self.behavior.attackers.astype(np.int64)
        self.recorder.set_clients(data.num_clients, **columns)
        if self.recorder.published.data:
            self.history.predictions = self.judge.predictions()


def _check_simulable(experiment: Configuration) -> None:
    """Check that an experiment has examples, and the clock that its pace needs.

    Raises:
        ConfigurationError: if only the shape of the data is known, or the pace needs a clock that is missing.
    """
    check_clock(experiment.pace, experiment.population)
    if experiment.data.is_declared:
        raise ConfigurationError(
            "data: only the shape is declared, as for a server whose clients have the examples: write a data set to "
            "simulate them"
        )


def _population_of(experiment: Configuration) -> tuple[BoundAvailability, BoundSpeed | None, BoundAttack | None]:
    """Return the availability, the speed and the attack of the clients."""
    data, seed = experiment.data, experiment.seed
    population = experiment.population.of_clients(data.client_names)
    n, labels = data.num_clients, data.label_counts() if data.has_labels else None
    return (
        population.availability.bind(n, labels, seed),
        None if population.speed is None else population.speed.bind(n, seed),
        None if population.behavior is None else population.behavior.bind(n, seed),
    )


def _federation_of(
    experiment: Configuration, objective: Objective, availability: BoundAvailability
) -> tuple[Federation, torch.Tensor, ClientMemory]:
    """Return the federation, the initial shared parameters, and the memory of clients."""
    initial, num_shared, personal = objective.initial, objective.layout.num_shared, experiment.algorithm.personal
    rates = availability.rates if experiment.everyone_available_takes_part else None
    n, device, adapters = experiment.data.num_clients, torch.device(experiment.device), objective.network.adapters
    federation = Federation(n, num_shared, rates, device, initial.dtype, experiment.seed, adapters)
    first = initial[num_shared:] if personal is None else personal.first(initial, num_shared)
    remembered = experiment.algorithm.memory(federation, first, objective.layout.shared_shapes)
    memory = ClientMemory(n, remembered, memory_budget(torch.device("cpu"), experiment.memory_budget))
    return federation, initial[:num_shared].clone(), memory


def _scheduler_of(
    experiment: Configuration, availability: BoundAvailability, opt_in: OptIn
) -> tuple[Scheduler, Choice | None]:
    """Return the scheduler; in virtual time, also the choice that draws its clients."""
    pace, algorithm, n = experiment.pace, experiment.algorithm, experiment.data.num_clients
    if by_the_clock(pace, experiment.population):
        seconds = experiment.population.round_seconds
        return at_random(pace, availability, seconds, algorithm.selection, experiment.seed, algorithm)
    cohorts = SelectedCohorts(algorithm.selection, partial(opt_in.candidates, availability), partial(np.arange, n))
    return Scheduler(pace.bind(n, algorithm), cohorts, None, patient=False), None
