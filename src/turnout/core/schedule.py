"""Schedule step sizes by the round or by the local step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from turnout.core.checks import positive, refuse
from turnout.core.ranges import Count, Positive, Whole
from turnout.core.registry import Family, Registered

__all__ = ["ByStep", "Cosine", "Halving", "InverseRoot", "LinearWarmup", "Schedule"]


class Schedule(Registered, ABC):
    """A step size as a function of the version (the number of server steps so far)."""

    family = Family("schedule", "schedules", ("turnout.core.schedule",))

    @abstractmethod
    def at(self, version: np.ndarray) -> np.ndarray:
        """Return the step size at each version, float64, of the same shape."""

    def at_steps(self, version: np.ndarray, num_steps: np.ndarray) -> np.ndarray:
        """Return the step size of each local step of B clients, float64 ``[S, B]``; the same in all steps of a round.

        Args:
            version: the version of each client's task, int64 ``[B]``.
            num_steps: the number of local steps of each client, int64 ``[B]``; S is the largest.
        """
        return np.broadcast_to(self.at(version), (int(num_steps.max(initial=0)), len(version)))


@dataclass(frozen=True)
class Halving(Schedule, name="halving"):
    """Halve the step size every `every` rounds from round `start` on, at most `most` times.

    The step size is ``initial / 2^level``, where ``level = 0 before start, then min(most, (version - counted_from) //
    every + 1)``. FedAU's authors train CIFAR-100 with ``Halving(0.0562, start=10001, every=1000, most=10,
    counted_from=10000)``: their code halves in rounds 10001, 11000, 12000, ..., because it halves as soon as a count
    from round 10000 is greater than zero.

    Args:
        initial: the step size before `start`.
        start: the first round with half of `initial`; rounds are numbered from 0.
        every: number of rounds between two halvings.
        most: maximum number of halvings.
        counted_from: the round from which `every` counts, at most `start`; None is `start`.

    Example:
        >>> Halving(0.8, start=2, every=3).at(np.arange(8)).tolist()
        [0.8, 0.8, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2]
    """

    initial: InitialSize
    start: Whole
    every: Count
    most: Count = 10
    counted_from: Whole | None = None

    def __post_init__(self) -> None:
        if self.counted_from is not None and self.counted_from > self.start:
            raise refuse("counted_from", given=self.counted_from, needed=f"at most start = {self.start}")

    def at(self, version: np.ndarray) -> np.ndarray:
        """Return the step size at each version."""
        origin = self.start if self.counted_from is None else self.counted_from
        level = np.minimum((version - origin) // self.every + 1, self.most)
        return self.initial * 0.5 ** np.where(version < self.start, 0, level)


@dataclass(frozen=True)
class Cosine(Schedule, name="cosine"):
    """Decrease from `initial` to `final` along half a cosine over `rounds` rounds, then stay constant.

    In round t, the step size is ``final + (initial - final) (1 + cos(pi min(1, t / rounds))) / 2``.

    Args:
        initial: step size of the first round, > 0.
        rounds: number of rounds after which the step size is `final`, >= 1.
        final: final step size, from 0 to `initial`.

    Example:
        >>> Cosine(0.1, rounds=4).at(np.arange(6)).round(3).tolist()
        [0.1, 0.085, 0.05, 0.015, 0.0, 0.0]
    """

    initial: InitialSize
    rounds: Count
    final: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.final <= self.initial:
            raise refuse("final", given=self.final, needed=f"a number from 0 to initial = {self.initial}")

    def at(self, version: np.ndarray) -> np.ndarray:
        """Return the step size at each version."""
        progress = np.minimum(version / self.rounds, 1.0)
        return self.final + 0.5 * (self.initial - self.final) * (1.0 + np.cos(math.pi * progress))


@dataclass(frozen=True)
class InverseRoot(Schedule, name="inverse_root"):
    """Decrease as the inverse square root of the round: ``initial / sqrt(1 + version / every)``.

    Args:
        initial: the step size of the first round.
        every: number of rounds after which it is ``initial / sqrt(2)``.

    Example:
        >>> InverseRoot(0.1, every=1).at(np.array([0, 3])).tolist()
        [0.1, 0.05]
    """

    initial: InitialSize
    every: Count = 10

    def at(self, version: np.ndarray) -> np.ndarray:
        """Return the step size at each version."""
        return self.initial / np.sqrt(1.0 + version / self.every)


@dataclass(frozen=True)
class LinearWarmup(Schedule, name="linear_warmup"):
    """Increase linearly over the first rounds: ``min(1, version / rounds)`` times another step size.

    With `ByStep` it increases from local step to local step; without, the step size of the whole first round is 0.

    Args:
        lr: the step size, or another schedule, which also counts from the first round.
        rounds: number of rounds after which the factor is 1, > 0; with `ByStep` it may be a fraction.

    Example:
        >>> LinearWarmup(0.1, rounds=4).at(np.arange(6)).round(3).tolist()
        [0.0, 0.025, 0.05, 0.075, 0.1, 0.1]
    """

    lr: StepSize
    rounds: Positive

    def at(self, version: np.ndarray) -> np.ndarray:
        """Return the step size at each version."""
        return step_size(self.lr, version) * np.minimum(version / self.rounds, 1.0)


@dataclass(frozen=True)
class ByStep(Schedule, name="by_step"):
    """Change the step size with every local step, where another schedule changes it with every round.

    Step s = 0, ..., S - 1 of the S steps of a client in round t has the step size of `schedule` at ``t + s / S``, or at
    ``s / S`` if it `restarts` in every round. It applies to local work alone: a server step has no local steps.

    Args:
        schedule: a schedule, evaluated at fractional rounds.
        restarts: restart the schedule in every round.

    Example:
        Over 10 rounds of 500 steps, 1,000 steps of warm-up and half a cosine, as of a single run of 5,000 steps:

        >>> schedule = ByStep(LinearWarmup(Cosine(4e-4, rounds=10), rounds=2))
        >>> sizes = schedule.at_steps(np.array([1]), np.array([500]))
        >>> sizes.shape, f"{sizes[0, 0]:.2e}", f"{sizes[499, 0]:.2e}"
        ((500, 1), '1.95e-04', '3.62e-04')

        Half a cosine in every round:

        >>> ByStep(Cosine(0.1, rounds=1), restarts=True).at_steps(np.array([7]), np.array([4]))[:, 0].round(3).tolist()
        [0.1, 0.085, 0.05, 0.015]
    """

    schedule: Schedule
    restarts: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, Schedule):
            raise refuse("schedule", given=self.schedule, needed="a schedule, such as Cosine(0.1, rounds=100)")

    def at(self, version: np.ndarray) -> np.ndarray:
        """Return the step size of the first local step at each version."""
        return self.schedule.at(np.zeros_like(version) if self.restarts else version)

    def at_steps(self, version: np.ndarray, num_steps: np.ndarray) -> np.ndarray:
        """Return the step size of each local step."""
        step = np.arange(int(num_steps.max(initial=0)))[:, None]
        share = np.minimum(step / np.maximum(num_steps, 1), 1.0)
        return self.schedule.at(share if self.restarts else version + share)


LARGEST = float(np.finfo(np.float32).max)
"""The largest step size in single precision."""


def check_step_size(name: str, value: Any) -> None:
    """Check that a step size is a positive number of at most `LARGEST`, or a schedule."""
    if isinstance(value, Schedule):
        return
    positive(name, value)
    if value > LARGEST:
        raise refuse(name, given=value, needed=f"a number of at most {LARGEST:.3g}, the largest in single precision")


InitialSize = Annotated[float, check_step_size]
"""A positive number."""

StepSize = Annotated[float | Schedule, check_step_size]
"""A positive number, or a schedule."""


def step_size(value: float | Schedule, version: np.ndarray) -> np.ndarray:
    """Return the step size at each version, float64."""
    if isinstance(value, Schedule):
        return value.at(version)
    return np.full(np.shape(version), float(value))


def step_size_at(value: float | Schedule, version: int) -> float:
    """Return the step size at one version."""
    return float(step_size(value, np.asarray(version)))
