"""Add shares of the noise of a private sum at clients, and clip and add noise under secure aggregation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from turnout.base import Slots, Weights
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.random import fold, stream
from turnout.core.types import Federation, Report
from turnout.core.updates import Updates
from turnout.distributed.sums import OnlySums
from turnout.pieces.aggregation.secure_sum import SecureSum, check_maskable, round_to_grid
from turnout.pieces.guard.clip import NoiseShare, share_step
from turnout.pieces.weighting import DivideByClients, DivideByParticipants
from turnout.privacy.gaussian import COARSEST, FINEST, WIDEST, discrete_gaussian
from turnout.privacy.noise import client_words, server_words
from turnout.protocol.secure.masks import secret_words


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


def grid_norm(norm: float, fraction_bits: int, num_params: int) -> float:
    """Return the norm to which clients clip, so that vectors have at most the norm C after they are rounded to fixed point.

    It is ``C' = C - sqrt(P) 2^(-f-1)``. Rounding to f bits behind the binary point changes each of P numbers by at most
    half a unit of ``2^-f``, and so the norm by at most ``sqrt(P) 2^(-f-1)``.

    Args:
        norm: C, the norm for which the noise is calibrated.
        fraction_bits: f.
        num_params: P.

    Raises:
        ConfigurationError: if rounding uses up more than half of the norm.

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
    """Return the weighted updates, clipped and rounded to fixed point, float64 ``[B, P]``.

    They are ``q(clip(f_b Delta_b, C'))``, of norm at most C. NaN remains, so that the server drops the report.

    Args:
        secure: the secure sum, which has the rounding q.
        norm: C.
        factors: f_b, the products of the weighting chain's factors, ``[B]``.
        rows: the updates Delta_b, ``[B, P]``.
    """
    lengths = factors.abs() * Updates.of(rows).norms()
    factors = shortened(factors, lengths, grid_norm(norm, secure.fraction_bits, rows.shape[1]))
    return round_to_grid(factors[:, None] * rows.double(), secure.code)


def check_secure_options(piece: Any) -> None:
    """Raise an error for options of a `PrivateSum` that exclude masked updates, or break the accounting under masks."""
    _check_margin(piece)
    if piece.secure is None:
        return
    if not isinstance(piece.secure, SecureSum):
        raise ConfigurationError(f"secure: got {piece.secure!r}, needed a SecureSum, or None for no masks")
    reasons = {
        "quantile": "only clients know whether their updates were clipped",
        "sampling_rate": "whether a sum is opened depends on the number of sampled clients, so one client can decide whether "
        "those of others are in the model, which sampling does not hide; Poisson without sampling_rate counts every round "
        "in full",
    }
    for name, why in reasons.items():
        if getattr(piece, name) is not None:
            raise ConfigurationError(f"secure does not go with {name}: {why}: leave one of them out")
    if piece.secure.largest < piece.norm:
        raise ConfigurationError(
            f"secure: got largest={piece.secure.largest:g}, and an element of a clipped update may be as large as "
            f"norm={piece.norm:g}: write a SecureSum with largest={piece.norm:g}"
        )
    if piece.sampled_from is not None and piece.cohort < piece.secure.min_clients:
        raise ConfigurationError(
            f"secure: got min_clients={piece.secure.min_clients}, which a cohort of {piece.cohort} never reaches: write less"
        )
    if piece.noise_shares is not None:
        _check_grid(piece)


def _check_margin(piece: Any) -> None:
    """Raise an error if `dropouts` is given without noise that clients add under masks."""
    if piece.dropouts and (piece.secure is None or piece.noise_shares is None):
        raise ConfigurationError(
            f"dropouts: got {piece.dropouts}, a margin of noise that clients add under masks: write noise_shares and secure "
            "too, or leave it out; without masks the server adds the noise of clients that drop out"
        )


def _check_grid(piece: Any) -> None:
    """Raise an error if `dropouts` leaves fewer than two clients, or the noise of a client does not suit the grid."""
    if piece.noise_shares - piece.dropouts < 2:
        raise ConfigurationError(
            f"dropouts: got {piece.dropouts} of noise_shares={piece.noise_shares}, and at least two clients have to remain: "
            f"write dropouts={max(piece.noise_shares - 2, 0)} or less, and noise_shares=2 or more"
        )
    units = share_deviation(piece) * 2.0**piece.secure.fraction_bits
    if not FINEST <= units <= COARSEST:
        bound, whole = (FINEST, math.ceil) if units < FINEST else (COARSEST, math.floor)
        bits = piece.secure.fraction_bits + whole(math.log2(bound / units))
        raise ConfigurationError(
            f"secure: got fraction_bits={piece.secure.fraction_bits}, on whose grid the noise of one client has a deviation "
            f"of {units:.3g} units, needed {FINEST:g} to {COARSEST:,.0f}: write fraction_bits={bits}"
        )


def share_deviation(piece: Any) -> float:
    """Return the standard deviation of the noise of one client, ``z C / sqrt(n - t)``."""
    return piece.noise_multiplier * piece.norm / math.sqrt(piece.noise_shares - piece.dropouts)


def with_shares(piece: Any, secure: SecureSum) -> SecureSum:
    """Return a secure sum with room for the clients' noise, which is opened only if at least n - t clients are in it."""
    largest = max(secure.largest, piece.norm + WIDEST * share_deviation(piece))
    least = max(secure.min_clients, piece.noise_shares - piece.dropouts)
    return replace(secure, largest=largest, min_clients=least)


def with_noise_under_masks(piece: Any, values: torch.Tensor, report: Report, seed: int | None) -> torch.Tensor:
    """Return numbers on the grid with the clients' discrete Gaussian noise of deviation ``z C / sqrt(n - t)``, ``[B, P]``.

    Sums beyond the largest number that fits under the masks are replaced by that number.

    Args:
        piece: the `PrivateSum`.
        values: the numbers of each client, multiples of ``2^-fraction_bits``, float64 ``[B, P]``.
        report: the reports.
        seed: seed of the noise in a simulation, where it is a function of (seed, version, client). A client of a server
            (None) draws secrets from its operating system, expands them in the same way as masks, and does not store them.
    """
    unit, number, device = 2.0**piece.secure.fraction_bits, values.shape[1], values.device
    words = secret_words
    if seed is not None:
        words = client_words(
            to_device(fold(stream("noise under masks", seed), report.version, report.client), device), number
        )
    noise = discrete_gaussian(words, values.numel(), share_deviation(piece) * unit, device).view_as(values) / unit
    most = math.floor(piece.secure_sum.largest * unit) / unit
    return (values + noise).clamp(-most, most)


def check_secure(algorithm: Slots) -> None:
    """Raise an error if an algorithm reads more than a sum, or if its divisor is unknown when clients clip."""
    check_maskable(algorithm, "PrivateSum with secure")
    if not isinstance(last := algorithm.weighting[-1], DivideByClients | DivideByParticipants):
        raise ConfigurationError(
            f"PrivateSum with secure: {type(last).__name__} divides by a number that the server knows only after the sum is "
            "opened, and clients clip before: use DivideByClients or DivideByParticipants"
        )
