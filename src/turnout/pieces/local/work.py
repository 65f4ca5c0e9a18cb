"""Amounts of local work that vary by client and round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Annotated, Any

import numpy as np

from turnout.core.checks import ConfigurationError, count, refuse
from turnout.core.random import below, fold, stream
from turnout.core.ranges import Positive, Probability
from turnout.core.registry import Family, Registered
from turnout.core.types import Task
from turnout.engine.cohort import Clients
from turnout.population.speed.durations import BoundSpeed

MOST = 10_000_000
"""Largest number of local steps or epochs in a round, and of examples in a minibatch."""

Amount = Annotated[int, partial(count, most=MOST)]
"""A number of local steps or epochs in a round, or of examples in a minibatch."""


class Work(Registered, ABC):
    """Determine the amount of local work of each client and round.

    An amount is a number of local steps as the option `steps` of a solver, and of epochs as the option `epochs`.
    """

    family = Family("work", "work", ("turnout.pieces.local",))

    @property
    def deadline(self) -> float | None:
        """Duration of a round in seconds; None if a round lasts as long as the slowest client of its cohort."""
        return None

    @property
    def counts_steps(self) -> bool:
        """True if the amounts are always local steps, so that they cannot be used as `epochs`."""
        return False

    @property
    def limit(self) -> int | None:
        """The largest amount that any client may have; None, the default, if it is unknown."""
        return None

    @abstractmethod
    def amount(self, task: Task, clients: Clients) -> np.ndarray:
        """Return the amounts of B clients with a task, int64 ``[B]``."""


def check_work(name: str, work: Any) -> None:
    """Raise an error if the option `name`, which is ``"steps"`` or ``"epochs"``, is no amount of such work."""
    if not isinstance(work, Work):
        count(name, work, most=MOST)
    elif name == "epochs" and work.counts_steps:
        raise refuse(
            "epochs",
            given=work,
            needed="an amount of epochs, and this is a number of local steps",
            instead="Write steps=TimeBudget(...) in place of epochs",
        )


@dataclass(frozen=True)
class ShareOfWork(Work, name="share_of_work"):
    """Scale each client's local work by the share that the server assigns to it (MW-Fed).

    Client k does ``max(1, round(share_k * of))`` local steps or epochs, where the mean of share_k over all clients is
    1. The weighting `MultiplicativeWeights` makes the server send each client its share with the task.

    Args:
        of: the amount of work at a share of 1, or a `Work` that determines it.
        most: largest share that counts, > 0: a client does at most `most` times the amount `of`; None sets no limit.

    Raises:
        ConfigurationError: if a number is out of range, or if clients receive no share.

    Example:
        >>> import turnout as to
        >>> to.mw_fed(to.Sgd(steps=10), most=4.0).local.steps
        ShareOfWork(of=10, most=4.0)
    """

    of: int | Work = 5
    most: Positive | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.of, Work):
            count("of", self.of, most=MOST)

    @property
    def counts_steps(self) -> bool:
        """True if the amounts of `of` are always local steps."""
        return isinstance(self.of, Work) and self.of.counts_steps

    @property
    def limit(self) -> int | None:
        """The amount at the largest share that counts; None without such a share."""
        whole = self.of.limit if isinstance(self.of, Work) else self.of
        return None if self.most is None or whole is None else max(round(self.most * whole), 1)

    def amount(self, task: Task, clients: Clients) -> np.ndarray:
        """Return the amounts of B clients with a task, int64 ``[B]``, from the shares in ``task.own``."""
        if "share" not in task.own:
            raise ConfigurationError(
                "ShareOfWork scales work by a share that clients receive, and they receive none: add "
                "MultiplicativeWeights() to the pieces"
            )
        share = task.own["share"].cpu().numpy()
        whole = self.of.amount(task, clients) if isinstance(self.of, Work) else self.of
        most = np.inf if self.most is None else self.most
        return np.maximum(np.rint(np.minimum(share, most) * whole), 1).astype(np.int64)


@dataclass(frozen=True)
class UniformWork(Work, name="uniform"):
    """Draw the amount of local work uniformly from {least, ..., most} for every client and round.

    FOLB's experiments draw it from 1 to 20 (section VI-A). A draw depends on (seed, version, client) alone, so that all
    algorithms of a comparison have the same amounts.

    Args:
        least: smallest amount, >= 1.
        most: largest amount, >= `least`.

    Raises:
        ConfigurationError: if a number is out of range.

    Example:
        >>> import turnout as to
        >>> to.Sgd(steps=None, epochs=UniformWork(1, 20)).traits.varies
        True
    """

    least: Amount = 1
    most: Amount = 20

    def __post_init__(self) -> None:
        if self.most < self.least:
            raise refuse("most", given=self.most, needed=f"a whole number >= least = {self.least}")

    @property
    def limit(self) -> int:
        """The option `most`."""
        return self.most

    def amount(self, task: Task, clients: Clients) -> np.ndarray:
        """Return the amounts of B clients with a task, int64 ``[B]``."""
        bits = fold(stream("work", task.seed), task.versions(len(clients)), clients.ids)
        return self.least + below(bits, self.most - self.least + 1)


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
