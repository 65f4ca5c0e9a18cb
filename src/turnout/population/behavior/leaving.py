"""Model clients that leave: during a task, or between rounds while the model does not meet their requirement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from turnout.core.checks import ConfigurationError
from turnout.core.other_names import ExplainsArguments
from turnout.core.random import fold, stream, uniform
from turnout.core.ranges import NotNegative, Probability, Whole
from turnout.core.types import State
from turnout.population.speed.durations import Seconds

Split = Literal["train", "test"]


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


@dataclass(frozen=True)
class Opting(ExplainsArguments):
    """Clients opt in or out before every round, depending on whether the model meets their requirement (MaxFL, section 3).

    In round t client k is in the pool iff ``F_k(w^t) < rho_k``, and takes part if it is also available and selected. The
    rule is the same for all algorithms. It evaluates the model at all clients once per round.

    Args:
        mandatory_rounds: initial rounds in which all clients are in the pool (10 of 200 in the paper).
        comes_back: clients that left return when the model meets their requirement again.
        split: the clients' ``"train"`` or ``"test"`` examples on which the model is evaluated; the paper does not say which.
            Clients without test examples use their training examples.

    Example:
        >>> import numpy as np, turnout as to
        >>> from turnout.population.behavior.leaving import Pool
        >>> pool, content = Pool(to.behavior.Opting(mandatory_rounds=2), num_clients=3), np.array([True, False, True])
        >>> [pool.members(round, lambda: content).tolist() for round in (1, 2)]
        [[True, True, True], [True, False, True]]

    Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
    """

    mandatory_rounds: Whole = 10
    comes_back: bool = True
    split: Split = "train"


class Pool:
    """`Opting` bound to the N clients of a run.

    Args:
        options: the rule.
        num_clients: N.
        loyal: mask of clients that never leave, bool ``[N]``; None is none.
    """

    def __init__(self, options: Opting, num_clients: int, loyal: np.ndarray | None = None) -> None:
        self._options = options
        self._loyal = np.zeros(num_clients, dtype=bool) if loyal is None else loyal
        self._gone = np.zeros(num_clients, dtype=bool)
        self._round = -1
        self._members = np.ones(num_clients, dtype=bool)

    def members(self, round: int, content: Callable[[], np.ndarray]) -> np.ndarray:
        """Return the mask of clients in the pool in `round`, bool ``[N]``.

        Args:
            round: does not decrease from call to call.
            content: function that returns for all clients whether the model of that round meets their requirement, bool
                ``[N]``; called at most once per round.
        """
        if round < self._options.mandatory_rounds:
            return np.ones_like(self._members)
        if round != self._round:
            self._members = (content() & ~self._gone) | self._loyal
            if not self._options.comes_back:
                self._gone = ~self._members
            self._round = round
        return self._members

    def state(self) -> State:
        """Return the state to save: the clients that have left permanently."""
        return {} if self._options.comes_back else {"gone": torch.from_numpy(self._gone)}

    def restore(self, state: State) -> None:
        """Restore the result of `state`."""
        if not self._options.comes_back:
            self._gone = state["gone"].numpy()
        self._round = -1
