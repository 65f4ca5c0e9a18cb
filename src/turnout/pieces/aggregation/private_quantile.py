"""A clipping norm that follows a quantile of the updates' lengths, by a noised count (Andrew et al., NeurIPS 2021)."""

from __future__ import annotations

import math
from typing import Any

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.types import Federation, Report
from turnout.privacy.noise import gaussian


def update_multiplier(piece: Any, divisor: int) -> float:
    """Return the noise of each vector of a client over its norm, so that all that is noised together costs z.

    Args:
        piece: a `PrivateSum`, which has z.
        divisor: D.

    Raises:
        ConfigurationError: where the count alone costs more than that.
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


def _count_deviation(piece: Any, divisor: int) -> float:
    """The deviation of the noise in the count."""
    return divisor / 20 if piece.count_deviation is None else piece.count_deviation


def moved_norm(
    piece: Any, whole: torch.Tensor, report: Report, divisor: int, release: int, federation: Federation
) -> float:
    """Return what C is multiplied by, given which updates were not clipped (bool ``[B]``).

    Each client adds 1/2 or -1/2 to the count, and one whose report was dropped 0, as a neighbour's does: one client moves the
    count by 1/2 at most.
    """
    votes = whole.double() - 0.5
    if report.good is not None:
        votes = votes * to_device(report.good, votes.device, torch.float64)
    counted = float(votes.sum())
    if piece.noise_multiplier:
        counted += float(gaussian("noise of the count", federation, release, 1)) * _count_deviation(piece, divisor)
    share = counted / len(whole) + 0.5  # of the participants, whose number is public
    return math.exp(-piece.quantile_rate * (share - piece.quantile))
