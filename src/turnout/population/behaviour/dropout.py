"""Clients who drop out in the middle of their work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import ConfigurationError, not_negative, probability
from turnout.core.random import fold, stream, uniform
from turnout.population.speed.durations import Seconds


@dataclass(frozen=True)
class Dropout:
    """A client dies during a task, and nothing of it arrives; its next task is a new start.

    Attributes:
        probability: chance that a task is not finished, however long it takes; it ends at a moment uniform over its time.
        hazard: deaths per second of work, so that a task of s seconds is finished with probability ``exp(-hazard * s)``.

    With both, whichever comes first.

    Raises:
        ConfigurationError: for numbers out of range, or if nobody would ever drop out.
    """

    probability: float = 0.0
    hazard: float = 0.0

    def __post_init__(self) -> None:
        probability("probability", self.probability)
        not_negative("hazard", self.hazard)
        if self.probability == 0 and self.hazard == 0:
            raise ConfigurationError(
                "probability and hazard are both 0, so nobody drops out: write dropout=None for that"
            )
        if self.probability == 1:
            raise ConfigurationError("probability: got 1, so nothing would ever arrive: write less than 1")

    def bind(self, seed: int = 0) -> BoundDropout:
        """Fit it to a run."""
        return BoundDropout(self, stream("dropout in a task", seed), stream("lifetime in a task", seed))


@dataclass(frozen=True, eq=False)
class BoundDropout:
    """`Dropout` for one run."""

    options: Dropout
    chance_key: int
    hazard_key: int

    def deaths(self, clients: np.ndarray, tasks: np.ndarray, seconds: Seconds) -> Seconds:
        """Return when in the task each client dies, in seconds from its start; inf where it survives, float64 ``[B]``.

        Args:
            clients: whose, int64 ``[B]``.
            tasks: the number of each task among its client's tasks, int64 ``[B]``.
            seconds: how long each would take, ``[B]``.
        """
        death = np.full(len(clients), np.inf)
        if self.options.probability:
            # Given that u < p, u / p is uniform: one number says whether and when.
            moment = uniform(fold(self.chance_key, clients, tasks)) / self.options.probability
            death = np.where(moment < 1, moment * seconds, death)
        if self.options.hazard:
            lifetime = -np.log1p(-uniform(fold(self.hazard_key, clients, tasks))) / self.options.hazard
            death = np.where(lifetime < seconds, np.minimum(death, lifetime), death)
        return death
