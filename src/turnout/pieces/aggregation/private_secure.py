"""A private sum under masks: clients clip, and what rounding to fixed point adds to a length is taken off the norm before."""

from __future__ import annotations

import math
from typing import Any

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.updates import Updates
from turnout.pieces.aggregation.maskable import check_maskable, round_to_grid
from turnout.pieces.aggregation.private_shares import shortened
from turnout.pieces.aggregation.secure_sum import SecureSum
from turnout.pieces.base import Slots
from turnout.pieces.weighting import DivideByClients, DivideByParticipants


def grid_norm(norm: float, fraction_bits: int, num_params: int) -> float:
    """Return ``C' = C - sqrt(P) 2^(-f-1)``: a vector of this length has a length of at most C once it is rounded.

    Rounding moves each of P numbers by half a unit at most, so that a vector moves by ``sqrt(P) 2^(-f-1)``.

    Raises:
        ConfigurationError: where more than half of the norm would be left for rounding.

    Example:
        >>> grid_norm(1.0, fraction_bits=10, num_params=10_000)
        0.951171875
    """
    moved = math.sqrt(num_params) * 2.0 ** (-fraction_bits - 1)
    if 2 * moved > norm:
        least = math.ceil(math.log2(math.sqrt(num_params) / norm))
        raise ConfigurationError(
            f"norm: got {norm:g}, of which rounding {num_params:,} numbers to {fraction_bits} bits behind the point can use "
            f"up {moved:.3g}, more than half: write fraction_bits={least} or more, and bits that have room for them"
        )
    return norm - moved


def clipped_summand(secure: SecureSum, norm: float, factors: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return ``q(clip(f_b Delta_b, C'))``, float64 ``[B, P]``, each at most C long; NaN stays for the server to drop."""
    lengths = factors.abs() * Updates.of(rows).norms()
    factors = shortened(factors, lengths, grid_norm(norm, secure.fraction_bits, rows.shape[1]))
    return round_to_grid(factors[:, None] * rows.double(), secure.code)


def check_secure_options(piece: Any) -> None:
    """Refuse options of a `PrivateSum` that mean nothing, or are counted wrongly, where updates are masked."""
    if piece.secure is None:
        return
    if not isinstance(piece.secure, SecureSum):
        raise ConfigurationError(f"secure: got {piece.secure!r}, needed a SecureSum, or None for no masks")
    reasons = {
        "quantile": "how many updates are not clipped is known to their clients alone",
        "sampling_rate": "whether a sum opens depends on how many were drawn, so that one client can decide whether those of "
        "the others are in the model, which sampling does not hide; Poisson without sampling_rate counts every round in full",
        "noise_shares": "noise that is added before rounding is rounded with the update",
    }
    for name, why in reasons.items():
        if getattr(piece, name) is not None:
            raise ConfigurationError(f"secure does not go with {name}: {why}: leave one of them out")
    if piece.secure.largest < piece.norm:
        raise ConfigurationError(
            f"secure: got largest={piece.secure.largest:g}, and a number of a clipped update may be as large as "
            f"norm={piece.norm:g}: write a SecureSum with largest={piece.norm:g}"
        )
    if piece.sampled_from is not None and piece.cohort < piece.secure.min_clients:
        raise ConfigurationError(
            f"secure: got min_clients={piece.secure.min_clients}, which a cohort of {piece.cohort} never reaches: write less"
        )


def check_secure(algorithm: Slots) -> None:
    """Refuse algorithms that need more than a sum, or whose divisor is unknown when clients clip."""
    check_maskable(algorithm, "PrivateSum with secure")
    if not isinstance(last := algorithm.weighting[-1], DivideByClients | DivideByParticipants):
        raise ConfigurationError(
            f"PrivateSum with secure: {type(last).__name__} divides by what the server knows once the sum is open, and "
            "clients clip before: use DivideByClients or DivideByParticipants"
        )
