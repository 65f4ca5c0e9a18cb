"""Simulate an experiment: a server, its clients, and the driver that runs them round by round."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from turnout.configuration import Configuration
from turnout.core.numerics import default_settings
from turnout.core.types import ServerState, Task
from turnout.protocol.batch import Stepped
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.federated_server import FederatedServer
from turnout.record.describe import describe
from turnout.record.query import History
from turnout.record.rows import Recorder
from turnout.simulation.builder import Builder
from turnout.simulation.dispatch import SimulatedClients, Steps
from turnout.simulation.divergence import check_updates
from turnout.simulation.drivers import InStep, driver_of
from turnout.simulation.lockstep import together
from turnout.simulation.metrics import Judge, client_weights
from turnout.simulation.opt_in import OptIn
from turnout.simulation.present_models import PresentModels
from turnout.simulation.sharding import check_agreement
from turnout.simulation.work_times import round_seconds
from turnout.simulation.workspace import workspace_of


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
        self.row: dict[str, Any] = {}
        self._steps_lost = 0
        build, algorithm = Builder(experiment), experiment.algorithm
        self.recorder = Recorder(algorithm, experiment.evaluate_every, experiment.record_weights)
        self.availability, self.speed, self.behavior = build.population()
        self.workspace = workspace_of(experiment, self.behavior)
        self.objective, self.description = self.workspace.objective, describe(experiment)
        federation, params, self.memory = build.federation(self.objective, self.availability)
        self.models = PresentModels(params, self.memory, algorithm.personal)
        self.judge = Judge(experiment, self.workspace, self.models)
        self.opt_in = OptIn(experiment, self.workspace, self.models, self.judge, self.behavior)
        workers = SimulatedClients(algorithm, self.workspace, self.memory, self.opt_in, self.speed, self.behavior)
        self._try(workers, params)
        scheduler, choice = build.scheduler(self.availability, self.opt_in)
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
        self.workers, self.messages = build.measured(workers, self.server)
        self.coordinator = Coordinator(self.server, scheduler, sums_early=not workers.collude)
        self.driver = driver_of(scheduler, choice, experiment.population, self.workers, self.server, self.messages)
        self.plan_ahead = build.plan_ahead(scheduler.cohorts, self.workers)

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
            figures = {"seconds": time.perf_counter() - start} | self.driver.figures(stepped) | self._figures(stepped)
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

    def _try(self, workers: SimulatedClients, params: torch.Tensor) -> None:
        """Try what the first round and the first evaluation compute, so that neither fails after some rounds."""
        workers.check(Task(params, 0, self.experiment.seed))
        self.judge.check(self.experiment.data)
        self._try_figures(params)

    def _try_figures(self, params: torch.Tensor) -> None:
        """Compute for one client what evaluations compute beside scores."""
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
        if self.behavior is not None:
            columns["byzantine"] = self.behavior.attackers.astype(np.int64)
        self.recorder.set_clients(data.num_clients, **columns)
        if self.recorder.published.data:
            self.history.predictions = self.judge.predictions(self.experiment)
