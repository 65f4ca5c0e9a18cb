"""Fit local steps into a round of fixed duration."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from turnout.core.checks import ConfigurationError, count, refuse
from turnout.core.ranges import Positive, Probability
from turnout.core.types import Task
from turnout.engine.cohort import Clients
from turnout.pieces.local.work import MOST, Work
from turnout.population.speed.durations import BoundSpeed


@dataclass(frozen=True)
class TimeBudget(Work, name="time_budget"):
    """Give each client as many local steps as fit into a round of fixed duration (FOLB, section V-A).

    In a round of tau seconds, client k does::

        num_steps_k = floor((tau - T_k^c) / s_k)

    local steps, where T_k^c is a high quantile of the client's communication time and s_k is the mean time of its local
    step, in seconds. Fast clients thus do more work, and slow clients are rarely late.

    Attributes:
        seconds: tau, the duration of a round in seconds, > 0.
        quantile: level of the quantile T_k^c of the time for download and upload, in [0, 1); the paper uses 0.99.
        least: number of steps of clients for which fewer fit. With 0, such a client returns the received model, an
            update of zero; with 1, all clients train, and some are late.
        most: largest number of steps; None sets no limit.

    Raises:
        ConfigurationError: if a number is out of range.

    Example:
        >>> import turnout as to
        >>> to.Sgd(steps=TimeBudget(seconds=60.0)).traits.deadline
        60.0

    Reference: Nguyen et al., "Fast-convergent federated learning", JSAC 2021, section V-A.
    """

    seconds: Positive = 10.0
    quantile: Probability = 0.99
    least: int = 0
    most: int | None = None

    def __post_init__(self) -> None:
        if self.quantile == 1:
            raise refuse("quantile", given=1, needed="less than 1", instead="Most delays have no greatest value")
        count("least", self.least, least=0, most=MOST)
        if self.most is not None:
            count("most", self.most, least=max(self.least, 1), most=MOST)

    @property
    def deadline(self) -> float:
        """tau: the server waits for the end of the round, for any cohort."""
        return self.seconds

    @property
    def counts_steps(self) -> bool:
        """True: the amounts are local steps, because seconds are divided by the time of a step."""
        return True

    @property
    def limit(self) -> int | None:
        """The option `most`."""
        return self.most

    def amount(self, task: Task, clients: Clients) -> np.ndarray:
        """Return the local steps of B clients with a task, int64 ``[B]``.

        Message sizes are those on the wire: compressed, and with everything that is sent beside the model. Before the
        first messages, when the size of a report is still to be found out, they are taken to be the size of the model.
        """
        if clients.speed is None:
            raise ConfigurationError(
                "TimeBudget turns seconds into local steps, and the speed of clients is unknown: give the population a "
                "speed, such as Speed(compute=delay.Uniform(0.1, 0.5), upload=delay.Exponential(1))"
            )
        size = task.params.shape[-1] * task.params.element_size()
        up, down = clients.message_bytes or (size, size)
        return _steps(self, clients.speed, up, down)[clients.ids]

    def steps(self, speed: BoundSpeed, bytes_up: int = 0, bytes_down: int = 0) -> np.ndarray:
        """Return the local steps of each client, int64 ``[N]``; at least `least`, even where no step fits.

        Args:
            speed: speeds of the clients.
            bytes_up: size of a report in bytes.
            bytes_down: size of a download in bytes.

        Raises:
            ConfigurationError: if the time of a step is unknown, or if it is 0 and there is no `most`.
        """
        left = self.seconds - speed.communication_quantile(self.quantile, bytes_up, bytes_down)
        step = speed.seconds_per_step
        if self.most is None and ((step == 0) & (left > 0)).any():
            raise ConfigurationError(
                "a local step takes 0 seconds, so any number fits: write most=..., or a slower step"
            )
        with np.errstate(divide="ignore", invalid="ignore"):
            fit = np.where(left > 0, left / step, 0.0)
        # A number of steps that fits exactly must not be rounded down.
        fit = np.floor(np.minimum(fit, 2.0**53 if self.most is None else self.most) * (1 + 1e-12))
        return np.maximum(fit.astype(np.int64), self.least)


@lru_cache(maxsize=8)
def _steps(budget: TimeBudget, speed: BoundSpeed, bytes_up: int, bytes_down: int) -> np.ndarray:
    """Return the steps of all clients; cached, because they are the same in all rounds."""
    return budget.steps(speed, bytes_up, bytes_down)
