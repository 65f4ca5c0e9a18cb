"""Step sizes that change with the round."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnout.core.checks import count, positive, refuse

__all__ = ["Cosine", "Halving", "InverseRoot", "Schedule"]


class Schedule(ABC):
    """A step size as a function of the version (the number of server steps so far)."""

    @abstractmethod
    def at(self, version: np.ndarray) -> np.ndarray:
        """Return the step size at each version, float64, of the same shape."""


@dataclass(frozen=True)
class Halving(Schedule):
    """Halve every `every` rounds from round `start` on, at most `most` times: ``initial / 2^level``.

    ``level = 0 before start, then min(most, (version - counted_from) // every + 1)``. FedAU's authors train CIFAR-100 with
    ``Halving(0.0562, start=10001, every=1000, most=10, counted_from=10000)``: their code halves in rounds 10001, 11000,
    12000, ..., because the first of these is where a count that began in 10000 is greater than zero.

    Args:
        initial: the step size before `start`.
        start: the first round with half of it; rounds are numbered from 0.
        every: rounds between two halvings.
        most: how often at most.
        counted_from: the round from which `every` counts; None is `start`. At most `start`.
    """

    initial: float
    start: int
    every: int
    most: int = 10
    counted_from: int | None = None

    def __post_init__(self) -> None:
        check_step_size("initial", self.initial)
        count("start", self.start, least=0)
        count("every", self.every)
        count("most", self.most)
        if self.counted_from is not None:
            count("counted_from", self.counted_from, least=0)
            if self.counted_from > self.start:
                raise refuse("counted_from", given=self.counted_from, needed=f"at most start = {self.start}")

    def at(self, version: np.ndarray) -> np.ndarray:
        """Return the step size at each version."""
        origin = self.start if self.counted_from is None else self.counted_from
        level = np.minimum((version - origin) // self.every + 1, self.most)
        return self.initial * 0.5 ** np.where(version < self.start, 0, level)


@dataclass(frozen=True)
class Cosine(Schedule):
    """Fall from `initial` to `final` along half a cosine over `rounds` rounds, then stay."""

    initial: float
    rounds: int
    final: float = 0.0

    def __post_init__(self) -> None:
        check_step_size("initial", self.initial)
        count("rounds", self.rounds)
        if not 0 <= self.final <= self.initial:
            raise refuse("final", given=self.final, needed=f"a number from 0 to initial = {self.initial}")

    def at(self, version: np.ndarray) -> np.ndarray:
        """Return the step size at each version."""
        way = np.minimum(version / self.rounds, 1.0)
        return self.final + 0.5 * (self.initial - self.final) * (1.0 + np.cos(math.pi * way))


@dataclass(frozen=True)
class InverseRoot(Schedule):
    """Fall as the inverse square root of the round: ``initial / sqrt(1 + version / every)``.

    Args:
        initial: the step size of the first round.
        every: rounds after which it has fallen to ``initial / sqrt(2)``.
    """

    initial: float
    every: int = 10

    def __post_init__(self) -> None:
        check_step_size("initial", self.initial)
        count("every", self.every)

    def at(self, version: np.ndarray) -> np.ndarray:
        """Return the step size at each version."""
        return self.initial / np.sqrt(1.0 + version / self.every)


LARGEST = float(np.finfo(np.float32).max)
"""The largest step size that models in single precision can be multiplied by."""


def check_step_size(name: str, value: Any) -> None:
    """Refuse what is neither a positive number, of at most `LARGEST`, nor a schedule."""
    if isinstance(value, Schedule):
        return
    positive(name, value)
    if value > LARGEST:
        raise refuse(name, given=value, needed=f"a number of at most {LARGEST:.3g}, the largest in single precision")


def step_size(value: float | Schedule, version: np.ndarray) -> np.ndarray:
    """Return the step size at each version, float64."""
    if isinstance(value, Schedule):
        return value.at(version)
    return np.full(np.shape(version), float(value))
