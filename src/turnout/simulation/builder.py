"""Build the parts of a simulation, each from the configuration and the parts before it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from turnout.configuration import Configuration
from turnout.core.checks import ConfigurationError
from turnout.core.device import memory_budget
from turnout.core.types import Federation
from turnout.engine.objective import Objective
from turnout.population import BoundAttack, BoundAvailability, BoundSpeed
from turnout.protocol.choice import Choice
from turnout.protocol.cohorts import Cohorts, SelectedCohorts
from turnout.protocol.federated_server import FederatedServer
from turnout.protocol.fits import by_the_clock, check_clock
from turnout.protocol.scheduler import Scheduler
from turnout.record.client_memory import ClientMemory
from turnout.simulation.dispatch import SimulatedClients
from turnout.simulation.message_sizes import MessageSizes
from turnout.simulation.opt_in import OptIn
from turnout.simulation.plan_ahead import PlanAhead
from turnout.simulation.virtual_time import at_random


@dataclass(frozen=True)
class Builder:
    """Build the parts of a simulation. A step returns what it made, and changes no argument.

    Attributes:
        experiment: the configuration.

    Raises:
        ConfigurationError: if only the shape of the data is known, or the pace needs a clock that is missing.
    """

    experiment: Configuration

    def __post_init__(self) -> None:
        check_clock(self.experiment.pace, self.experiment.population)
        if self.experiment.data.is_declared:
            raise ConfigurationError(
                "data: only the shape is declared, as for a server whose clients have the examples: write a data set to "
                "simulate them"
            )

    @property
    def clock(self) -> bool:
        """True if the simulation runs in virtual time."""
        return by_the_clock(self.experiment.pace, self.experiment.population)

    def population(self) -> tuple[BoundAvailability, BoundSpeed | None, BoundAttack | None]:
        """Return the availability, the speed and the attack of the clients."""
        data, seed = self.experiment.data, self.experiment.seed
        population = self.experiment.population.of_clients(data.client_names)
        n, labels = data.num_clients, data.label_counts() if data.has_labels else None
        return (
            population.availability.bind(n, labels, seed),
            None if population.speed is None else population.speed.bind(n, seed),
            None if population.behavior is None else population.behavior.bind(n, seed),
        )

    def federation(
        self, objective: Objective, availability: BoundAvailability
    ) -> tuple[Federation, torch.Tensor, ClientMemory]:
        """Return the federation, the initial shared parameters, and the memory of clients."""
        run, initial, num_shared = self.experiment, objective.initial, objective.layout.num_shared
        rates = availability.rates if run.everyone_available_takes_part else None
        n, personal, device = run.data.num_clients, run.algorithm.personal, torch.device(run.device)
        adapters = objective.network.adapters
        federation = Federation(n, num_shared, rates, device, initial.dtype, run.seed, adapters)
        first = initial[num_shared:] if personal is None else personal.first(initial, num_shared)
        remembered = run.algorithm.memory(federation, first, objective.layout.shared_shapes)
        memory = ClientMemory(n, remembered, memory_budget(torch.device("cpu"), run.memory_budget))
        return federation, initial[:num_shared].clone(), memory

    def scheduler(self, availability: BoundAvailability, opt_in: OptIn) -> tuple[Scheduler, Choice | None]:
        """Return the scheduler; in virtual time, also the choice that draws its clients."""
        run, algorithm, n = self.experiment, self.experiment.algorithm, self.experiment.data.num_clients
        if self.clock:
            seconds = run.population.round_seconds
            return at_random(run.pace, availability, seconds, algorithm.selection, run.seed, algorithm)
        cohorts = SelectedCohorts(algorithm.selection, partial(opt_in.candidates, availability), partial(np.arange, n))
        return Scheduler(run.pace.bind(n, algorithm), cohorts, None, patient=False), None

    def measured(self, workers: SimulatedClients, server: FederatedServer) -> tuple[SimulatedClients, MessageSizes]:
        """Return the clients, with the size of their messages if their deadlines depend on it, and what measures messages."""
        messages = MessageSizes(workers, server, self.experiment.pace)
        if workers.speed is not None and self.experiment.algorithm.local.traits.varies:
            workers = replace(workers, message_bytes=messages.of("train"))
        return workers, MessageSizes(workers, server, self.experiment.pace)

    def plan_ahead(self, cohorts: Cohorts, workers: SimulatedClients) -> PlanAhead | None:
        """Return what plans the next round while a device computes; None if there is nothing to plan, or no device."""
        run = self.experiment
        if torch.device(run.device).type == "cpu" or self.clock or run.population.opting is not None:
            return None
        return PlanAhead.of(cohorts, workers, run.rounds, run.seed)
