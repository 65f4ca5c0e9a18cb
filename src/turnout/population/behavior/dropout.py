"""Model clients that drop out during a task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import ConfigurationError
from turnout.core.other_names import ExplainsArguments
from turnout.core.random import fold, stream, uniform
from turnout.core.ranges import NotNegative, Probability
from turnout.population.speed.durations import Seconds


@dataclass(frozen=True)
class Dropout(ExplainsArguments):
    """Clients may drop out during a task, whose report is then lost; they start again with their next task.

    Attributes:
        probability: probability of dropping out of a task, independently of its duration; the time is uniform over the
            task.
        hazard: rate of dropping out per second, so that a task of s seconds is finished with probability
            ``exp(-hazard * s)``.

    With both, the earlier time counts.

    Raises:
        ConfigurationError: if numbers are out of range, or if both are 0.

    Example:
        >>> import numpy as np, turnout as to
        >>> clients = np.arange(1000)
        >>> deaths = to.behavior.Dropout(hazard=0.01).bind(seed=0).deaths(clients, 0 * clients, seconds=np.full(1000, 10.0))
        >>> float(np.isfinite(deaths).mean())  # 1 - exp(-0.1) = 0.095
        0.099
    """

    probability: Probability = 0.0
    hazard: NotNegative = 0.0

    def __post_init__(self) -> None:
        if self.probability == 0 and self.hazard == 0:
            raise ConfigurationError(
                "probability and hazard are both 0, so nobody drops out: write dropout=None for that"
            )
        if self.probability == 1:
            raise ConfigurationError("probability: got 1, so nothing would ever arrive: write less than 1")

    def bind(self, seed: int = 0) -> BoundDropout:
        """Bind the options to the seed of a run."""
        return BoundDropout(self, stream("dropout in a task", seed), stream("lifetime in a task", seed))


@dataclass(frozen=True, eq=False)
class BoundDropout:
    """`Dropout` bound to a run."""

    options: Dropout
    chance_key: int
    hazard_key: int

    def deaths(self, clients: np.ndarray, tasks: np.ndarray, seconds: Seconds) -> Seconds:
        """Return when each client drops out, in seconds from the start of its task; inf if it does not, float64 ``[B]``.

        Args:
            clients: int64 ``[B]``.
            tasks: index of each task among its client's tasks, int64 ``[B]``.
            seconds: duration of each task, ``[B]``.
        """
        death = np.full(len(clients), np.inf)
        if self.options.probability:
            # Conditional on u < p, u / p is uniform, so one random number determines both the event and its time.
            moment = uniform(fold(self.chance_key, clients, tasks)) / self.options.probability
            death = np.where(moment < 1, moment * seconds, death)
        if self.options.hazard:
            lifetime = -np.log1p(-uniform(fold(self.hazard_key, clients, tasks))) / self.options.hazard
            death = np.where(lifetime < seconds, np.minimum(death, lifetime), death)
        return death
