"""Adapt the clipping norm to a quantile of the updates' norms by a noised count (Andrew et al., NeurIPS 2021)."""

from __future__ import annotations

import math
from typing import Any

import torch

from turnout.base import Slots
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.types import Federation, Report
from turnout.privacy.noise import GridNoise

FASTEST = 10.0
"""The maximum step size, and the maximum exponent by which a norm adapts in a round, so that no norm overflows."""


def update_multiplier(piece: Any, divisor: int) -> float:
    """Return the noise multiplier of each vector for which a whole release has the privacy cost of `noise_multiplier`.

    A release may consist of the sum of updates, that of control variates and the count of updates that were not
    clipped. The multiplier is the standard deviation of the noise divided by the clipping norm of the vector. With c =
    1 for updates alone and c = sqrt(2) for updates and control variates, it is ``c z`` without a count, and
    ``c (z^-2 - (2 s)^-2)^(-1/2)`` with a count, to which one client adds at most 1/2 and the server noise of standard
    deviation s.

    Args:
        piece: the `PrivateSum`, whose noise multiplier is z.
        divisor: D, the divisor of the sum.

    Raises:
        ConfigurationError: if the count alone costs more than z allows.
    """
    both = 1.0 if piece.control_norm is None else math.sqrt(2.0)
    if piece.quantile is None or not piece.noise_multiplier:
        return both * piece.noise_multiplier
    left = piece.noise_multiplier**-2 - (2 * _count_deviation(piece, divisor)) ** -2
    if left <= 0:
        raise ConfigurationError(
            f"count_deviation: the count alone costs more than noise_multiplier={piece.noise_multiplier} allows; write "
            f"count_deviation={piece.noise_multiplier:g} or more"
        )
    return both * left**-0.5


def check_count(algorithm: Slots, piece: Any) -> None:
    """Raise an error if the deviation of the noise in the count does not follow from the expected number of reports.

    The default of the paper is a twentieth of the participants of a round. A twentieth of all N clients, of which few take
    part, would exceed the count, and the norm would be a random walk.
    """
    known = piece.count_deviation is not None or piece.cohort is not None
    if piece.quantile is None or not piece.noise_multiplier or known:
        return
    raise ConfigurationError(
        f"quantile: {type(algorithm.weighting[-1]).__name__} divides by all clients, so the number of reports in a step, of "
        "which the default deviation of the count is a twentieth, is unknown: write count_deviation=, about a twentieth of "
        f"the reports that you expect in a step, and more than noise_multiplier / 2 = {piece.noise_multiplier / 2:g}"
    )


def _count_deviation(piece: Any, divisor: int) -> float:
    """Return the standard deviation of the noise in the count, by default D / 20."""
    return divisor / 20 if piece.count_deviation is None else piece.count_deviation


def moved_norm(
    piece: Any, whole: torch.Tensor, report: Report, divisor: int, release: int, federation: Federation
) -> float:
    """Return the factor by which the clipping norm adapts, from a noised count of the updates that were not clipped.

    It is ``exp(-rate (s / m + (B / m) (1/2 - gamma)))``, where s is the noised count of B reports, and m is D or B, whichever
    is larger: for B = D this is ``exp(-rate (b - gamma))``, where b is the noised fraction of updates that were not clipped,
    and a round with fewer reports moves the norm less, but toward the same quantile. Without `cohort`, m is B. Each client
    adds 1/2 or -1/2 to the count, and a client whose report contained NaN or infinity adds 0, like a client without data.
    One client therefore changes the count by at most 1/2. The exponent is at most `FASTEST`.

    Args:
        piece: the `PrivateSum`, with rate, gamma and the deviation of the noise.
        whole: True for updates that were not clipped, bool ``[B]``.
        report: the B reports.
        divisor: D, from which the default deviation follows.
        release: the number of earlier releases.
        federation: the clients and the seed.
    """
    votes = whole.double() - 0.5
    if report.good is not None:
        votes = votes * to_device(report.good, votes.device, torch.float64)
    counted = votes.sum()
    if piece.noise_multiplier:
        noise = GridNoise(2 * _count_deviation(piece, divisor), 0.5)  # one client adds at most 1/2
        counted = noise.noised(counted[None], "noise of the count", federation, release)[0]
    participants = len(whole)  # their number is public
    surplus = float(counted) + participants * (0.5 - piece.quantile)
    share = surplus / max(participants, piece.cohort or 0)
    return math.exp(min(max(-piece.quantile_rate * share, -FASTEST), FASTEST))
