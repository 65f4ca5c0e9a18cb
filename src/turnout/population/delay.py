"""Distributions of delays in seconds: constant, normal, uniform, exponential, log-normal, Pareto.

A draw is the quantile function at a uniform number that is a function of (seed, client, index of the client's task), so
draws can be made in any order and need no state.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.checks import refuse
from turnout.core.random import fold, uniform
from turnout.core.ranges import NotNegative, Positive
from turnout.core.registry import Family, Registered

__all__ = ["Constant", "Delay", "Exponential", "LogNormal", "Normal", "Pareto", "Uniform"]


def _infinite() -> np.errstate:
    """Ignore overflow: durations beyond the range of floating point are infinite, as they are at q = 1."""
    return np.errstate(divide="ignore", over="ignore")


def standard_normal(q: np.ndarray | float) -> np.ndarray:
    """Return the quantile function of N(0, 1) elementwise; -inf at 0 and inf at 1."""
    return torch.special.ndtri(torch.from_numpy(np.array(q, dtype=np.float64))).numpy()


@dataclass(frozen=True)
class Delay(Registered, ABC):
    """Base class of distributions of durations >= 0, in seconds."""

    family = Family("delay", "delays", ("turnout.population.delay",))

    @abstractmethod
    def mean(self) -> float:
        """Return the expected duration; inf if it does not exist."""

    def quantile(self, q: np.ndarray | float) -> np.ndarray:
        """Return the q-quantile, the least s with P(duration <= s) >= q, for q in [0, 1]; float64 of q's shape.

        Raises:
            ConfigurationError: if q is outside [0, 1].
        """
        q = np.asarray(q, dtype=np.float64)
        if not ((q >= 0) & (q <= 1)).all():
            raise refuse("q", given=q.tolist(), needed="probabilities, 0 <= q <= 1")
        with _infinite():
            return self._quantile(q)

    def draw(self, key: int, clients: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        """Draw one duration for each pair of a client and the index of its task, float64 ``[B]``."""
        with _infinite():
            return self._quantile(uniform(fold(key, clients, tasks)))

    @abstractmethod
    def _quantile(self, q: np.ndarray) -> np.ndarray:
        """`quantile` without checks."""


@dataclass(frozen=True)
class Constant(Delay, name="constant"):
    """A constant duration.

    Attributes:
        seconds: the duration, >= 0.

    Raises:
        ConfigurationError: if a duration is negative.

    Example:
        >>> import turnout as to
        >>> to.delay.Constant(seconds=2.5).quantile([0.1, 0.9]).tolist()
        [2.5, 2.5]
    """

    seconds: NotNegative = 1.0

    def mean(self) -> float:
        """Return ``seconds``."""
        return float(self.seconds)

    def draw(self, key: int, clients: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        """Return ``seconds``, ``[B]``."""
        return np.full(np.broadcast_shapes(np.shape(clients), np.shape(tasks)), float(self.seconds))

    def _quantile(self, q: np.ndarray) -> np.ndarray:
        return np.full(q.shape, float(self.seconds))


@dataclass(frozen=True)
class Normal(Delay, name="normal"):
    """A normal duration, clipped at 0: ``max(0, N(loc, scale^2))``.

    Attributes:
        loc: mean of the normal distribution, >= 0; clipping makes the mean duration slightly larger.
        scale: its standard deviation, > 0.

    Raises:
        ConfigurationError: if numbers are outside these ranges.

    Example:
        >>> import turnout as to
        >>> to.delay.Normal(loc=1.0, scale=0.5).quantile([0.01, 0.5, 0.99]).round(2).tolist()
        [0.0, 1.0, 2.16]
    """

    loc: NotNegative = 1.0
    scale: Positive = 0.1

    def mean(self) -> float:
        """Return ``loc * Phi(loc / scale) + scale * phi(loc / scale)``."""
        z = self.loc / self.scale
        within = 0.5 * math.erfc(-z / math.sqrt(2.0))
        return self.loc * within + self.scale * math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)

    def _quantile(self, q: np.ndarray) -> np.ndarray:
        return np.maximum(self.loc + self.scale * standard_normal(q), 0.0)


@dataclass(frozen=True)
class Uniform(Delay, name="uniform"):
    """A duration uniform between two limits.

    Attributes:
        low: least duration, >= 0.
        high: greatest duration, >= low.

    Raises:
        ConfigurationError: if limits are negative or in the wrong order.

    Example:
        >>> import turnout as to
        >>> delay = to.delay.Uniform(low=1, high=4)
        >>> delay.mean(), delay.quantile([0.0, 0.5, 1.0]).tolist()
        (2.5, [1.0, 2.5, 4.0])
    """

    low: NotNegative = 0.0
    high: NotNegative = 1.0

    def __post_init__(self) -> None:
        if self.high < self.low:
            raise refuse("high", given=self.high, needed=f"at least low={self.low}", instead="Exchange the two")

    def mean(self) -> float:
        """Return ``(low + high) / 2``."""
        return 0.5 * (self.low + self.high)

    def _quantile(self, q: np.ndarray) -> np.ndarray:
        return self.low + (self.high - self.low) * q


@dataclass(frozen=True)
class Exponential(Delay, name="exponential"):
    """An exponential duration: ``P(more than s) = exp(-s / scale)``.

    Attributes:
        scale: mean duration, > 0.

    Raises:
        ConfigurationError: if a mean is not > 0.

    Example:
        >>> import turnout as to
        >>> to.delay.Exponential().quantile([0.5, 0.99]).round(2).tolist()
        [0.69, 4.61]
    """

    scale: Positive = 1.0

    def mean(self) -> float:
        """Return ``scale``."""
        return float(self.scale)

    def _quantile(self, q: np.ndarray) -> np.ndarray:
        return -self.scale * np.log1p(-q)


@dataclass(frozen=True)
class LogNormal(Delay, name="lognormal"):
    """A log-normal duration: ``median * exp(sigma * N(0, 1))``.

    Attributes:
        median: > 0.
        sigma: standard deviation of the logarithm, > 0; at 0.5 one draw in 20 exceeds 2.3 medians.

    Raises:
        ConfigurationError: if numbers are not > 0.

    Example:
        >>> import turnout as to
        >>> to.delay.LogNormal(median=1.0, sigma=1.0).quantile([0.05, 0.5, 0.95]).round(2).tolist()
        [0.19, 1.0, 5.18]
    """

    median: Positive = 1.0
    sigma: Positive = 0.5

    def mean(self) -> float:
        """Return ``median * exp(sigma^2 / 2)``; inf on overflow."""
        with _infinite():
            return float(self.median * np.exp(0.5 * np.square(self.sigma, dtype=np.float64)))

    def _quantile(self, q: np.ndarray) -> np.ndarray:
        return self.median * np.exp(self.sigma * standard_normal(q))


@dataclass(frozen=True)
class Pareto(Delay, name="pareto"):
    """A duration with a heavy tail: ``P(more than s) = (scale / s)^shape`` for s >= scale.

    Attributes:
        scale: least duration, > 0.
        shape: exponent of the tail, > 0; the mean is infinite up to 1, the variance up to 2.

    Raises:
        ConfigurationError: if numbers are not > 0.

    Example:
        >>> import turnout as to
        >>> to.delay.Pareto().quantile([0.5, 0.99]).round(2).tolist()
        [1.32, 6.31]
    """

    scale: Positive = 1.0
    shape: Positive = 2.5

    def mean(self) -> float:
        """Return ``scale * shape / (shape - 1)``; inf for a shape of at most 1."""
        return self.scale * self.shape / (self.shape - 1.0) if self.shape > 1 else math.inf

    def _quantile(self, q: np.ndarray) -> np.ndarray:
        return self.scale * (1.0 - q) ** (-1.0 / self.shape)


def quantile_of_sum(one: Delay, other: Delay, q: float) -> float:
    """Return the q-quantile of the sum of two independent delays; exact if one is constant, else within 1e-4 of q.

    Solves ``P(X + Y <= s) = mean over p of P(Y <= s - x(p)) = q`` for s by bisection, where x is the quantile function of X
    and P(Y <= y) is looked up in a table of Y's quantiles.
    """
    if isinstance(one, Constant) or isinstance(other, Constant) or q in (0, 1):
        return float(one.quantile(q) + other.quantile(q))
    x, y = (delay.quantile((np.arange(size) + 0.5) / size) for delay, size in ((one, 1 << 12), (other, 1 << 16)))
    low, high = float(one.quantile(0.0) + other.quantile(0.0)), float(x[-1] + y[-1])
    for _ in range(60):
        middle = 0.5 * (low + high)
        probability = np.searchsorted(y, middle - x, side="right").mean() / len(y)
        low, high = (low, middle) if probability >= q else (middle, high)
    return high
