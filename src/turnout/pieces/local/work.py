"""Vary the amount of local work by client and round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from turnout.core.checks import ConfigurationError, count, positive, refuse
from turnout.core.random import below, fold, stream
from turnout.core.registry import Family, Registered
from turnout.core.types import Task
from turnout.engine.cohort import Clients

MOST = 10_000_000
"""The largest number of local steps or epochs in a round, and of examples in a minibatch."""


class Work(Registered, ABC):
    """An amount of local work for each client and round: local steps where it is `steps`, epochs where it is `epochs`."""

    family = Family("work", "work", ("turnout.pieces.local",))

    @property
    def deadline(self) -> float | None:
        """Seconds that a round lasts; None where it lasts as long as the slowest client of its cohort."""
        return None

    @property
    def counts_steps(self) -> bool:
        """True if its amounts are always local steps."""
        return False

    @abstractmethod
    def amount(self, task: Task, clients: Clients) -> np.ndarray:
        """Return the amounts of B clients, int64 ``[B]``."""


@dataclass(frozen=True)
class ShareOfWork(Work, name="share_of_work"):
    """Give every client its share of the work: ``max(1, round(share_k * of))``, the mean share being 1 (MW-Fed).

    The server sends each client its share with the task, as `MultiplicativeWeights` has it do.

    Args:
        of: the amount at a share of 1, or a `Work` of it.
        most: no client does more than this many times its amount; None is no bound.

    Raises:
        ConfigurationError: where clients receive no share.

    Example:
        >>> import turnout as to
        >>> to.mw_fed(to.Sgd(steps=10), most=4.0).local.steps
        ShareOfWork(of=10, most=4.0)
    """

    of: int | Work = 5
    most: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.of, Work):
            count("of", self.of, most=MOST)
        if self.most is not None:
            positive("most", self.most)

    @property
    def counts_steps(self) -> bool:
        """True if its amounts are always local steps, as those of `of` are."""
        return isinstance(self.of, Work) and self.of.counts_steps

    def amount(self, task: Task, clients: Clients) -> np.ndarray:
        """Return the amounts of this round."""
        if "share" not in task.own:
            raise ConfigurationError(
                "nobody tells clients their share of the work: add MultiplicativeWeights() to the pieces"
            )
        share = task.own["share"].cpu().numpy()
        whole = self.of.amount(task, clients) if isinstance(self.of, Work) else self.of
        most = np.inf if self.most is None else self.most
        return np.maximum(np.rint(np.minimum(share, most) * whole), 1).astype(np.int64)


@dataclass(frozen=True)
class UniformWork(Work, name="uniform"):
    """Draw amounts uniformly from {least, ..., most} for every client and round (FOLB, section VI-A: from 1 to 20).

    The draw depends on (seed, version, client) alone: all algorithms of a comparison see the same ones.

    Example:
        >>> import turnout as to
        >>> to.Sgd(steps=None, epochs=UniformWork(1, 20)).varies
        True
    """

    least: int = 1
    most: int = 20

    def __post_init__(self) -> None:
        count("least", self.least, most=MOST)
        count("most", self.most, most=MOST)
        if self.most < self.least:
            raise refuse("most", given=self.most, needed=f"a whole number >= least = {self.least}")

    def amount(self, task: Task, clients: Clients) -> np.ndarray:
        """Return the draws of this round."""
        bits = fold(stream("work", task.seed), task.versions(len(clients)), clients.ids)
        return self.least + below(bits, self.most - self.least + 1)
