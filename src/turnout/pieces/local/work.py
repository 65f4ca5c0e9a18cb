"""Amounts of local work that vary by client and round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np

from turnout.core.checks import ConfigurationError, count, refuse
from turnout.core.random import below, fold, stream
from turnout.core.ranges import Positive
from turnout.core.registry import Family, Registered
from turnout.core.types import Task
from turnout.engine.cohort import Clients

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
