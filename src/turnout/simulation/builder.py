"""Build the parts of a simulation, each from the configuration and the parts before it."""

from __future__ import annotations

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
from turnout.protocol.cohorts import SelectedCohorts
from turnout.protocol.fits import by_the_clock, check_clock
from turnout.protocol.scheduler import Scheduler
from turnout.record.client_memory import ClientMemory
from turnout.simulation.opt_in import OptIn
from turnout.simulation.virtual_time import at_random


def check_simulable(experiment: Configuration) -> None:
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


def population_of(experiment: Configuration) -> tuple[BoundAvailability, BoundSpeed | None, BoundAttack | None]:
    """Return the availability, the speed and the attack of the clients."""
    data, seed = experiment.data, experiment.seed
    population = experiment.population.of_clients(data.client_names)
    n, labels = data.num_clients, data.label_counts() if data.has_labels else None
    return (
        population.availability.bind(n, labels, seed),
        None if population.speed is None else population.speed.bind(n, seed),
        None if population.behavior is None else population.behavior.bind(n, seed),
    )


def federation_of(
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


def scheduler_of(
    experiment: Configuration, availability: BoundAvailability, opt_in: OptIn
) -> tuple[Scheduler, Choice | None]:
    """Return the scheduler; in virtual time, also the choice that draws its clients."""
    pace, algorithm, n = experiment.pace, experiment.algorithm, experiment.data.num_clients
    if by_the_clock(pace, experiment.population):
        seconds = experiment.population.round_seconds
        return at_random(pace, availability, seconds, algorithm.selection, experiment.seed, algorithm)
    cohorts = SelectedCohorts(algorithm.selection, partial(opt_in.candidates, availability), partial(np.arange, n))
    return Scheduler(pace.bind(n, algorithm), cohorts, None, patient=False), None
