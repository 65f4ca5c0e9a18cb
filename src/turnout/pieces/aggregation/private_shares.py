"""Sum updates to which clients added shares of the noise; the server adds the shares of absent clients."""

from __future__ import annotations

import math
from typing import Any

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.types import Federation, Report
from turnout.distributed.sums import OnlySums
from turnout.pieces.base import Slots, Weights
from turnout.pieces.guard.noise_share import NoiseShare
from turnout.pieces.weighting import DivideByClients, DivideByParticipants
from turnout.privacy.noise import gaussian


def completed_sum(
    piece: Any, weights: Weights, report: Report, divisor: int, release: int, federation: Federation
) -> torch.Tensor:
    """Return ``w (sum_b r_b + z C sqrt((max(m - B, 0) + d) / m) y)``, float64 ``[P]``: r_b is clipped and has its share.

    m is how many shares make the noise: n, and n - t under masks. The noise of B < m clients and of the server together has
    the deviation z C; that of more clients has more. The d reports that held NaN or infinity bring no noise, and the server
    adds their shares even if there are more than m reports: how much noise there is must not tell whose report was dropped.

    Args:
        piece: a `PrivateSum`, which has z, C, n and t.
        weights: w, the same for all, ``[B]``; under masks it is 1 over the divisor.
        report, federation: as for `PrivateSum.apply`.
        divisor: 1/w where there is no report.
        release: how many there were.
    """
    updates, shares = report.updates, piece.noise_shares - piece.dropouts
    dropped = 0 if report.good is None else int((~report.good).sum())
    if isinstance(updates, OnlySums):
        scale = 1.0 / divisor
        total = updates.weighted_sum(updates.weights) * scale
    else:
        scale = weights[0] if len(weights) else 1.0 / divisor
        total = updates.weighted_sum(weights)
    missing = (max(shares - len(report), 0) + dropped) / shares
    if missing:
        noise = gaussian("noise of the missing", federation, release, federation.num_params).double()
        total += scale * piece.noise_multiplier * piece.norm * math.sqrt(missing) * noise
    return total


def check_shares(algorithm: Slots, piece: Any) -> None:
    """Refuse clients that add other noise than what is counted, and weights by which shares would not sum to it."""
    shares = [guard for guard in algorithm.guard if isinstance(guard, NoiseShare)]
    if shares and piece.noise_shares is None:
        raise ConfigurationError(
            f"NoiseShare: clients add noise, and the server would add all of it once more: write "
            f"noise_shares={shares[0].shares} to PrivateSum, or leave NoiseShare out"
        )
    if shares and piece.secure is not None:
        raise ConfigurationError(
            "NoiseShare: clients add their shares of the noise under the masks, where they are not rounded: leave it out"
        )
    if piece.noise_shares is None or piece.secure is not None:
        return
    wanted = NoiseShare(piece.norm, piece.noise_multiplier, piece.noise_shares)
    if shares != [wanted]:
        raise ConfigurationError(
            f"noise_shares: clients add {' and '.join(map(repr, shares)) or 'no noise'}, and the sum is counted with that of "
            f"{wanted}: add it to the pieces"
        )
    if not isinstance(first := algorithm.weighting[0], DivideByClients | DivideByParticipants):
        raise ConfigurationError(
            f"noise_shares: {type(first).__name__} multiplies updates by weights after their noise was added, "
            "so that it no longer covers the largest of them: use an algorithm in which clients count alike"
        )


def shortened(weights: Weights, lengths: torch.Tensor, norm: float) -> Weights:
    """Return weights that bring vectors down to `norm`, from those that give them these lengths; 0 for an infinite length."""
    return torch.where(lengths > norm, weights * (norm / lengths), weights).nan_to_num(0.0, 0.0, 0.0)
