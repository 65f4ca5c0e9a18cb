"""Sum updates to which clients added shares of the noise, with the server's noise for absent clients."""

from __future__ import annotations

import math
from typing import Any

import torch

from turnout.base import Slots, Weights
from turnout.core.checks import ConfigurationError
from turnout.core.types import Federation, Report
from turnout.distributed.sums import OnlySums
from turnout.pieces.guard.noise_share import NoiseShare, share_step
from turnout.pieces.weighting import DivideByClients, DivideByParticipants
from turnout.privacy.gaussian import discrete_gaussian
from turnout.privacy.noise import server_words


def completed_sum(
    piece: Any, weights: Weights, report: Report, divisor: int, release: int, federation: Federation
) -> torch.Tensor:
    """Return the sum of updates that contain noise, with the server's noise for the missing shares, float64 ``[P]``.

    r_b is the clipped update of report b with its share of the noise, on the grid of the shares, m is the number of shares
    that together have the standard deviation z C: n, or n - t under masks, and y is discrete Gaussian noise ``[P]`` on the
    same grid, of standard deviation ``z C sqrt((max(m - B, 0) + d) / m)``::

        w (sum_b r_b + y)

    For B < m reports, the server adds the remaining shares; for more than m there is more noise than the accounting
    requires. The d reports that contained NaN or infinity have no noise. The server adds their shares even if there are
    more than m reports, so that the amount of noise does not reveal whose report was dropped.

    Args:
        piece: the `PrivateSum`, with z, C, n (`noise_shares`) and t (`dropouts`).
        weights: w, equal for all reports, ``[B]``; under masks it is 1 over the divisor.
        report: the B reports.
        divisor: the divisor D; w is 1/D in a round without reports.
        release: the number of earlier releases.
        federation: the clients and the seed.
    """
    updates, shares = report.updates, piece.noise_shares - piece.dropouts
    dropped = 0 if report.good is None else int((~report.good).sum())
    # Before the weight, so that sums of multiples of the grid are exact.
    if isinstance(updates, OnlySums):
        scale, step = 1.0 / divisor, 2.0**-piece.secure.fraction_bits
        total = updates.weighted_sum(updates.weights)
    else:
        scale = weights[0] if len(weights) else 1.0 / divisor
        step = share_step(piece.norm, piece.noise_multiplier, shares)
        total = updates.weighted_sum(torch.ones_like(weights, dtype=torch.float64))
    missing = (max(shares - len(report), 0) + dropped) / shares
    if missing:
        words = server_words("noise of the missing", federation, release)
        deviation = piece.noise_multiplier * piece.norm * math.sqrt(missing) / step
        total = total + step * discrete_gaussian(words, federation.num_params, deviation, total.device)
    return scale * total


def check_shares(algorithm: Slots, piece: Any) -> None:
    """Raise an error if clients add noise other than that of the accounting, or if weights would scale it."""
    shares = [guard for guard in algorithm.guard if isinstance(guard, NoiseShare)]
    if shares and piece.noise_shares is None:
        raise ConfigurationError(
            f"NoiseShare: clients add noise, and the server would add all of it again: write "
            f"PrivateSum(noise_shares={shares[0].shares}), or leave NoiseShare out"
        )
    if shares and piece.secure is not None:
        raise ConfigurationError(
            "NoiseShare: clients add their shares of the noise under the masks, after rounding: leave it out"
        )
    if piece.noise_shares is None or piece.secure is not None:
        return
    wanted = NoiseShare(piece.norm, piece.noise_multiplier, piece.noise_shares)
    if shares != [wanted]:
        raise ConfigurationError(
            f"noise_shares: clients add {' and '.join(map(repr, shares)) or 'no noise'}, and epsilon is computed for "
            f"{wanted}: add it to the pieces"
        )
    if not isinstance(first := algorithm.weighting[0], DivideByClients | DivideByParticipants):
        raise ConfigurationError(
            f"noise_shares: {type(first).__name__} multiplies updates by weights after their noise was added, "
            "so the noise no longer suffices for the largest of them: use an algorithm with equal weights"
        )


def shortened(weights: Weights, lengths: torch.Tensor, norm: float) -> Weights:
    """Return the weights, reduced for vectors longer than `norm` so that they have that norm; 0 for an infinite length.

    Args:
        weights: factors of the vectors, ``[B]``.
        lengths: Euclidean norms of the vectors after these factors, ``[B]``.
        norm: maximum norm.
    """
    return torch.where(lengths > norm, weights * (norm / lengths), weights).nan_to_num(0.0, 0.0, 0.0)
