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
from turnout.core.types import Federation, ServerState, State, Task
from turnout.data.federated import FederatedData
from turnout.protocol.batch import Stepped
from turnout.protocol.choice import Choice
from turnout.protocol.cohorts import SelectedCohorts
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.federated_server import FederatedServer
from turnout.protocol.fits import by_the_clock, check_clock
from turnout.protocol.loop import use
from turnout.protocol.scheduler import Scheduler
from turnout.record.client_memory import ClientMemory
from turnout.record.describe import describe
from turnout.record.query import History
from turnout.record.rows import Recorder
from turnout.simulation.dispatch import SimulatedClients
from turnout.simulation.divergence import check_updates
from turnout.simulation.drivers import Driver, InStep, in_virtual_time
from turnout.simulation.message_sizes import MessageSizes
from turnout.simulation.metrics import Judge, PresentModels, client_weights
from turnout.simulation.newcomers import Newcomers
from turnout.simulation.opt_in import CandidatePool, OptIn
from turnout.simulation.sharding import check_agreement
from turnout.simulation.virtual_time import at_random
from turnout.simulation.work_times import round_seconds
from turnout.simulation.workspace import usual_cohorts, workspace_of


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
        self.experiment = experiment
        data, algorithm, population, seed = (
            experiment.data, experiment.algorithm, experiment.population, experiment.seed,
        )  # fmt: skip
        clock, n = by_the_clock(experiment.pace, population), data.num_clients
        check_clock(experiment.pace, population)
        _check_data(data)
        self.workspace = workspace_of(experiment)
        self.objective = self.workspace.objective
        labels = data.label_counts() if data.has_labels else None
        self.availability = population.availability.of_clients(data.client_names).bind(n, labels, seed)
        federation, params, remembered = self._initial()
        self.memory = ClientMemory(n, remembered, memory_budget(torch.device("cpu"), experiment.memory_budget))
        self.models = PresentModels(params, self.memory, algorithm.personal)
        self.recorder = Recorder(algorithm, experiment.evaluate_every, experiment.record_weights)
        self.row: dict[str, Any] = {}
        self._steps_lost = 0
        self.description = describe(experiment)
        self.speed = None if population.speed is None else population.speed.bind(n, seed)
        self.behaviour = None if population.behaviour is None else population.behaviour.bind(n, seed)
        attackers = None if self.behaviour is None else self.behaviour.attackers
        if self.behaviour is not None:
            self.workspace.data.train = self.behaviour.poisoned(self.workspace.data.train, data.num_outputs)
        self.workspace.try_model(experiment)
        self.workspace.expect(usual_cohorts(experiment))
        newcomers = Newcomers.of(experiment, self.workspace)
        self.judge = Judge(self.workspace, self.models, experiment.named_metrics(), newcomers)
        self.opt_in = OptIn(experiment, self.workspace, self.models, self.judge, attackers)
        self.workers = SimulatedClients(algorithm, self.workspace, self.memory, self.opt_in, self.speed, self.behaviour)
        self.workers.check(Task(params, 0, seed))
        self.judge.check(data)
        self._try_figures(params)
        self.pool = CandidatePool(self.availability, self.opt_in, seed)
        scheduler, choice = self._scheduled(clock)
        self.server = FederatedServer(
            algorithm,
            params,
            federation,
            scheduler.cohorts,
            rounds=experiment.rounds,
            records_influence=clock,
            attack=None if self.behaviour is None else self.workers.colluded,
            separation=population.separation,
        )
        self.coordinator = Coordinator(self.server, scheduler, sums_early=not self.workers.collude)
        self.messages = MessageSizes(self.workers, self.server, experiment.pace)
        if self.speed is not None and algorithm.local.traits.varies:
            self.workers.message_bytes = self.messages.of("train")
        self.driver: Driver = (
            InStep(scheduler)
            if choice is None
            else in_virtual_time(scheduler, choice, population, self.workers, self.server, self.messages)
        )

    def _initial(self) -> tuple[Federation, torch.Tensor, State]:
        """Return the federation, the initial shared parameters, and what clients remember initially."""
        experiment, initial, num_shared = self.experiment, self.objective.initial, self.objective.layout.num_shared
        rates = self.availability.rates if experiment.everyone_available_takes_part else None
        n, personal = experiment.data.num_clients, experiment.algorithm.personal
        device, adapters = torch.device(experiment.device), self.objective.network.adapters
        federation = Federation(n, num_shared, rates, device, initial.dtype, experiment.seed, adapters)
        first = initial[num_shared:] if personal is None else personal.first(initial, num_shared)
        return (
            federation,
            initial[:num_shared].clone(),
            experiment.algorithm.memory(federation, first, self.objective.layout.shared_shapes),
        )

    def _scheduled(self, clock: bool) -> tuple[Scheduler, Choice | None]:
        """Return the scheduler; in virtual time, also the choice that draws its clients."""
        experiment, selection = self.experiment, self.experiment.algorithm.selection
        if clock:
            seconds, algorithm = experiment.population.round_seconds, experiment.algorithm
            return at_random(experiment.pace, self.availability, seconds, selection, experiment.seed, algorithm)
        n = experiment.data.num_clients
        cohorts = SelectedCohorts(selection, self.pool.candidates, partial(np.arange, n))
        pace = experiment.pace.bind(n, experiment.algorithm)
        return Scheduler(pace, cohorts, None, patient=False), None

    @property
    def history(self) -> History:
        """The tables recorded so far."""
        return self.recorder.history

    @property
    def state(self) -> ServerState:
        """The server's state; ``state.version`` is the number of completed rounds."""
        return self.server.state

    @default_settings()
    def round(self) -> None:
        """Take one server step, evaluate the model if due, and record a row."""
        with self.objective.threads.one_processor_each():
            start = time.perf_counter()
            stepped = self.step()
            figures = {"seconds": time.perf_counter() - start} | self.driver.figures(stepped) | self._figures(stepped)
            self.row = self.recorder.step(self.server, stepped, figures, self.evaluate)
            if self.recorder.published.data:
                dropped = stepped.info["num_dropped"]
                self._steps_lost = check_updates(self._steps_lost, len(stepped.reports), dropped, self.state.version)

    def step(self) -> Stepped:
        """Take one server step, with the phases before it."""
        while (stepped := use(self.coordinator, self.workers, self.driver.advance())) is None:
            pass
        self.show()
        return stepped

    def show(self) -> None:
        """Evaluate the present model from now on."""
        self.models.params = self.state.params
        self.objective.network.rebase(self.server.shared())

    def _figures(self, stepped: Stepped) -> dict[str, Any]:
        """Return the columns of rounds without virtual time."""
        row: dict[str, Any] = {}
        if not isinstance(self.driver, InStep):
            return row
        if self.speed is not None:
            algorithm, least = self.experiment.algorithm, self.experiment.population.round_seconds or 0.0
            row["simulated_seconds"] = round_seconds(
                self.speed, algorithm, stepped.reports, stepped.version, self.messages.down(), least
            )
        if (pool := self.opt_in.pool(stepped.version)) is not None:
            row["pool"] = int(pool.sum())
        return row

    def evaluate(self) -> dict[str, float]:
        """Return loss and score of the present model, and the other figures of evaluations.

        With differential privacy the figures of personal models are left out, because no noise covers what they tell of the
        data of their clients.
        """
        check_agreement(self.state.params)
        if self.models.personal is not None and not self.recorder.published.data:
            return {}
        run, version = self.experiment, self.state.version
        present = Task(self.state.params, version, run.seed)
        row = self.judge.figures(present, run.evaluation_examples, run.label_groups, self._share_of_gradients)
        row |= self.opt_in.figures(version)
        if version == run.rounds:
            row |= self.judge.unseen(run.data, run.algorithm, present)
        return row

    @property
    def _share_of_gradients(self) -> float | None:
        """The fraction of clients in a cohort, for the norms of gradients; None if they are not recorded."""
        run = self.experiment
        if run.gradients is None:
            return None
        return run.gradients.share(getattr(run.algorithm.selection, "cohort_size", None), run.data.num_clients)

    def _try_figures(self, params: torch.Tensor) -> None:
        """Compute for one client what evaluations compute beside scores, so that none fails after some rounds."""
        run = self.experiment
        if self.models.personal is None or self.recorder.published.data:
            self.judge.check_fitting(run.data, run.algorithm, Task(params, 0, run.seed), self._share_of_gradients)
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
            **self.judge.by_client(data),
            **self.opt_in.client_columns(),
        }
        if server.influence is not None:
            columns |= server.influence.columns()
        if self.behaviour is not None:
            columns["byzantine"] = self.behaviour.attackers.astype(np.int64)
        self.recorder.set_clients(data.num_clients, **columns)
        if self.recorder.published.data:
            self.history.predictions = self.judge.predictions(self.experiment)


def _check_data(data: FederatedData) -> None:
    """Reject data of which only the shape is known."""
    if data.is_declared:
        raise ConfigurationError(
            "data: only the shape is declared, as for a server whose clients have the examples: write a data set to "
            "simulate them"
        )
