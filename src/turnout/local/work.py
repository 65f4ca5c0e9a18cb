"""How much clients do in a round, where they do not all do the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from turnout.core.checks import count, refuse
from turnout.core.clients import Clients
from turnout.core.random import below, fold, stream
from turnout.core.types import Task


class Work(ABC):
    """An amount of local work for each client and round, in whichever unit it stands for: local steps, or epochs."""

    @abstractmethod
    def amount(self, task: Task, clients: Clients) -> np.ndarray:
        """The amounts of B clients, int64 ``[B]``."""


@dataclass(frozen=True)
class UniformWork(Work):
    """Every client draws uniformly from {least, ..., most} in every round (FOLB, section VI-A: from 1 to 20).

    The draw depends on (seed, version, client) alone: all algorithms of a comparison see the same ones.
    """

    least: int = 1
    most: int = 20

    def __post_init__(self) -> None:
        count("least", self.least)
        count("most", self.most)
        if self.most < self.least:
            raise refuse("most", given=self.most, needed=f"a whole number >= least = {self.least}")

    def amount(self, task: Task, clients: Clients) -> np.ndarray:
        """The draws of this round."""
        bits = fold(stream("work", task.seed), task.versions(len(clients)), clients.ids)
        return self.least + below(bits, self.most - self.least + 1)
