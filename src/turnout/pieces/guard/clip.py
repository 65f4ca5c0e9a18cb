"""Bound updates and changes of control variates by a norm, with or without a share of the noise of a private sum."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from turnout.base import Guard, Slots
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.random import fold, stream
from turnout.core.ranges import Count, Positive
from turnout.core.types import Report, State, Task
from turnout.core.updates import Updates, clipped
from turnout.engine.cohort import Clients
from turnout.privacy.gaussian import FINEST, discrete_gaussian
from turnout.privacy.noise import client_words
from turnout.privacy.ranges import Bound, Deviation


@dataclass(frozen=True)
class Clip(Guard, name="clip"):
    """Clip each update to a maximal Euclidean norm (DP-FedAvg).

    ``Delta_b <- Delta_b min(1, norm / ||Delta_b||)``, where Delta_b is the update of client b. It bounds the influence
    of a single client, as differential privacy needs it.

    Args:
        norm: largest Euclidean norm of an update, > 0.

    Raises:
        ConfigurationError: if `norm` is not positive.

    Example:
        >>> import turnout as to
        >>> to.fedavg(also=(to.guard.Clip(norm=1.0),)).guard
        (Clip(norm=1.0),)

    Reference: McMahan et al., "Learning differentially private recurrent language models", ICLR 2018.
    """

    norm: Positive = 1.0

    def apply(self, report: Report, task: Task, memory: State, clients: Clients) -> Report:
        """Return the report with its update clipped; zero stays zero, and NaN stays NaN for the server to drop."""
        return replace(report, delta=clipped(report.updates.gathered(), self.norm))


@dataclass(frozen=True)
class ClipControls(Guard, name="clip_controls"):
    """Clip each change of a control variate to a maximal Euclidean norm, for SCAFFOLD under differential privacy.

    ``d_b <- d_b min(1, norm / ||d_b||)``, where d_b is the change of what client b remembers, such as its control
    variate in SCAFFOLD. A client changes its memory by what it has sent, so the server's mean stays the mean of the
    clients' memories. `PrivateSum` with ``control_norm`` needs this guard.

    Args:
        norm: largest Euclidean norm of a change, > 0.

    Raises:
        ConfigurationError: if `norm` is not positive, or if clients of the algorithm have no control variates.

    Example:
        >>> import turnout as to
        >>> to.scaffold(also=(ClipControls(norm=0.5),)).guard
        (ClipControls(norm=0.5),)
    """

    norm: Positive = 1.0

    def fits(self, algorithm: Slots) -> None:
        """Raise an error unless clients of the algorithm have control variates."""
        if not algorithm.keeps:
            raise ConfigurationError(
                "ClipControls clips the change of control variates, and clients send none: leave it out, or use Scaffold"
            )

    def apply(self, report: Report, task: Task, memory: State, clients: Clients) -> Report:
        """Return the report with its changes clipped; zero stays zero, and NaN stays NaN for the server to drop."""
        extra = {name: clipped(Updates.of(change).gathered(), self.norm) for name, change in report.extra.items()}
        return replace(report, extra=extra)


_BITS = 12  # a share has 2^12 to 2^13 steps in a deviation
_DIGITS = 24  # digits of float32


def share_step(norm: float, noise_multiplier: float, shares: int) -> float:
    """Return the step of the grid of noised updates, a power of two.

    A share of the noise has a deviation of 4,096 to 8,192 steps, or fewer where a clipped update would have more than 2^23
    steps, so that float32 has room for an update with its share.

    Raises:
        ConfigurationError: if that leaves fewer than four steps in a deviation.

    Example:
        >>> share_step(norm=1.0, noise_multiplier=1.0, shares=4) == 2.0**-13
        True
    """
    ratio = math.sqrt(shares) / noise_multiplier
    bits = min(_BITS, _DIGITS - 2 - math.ceil(math.log2(ratio)))
    if 2**bits < FINEST:
        raise ConfigurationError(
            f"NoiseShare: got noise_multiplier={noise_multiplier:g} for shares={shares}, so that a share of the noise is "
            "below the resolution of float32 beside an update: write a larger noise_multiplier or fewer shares"
        )
    return 2.0 ** (math.floor(math.log2(norm / ratio)) - bits)


@dataclass(frozen=True)
class NoiseShare(Guard, name="noise_share"):
    """Clip each update and add a share of Gaussian noise, so that the sum is differentially private (distributed noise).

    ``Delta_b <- clip(Delta_b, C) + (z C / sqrt(n)) N(0, I)``, where Delta_b is the update of client b, C is the norm to
    which it is clipped, z is the noise multiplier, and n is the number of clients in a step. n such shares sum to the
    noise ``z C N(0, I)``, with which a trusted server would have released the sum. So each update is noised, and the
    sum has no more noise than with a trusted server.

    `PrivateSum` with ``noise_shares=n`` accounts for this noise, and its server adds the shares of clients that dropped
    out. Other aggregations are refused. Among them is `SecureSum`, which rounds updates and could not complete the
    noise.

    Toward the server itself, the sum over B clients has the noise multiplier ``z sqrt(B / n)``. Toward c clients that
    share their noise with each other, it has ``z sqrt((n - c) / n)``.

    The random numbers are a function of (seed, version, client), so this guard is for simulations only.

    Args:
        norm: largest Euclidean norm C of an update, from 10^-30 to 10^9.
        noise_multiplier: standard deviation z of the noise of the sum, as a multiple of C.
        shares: expected number n of clients in a step, >= 1.

    Raises:
        ConfigurationError: if a number is out of range, if another guard follows, or if the aggregation does not
            account for the noise.

    Example:
        Each of ten clients adds a tenth of the variance:

        >>> from turnout.base.trial import guarded, report
        >>> guarded(NoiseShare(norm=1.0, noise_multiplier=0.1, shares=10), report([[3.0, 4.0]]))
        [[0.6272, 0.8241]]
    """

    needs_simulation = (
        "the noise of a client is a function of the run's seed, which all clients know, so that they could subtract it "
        "(without NoiseShare and noise_shares the server adds noise)"
    )

    norm: Bound = 1.0
    noise_multiplier: Deviation = 1.0
    shares: Count = 10

    def __post_init__(self) -> None:
        share_step(self.norm, self.noise_multiplier, self.shares)

    def fits(self, algorithm: Slots) -> None:
        """Raise an error unless the aggregation accounts for the noise and no guard follows, which would change shares."""
        if not hasattr(algorithm.aggregation, "noise_shares"):
            raise ConfigurationError(
                f"NoiseShare: {type(algorithm.aggregation).__name__} does not account for epsilon, nor for shares of clients "
                f"that drop out: add PrivateSum(norm={self.norm:g}, noise_multiplier={self.noise_multiplier:g}, "
                f"noise_shares={self.shares}), or leave NoiseShare out"
            )
        last = type(algorithm.guard[-1]).__name__
        if algorithm.guard[-1] is not self:
            raise ConfigurationError(
                f"{last} after NoiseShare changes single updates, so that their noise no longer sums to Gaussian noise: "
                "write NoiseShare as the last guard"
            )

    def apply(self, report: Report, task: Task, memory: State, clients: Clients) -> Report:
        """Return the report with its update clipped, rounded to the grid and noised.

        Raises:
            ConfigurationError: if rounding would use up more than half of the norm.
        """
        delta = report.updates.gathered()
        step, number = share_step(self.norm, self.noise_multiplier, self.shares), delta.shape[1]
        moved = 0.5 * step * math.sqrt(number)
        if 2 * moved > self.norm:
            raise ConfigurationError(
                f"NoiseShare: got noise_multiplier={self.noise_multiplier:g} for shares={self.shares}, and rounding "
                f"{number:,} numbers to the grid of such noise can use up {moved:.3g} of norm={self.norm:g}, more than half: "
                "write more shares or a smaller noise_multiplier"
            )
        keys = fold(stream("share of the noise", task.seed), task.draws(len(report)), report.client)
        words = client_words(to_device(keys, delta.device), number)
        deviation = self.noise_multiplier * self.norm / math.sqrt(self.shares) / step
        noise = discrete_gaussian(words, delta.numel(), deviation, delta.device).view_as(delta)
        rounded = (clipped(delta, self.norm - moved).double() / step).round()
        return replace(report, delta=((rounded + noise) * step).to(delta.dtype))
