"""Add a share of the noise at each client, so that the sum of a cohort is differentially private."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from turnout.core.checks import ConfigurationError, count, positive
from turnout.core.device import to_device
from turnout.core.random import fold, normal, stream
from turnout.core.types import Report, State, Task
from turnout.core.updates import clipped
from turnout.engine.cohort import Clients
from turnout.pieces.base import Guard, Slots
from turnout.privacy.accounting import check_deviation


@dataclass(frozen=True)
class NoiseShare(Guard, name="noise_share"):
    """``Delta_b <- clip(Delta_b, C) + (z C / sqrt(n)) N(0, I)``: n of these sum to the noise ``z C N(0, I)``.

    No single update is without noise, and the sum alone is what a trusted server would have released. `PrivateSum` with
    ``noise_shares=n`` counts it, and has the server add the shares of clients that dropped out; any other aggregation is
    refused, `SecureSum` among them, which rounds updates and could not complete the noise. Towards the
    server itself the sum of B clients then has z sqrt(B/n), and towards c of them who tell each other their noise
    z sqrt((n - c)/n).

    The random numbers follow from (seed, version, client), which is right for simulations alone.

    Args:
        norm: C.
        noise_multiplier: z, of the whole sum.
        shares: n, the clients of a step that are expected.

    Raises:
        ConfigurationError: for numbers out of range, where another guard comes after it, or for a sum that does not
            count it.

    Example:
        Ten shares of a tenth of the variance each:

        >>> from turnout.pieces.base.trial import guarded, report
        >>> guarded(NoiseShare(norm=1.0, noise_multiplier=0.1, shares=10), report([[3.0, 4.0]]))
        [[0.7043, 0.8257]]
    """

    needs_simulation = (
        "the noise of a client follows from the run's seed, which all are told, so that they could take it off (without "
        "it and noise_shares the server adds noise)"
    )

    norm: float = 1.0
    noise_multiplier: float = 1.0
    shares: int = 10

    def __post_init__(self) -> None:
        positive("norm", self.norm)
        check_deviation("noise_multiplier", self.noise_multiplier)
        count("shares", self.shares)

    def fits(self, algorithm: Slots) -> None:
        """Refuse sums that do not count its noise, and guards behind it, by which shares no longer sum to the noise."""
        if not hasattr(algorithm.aggregation, "noise_shares"):
            raise ConfigurationError(
                f"NoiseShare: {type(algorithm.aggregation).__name__} counts no epsilon, and has less noise when clients drop "
                f"out: add PrivateSum(norm={self.norm:g}, noise_multiplier={self.noise_multiplier:g}, "
                f"noise_shares={self.shares}), or leave NoiseShare out"
            )
        last = type(algorithm.guard[-1]).__name__
        if algorithm.guard[-1] is not self:
            raise ConfigurationError(
                f"{last} behind NoiseShare changes single updates, so that their noises no longer sum to one Gaussian noise: "
                "write NoiseShare as the last guard"
            )

    def apply(self, report: Report, task: Task, memory: State, clients: Clients) -> Report:
        """Return the report with its update clipped and noised."""
        delta = clipped(report.updates.gathered(), self.norm)
        keys = fold(stream("share of the noise", task.seed), task.draws(len(report)), report.client)
        columns = torch.arange(delta.shape[1], device=delta.device)
        noise = normal(fold(to_device(keys, delta.device)[:, None], columns))
        deviation = self.noise_multiplier * self.norm / math.sqrt(self.shares)
        return replace(report, delta=delta + (deviation * noise).to(delta.dtype))
