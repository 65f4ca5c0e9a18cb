"""Model clients that participate only while the model meets their requirement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from turnout.core.other_names import ExplainsArguments
from turnout.core.ranges import Whole
from turnout.core.types import State

Split = Literal["train", "test"]


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
        >>> from turnout.population.behavior.opting import Pool
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
