"""A private sum under masks: the clipping norm allows for rounding, and clients may add the noise themselves."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.random import fold, stream, uniform
from turnout.core.types import Report
from turnout.core.updates import Updates
from turnout.pieces.aggregation.maskable import check_maskable, round_to_grid
from turnout.pieces.aggregation.private_shares import shortened
from turnout.pieces.aggregation.secure_sum import SecureSum
from turnout.pieces.base import Slots
from turnout.pieces.weighting import DivideByClients, DivideByParticipants
from turnout.privacy.discrete import COARSEST, FINEST, WIDEST, discrete_gaussian
from turnout.protocol.secure.masks import secret_uniform


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
    _check_margin(piece)
    if piece.secure is None:
        return
    if not isinstance(piece.secure, SecureSum):
        raise ConfigurationError(f"secure: got {piece.secure!r}, needed a SecureSum, or None for no masks")
    reasons = {
        "quantile": "how many updates are not clipped is known to their clients alone",
        "sampling_rate": "whether a sum opens depends on how many were drawn, so that one client can decide whether those of "
        "the others are in the model, which sampling does not hide; Poisson without sampling_rate counts every round in full",
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
    if piece.noise_shares is not None:
        _check_grid(piece)


def _check_margin(piece: Any) -> None:
    """Refuse a margin of noise that nobody adds."""
    if piece.dropouts and (piece.secure is None or piece.noise_shares is None):
        raise ConfigurationError(
            f"dropouts: got {piece.dropouts}, a margin of noise that clients add under masks: write noise_shares and secure "
            "too, or leave it out; without masks the server adds the noise of who drops out"
        )


def _check_grid(piece: Any) -> None:
    """Refuse margins that leave too few clients, and noise that is too fine or too wide for the grid."""
    if piece.noise_shares - piece.dropouts < 2:
        raise ConfigurationError(
            f"dropouts: got {piece.dropouts} of noise_shares={piece.noise_shares}, and two clients at least have to stay: "
            f"write dropouts={max(piece.noise_shares - 2, 0)} or less, and noise_shares=2 or more"
        )
    units = share_deviation(piece) * 2.0**piece.secure.fraction_bits
    if not FINEST <= units <= COARSEST:
        bits = piece.secure.fraction_bits + (math.ceil if units < FINEST else math.floor)(
            math.log2((FINEST if units < FINEST else COARSEST) / units)
        )
        raise ConfigurationError(
            f"secure: got fraction_bits={piece.secure.fraction_bits}, on whose grid the noise of one client has a deviation "
            f"of {units:.3g} units, needed {FINEST:g} to {COARSEST:,.0f}: write fraction_bits={bits}"
        )


def share_deviation(piece: Any) -> float:
    """Return the deviation of the noise of one client, ``z C / sqrt(n - t)``."""
    return piece.noise_multiplier * piece.norm / math.sqrt(piece.noise_shares - piece.dropouts)


def with_shares(piece: Any, secure: SecureSum) -> SecureSum:
    """Return a secure sum with room for the noise of its clients, which is not opened where too much of it is missing."""
    largest = max(secure.largest, piece.norm + WIDEST * share_deviation(piece))
    least = max(secure.min_clients, piece.noise_shares - piece.dropouts)
    return replace(secure, largest=largest, min_clients=least)


def shares_under_masks(piece: Any, report: Report, seed: int | None) -> torch.Tensor:
    """Return the noise of clients on the grid, float64 ``[B, P]``: discrete Gaussian of deviation ``z C / sqrt(n - t)``."""
    unit = 2.0**piece.secure.fraction_bits
    return discrete_gaussian(chances(report, seed), share_deviation(piece) * unit) / unit


def chances(report: Report, seed: int | None) -> torch.Tensor:
    """Draw numbers on (0, 1) for the noise of clients, float64 ``[B, P]``.

    Those of a simulation follow from (seed, version, client). A client of a server draws a secret from its operating system,
    expands it as masks are, and forgets it.
    """
    number, device = report.delta.shape[1], report.delta.device
    if seed is None:
        return torch.from_numpy(np.stack([secret_uniform(number) for _ in range(len(report))])).to(device)
    keys = to_device(fold(stream("noise under masks", seed), report.version, report.client), device)
    return uniform(fold(keys[:, None], torch.arange(number, device=device))) + 2.0**-54


def check_secure(algorithm: Slots) -> None:
    """Refuse algorithms that need more than a sum, or whose divisor is unknown when clients clip."""
    check_maskable(algorithm, "PrivateSum with secure")
    if not isinstance(last := algorithm.weighting[-1], DivideByClients | DivideByParticipants):
        raise ConfigurationError(
            f"PrivateSum with secure: {type(last).__name__} divides by what the server knows once the sum is open, and "
            "clients clip before: use DivideByClients or DivideByParticipants"
        )
