"""Simulate the schedule of a federation without training: staleness and throughput in simulated seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.core.checks import ConfigurationError, count, positive
from turnout.population.population import Population
from turnout.protocol.pace import Pace
from turnout.record.tasks import OUTCOMES
from turnout.simulation.virtual_time import VirtualTime, at_random
from turnout.simulation.work_times import Effort, NumSteps, WorkTimes


@dataclass(frozen=True, eq=False)
class Timeline:
    """The tasks and the server steps of a schedule.

    Attributes:
        num_clients: N.
        tasks: a row for each task that ended, in the order in which the server used or dropped them: `task` (its number),
            `client`, `version` (trained from), `asked` and `ended` (seconds at which it was sent, and at which its report
            arrived or it was dropped), `stepped` (the version whose step used it, -1 if none), `staleness`
            (stepped - version, -1 if unused), `outcome` (its index in `turnout.record.tasks.OUTCOMES`).
        steps: the time of each server step, float64 ``[steps]``.
    """

    num_clients: int
    tasks: dict[str, np.ndarray]
    steps: np.ndarray

    @property
    def used(self) -> np.ndarray:
        """The tasks that were used, bool."""
        return self.tasks["stepped"] >= 0

    def contributions(self) -> dict[str, np.ndarray]:
        """Return the contributions of each client.

        Returns:
            Columns ``[N]``: `client`; `tasks` (ended); `contributions` (used); `share` (of all contributions, NaN if there
            are none); `mean_staleness` (of its contributions, NaN without).
        """
        client, used = self.tasks["client"], self.used
        contributions = np.bincount(client[used], minlength=self.num_clients)
        staleness = np.bincount(client[used], self.tasks["staleness"][used], minlength=self.num_clients)
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
            return {
                "client": np.arange(self.num_clients),
                "tasks": np.bincount(client, minlength=self.num_clients),
                "contributions": contributions,
                "share": contributions / np.float64(contributions.sum()),
                "mean_staleness": staleness / contributions,
            }

    def outcomes(self) -> dict[str, int]:
        """Return the number of tasks by outcome."""
        counts = np.bincount(self.tasks["outcome"], minlength=len(OUTCOMES))
        return dict(zip(OUTCOMES, counts.tolist(), strict=True))


def schedule(
    pace: Pace,
    population: Population,
    num_clients: int,
    *,
    until: float = math.inf,
    steps: int | None = None,
    num_steps: NumSteps = 1,
    cohort_size: int | None = None,
    bytes_up: int = 0,
    bytes_down: int = 0,
    label_counts: np.ndarray | None = None,
    seed: int = 0,
) -> Timeline:
    """Run a pace in virtual time without a model.

    Args:
        pace: the pace.
        population: the speed and the availability of clients.
        num_clients: N.
        until: seconds after which the schedule ends; events exactly then still count.
        steps: server steps after which the schedule ends.
        num_steps: local steps of a task: one number, a number for each client, or a function of (clients, version).
        cohort_size: number of clients in a synchronous round, drawn at random; None is all available clients.
        bytes_up: size of a report.
        bytes_down: size of what a client receives.
        label_counts: number of examples of each class at each client ``[N, C]``, for availability that depends on labels.
        seed: the seed of the run.

    Raises:
        ConfigurationError: if a population has no speed, a schedule has no end, or options do not fit.
    """
    count("num_clients", num_clients)
    _check_end(until, steps)
    if cohort_size is not None:
        count("cohort_size", cohort_size)
    if population.speed is None:
        raise ConfigurationError(
            "the population has no speed, so nothing takes time: write Population(speed=Speed(...))"
        )
    dropout = None if population.dropout is None else population.dropout.bind(seed)
    availability = population.availability.bind(num_clients, label_counts, seed)
    scheduler, choice = at_random(pace, availability, population.round_seconds, cohort_size, seed)
    efforts = {"train": Effort(num_steps, bytes_up, bytes_down)}
    work = WorkTimes(population.speed.bind(num_clients, seed), dropout, efforts)
    virtual = VirtualTime(scheduler, choice, work, population.round_seconds)
    while (steps is None or virtual.pace.version < steps) and virtual.advance(until) is not None:
        pass
    tasks, times = virtual.log.take()
    staleness = np.where(tasks["stepped"] >= 0, tasks["stepped"] - tasks["version"], -1)
    return Timeline(num_clients, tasks | {"staleness": staleness}, times)


def _check_end(until: float, steps: int | None) -> None:
    """Reject a schedule without an end."""
    if until == math.inf and steps is None:
        raise ConfigurationError("until and steps are both left out, so there is no end: write until=... or steps=...")
    if until != math.inf:
        positive("until", until)
    if steps is not None:
        count("steps", steps)
