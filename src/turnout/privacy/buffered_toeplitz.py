"""Correlate noise over rounds by a few buffers, whose decay rates are optimized for a run (BLT)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import ClassVar

import numpy as np
import torch

from turnout.core.ranges import Count
from turnout.core.types import State, WithState
from turnout.privacy.correlation import Correlation, Searched
from turnout.privacy.mechanisms import library


@dataclass(frozen=True)
class BufferedToeplitz(Correlation, name="buffered_toeplitz"):
    """Correlate noise over rounds by a few exponentially decaying buffers (BLT).

    The matrix C of the mechanism (see `turnout.privacy.correlation`) is a lower triangular Toeplitz matrix. Its first
    column is ``c_0 = 1`` and, with decay rates theta_j and weights omega_j of d buffers::

        c_i = sum_{j=1}^d omega_j theta_j^(i-1)

    The state has one vector for each buffer, whatever the separation. Rates and weights minimize the error of prefix
    sums for the rounds, separation and participations of a run. They are optimized at the start of a run, in a fraction
    of a second, and stored in its state, so that a resumed run does not repeat the search.

    Args:
        buffers: number of buffers (d), >= 1; according to the paper 4 or 5 are sufficient.

    Raises:
        ConfigurationError: if a number is below 1.

    Example:
        >>> import turnout as to
        >>> piece = to.aggregation.PrivateSum(correlation=BufferedToeplitz(buffers=4), rounds=100, separation=10)
        >>> piece.is_correlated
        True

    Reference: McMahan, Xu and Zhang, "A hassle-free algorithm for strong differential privacy in federated learning
    systems", arXiv 2408.08868, 2024.
    """

    is_searched: ClassVar[bool] = True

    buffers: Count = 4

    def coefficients(self, rounds: int, separation: int, most: int | None, searched: Searched = None) -> np.ndarray:
        """Return 1, followed by the sums over buffers."""
        rates, weights = self.search(rounds, separation, most) if searched is None else searched
        return _column(rates, weights, rounds).numpy()

    def search(self, rounds: int, separation: int, most: int | None) -> torch.Tensor:
        """Return theta and omega, ``[2, d]``."""
        return torch.from_numpy(_best(self.buffers, rounds, separation, most)).clone()

    def init(self, shape: tuple[int, ...], rounds: int, separation: int, most: int | None) -> State:
        """Return zeros for the buffers, ``[d, *shape]``, and for rates and weights, ``[2, d]``."""
        searched = torch.zeros(2, self.buffers, dtype=torch.float64)
        return {"correlated": torch.zeros(self.buffers, *shape, dtype=torch.float64), "searched": searched}

    def next(self, noise: torch.Tensor, state: State, rounds: int, separation: int, most: int | None) -> WithState:
        """Return ``y_t = zeta_t - round(sum_j omega_j s_j)``, and ``s_j <- theta_j s_j + y_t``."""
        buffers, searched = state["correlated"], state["searched"]
        if not searched.any():
            searched = self.search(rounds, separation, most)
        rates, weights = searched.to(buffers)
        correlated = noise - (weights @ buffers).round()
        return correlated, {"correlated": buffers * rates[:, None] + correlated, "searched": searched}


@lru_cache(maxsize=16)
def _best(buffers: int, rounds: int, separation: int, most: int | None) -> np.ndarray:
    """Minimize the error over theta and omega, ``[2, d]``, by L-BFGS over the gaps between rates and roots, with restarts."""
    minimize = library("scipy.optimize").minimize
    slope = partial(_error_and_slope, rounds=rounds, separation=separation, most=most)
    minima = (
        minimize(slope, start, jac=True, method="L-BFGS-B", bounds=[_GAPS] * (2 * buffers), options={"maxiter": 300})
        for start in _starts(buffers, rounds, separation)
    )
    best = min(minima, key=lambda minimum: minimum.fun)
    rates, roots = _interlaced(torch.from_numpy(best.x))
    return torch.stack([rates, _weights(rates, roots)]).numpy()


_GAPS = (-8.0, 12.0)
"""The bounds of the logit of a gap."""


def _starts(buffers: int, rounds: int, separation: int) -> list[np.ndarray]:
    """Return initial logits, ``[2 d]`` each: equal gaps, and rates with time constants up to the separation or the rounds."""
    starts = [np.tile([2.5, 0.5], buffers)]
    starts[0][0] = 4.0
    for longest in (separation, rounds):
        memory = np.geomspace(max(longest, 2), 1.2, 2 * buffers)
        falling = 1.0 - 1.0 / (memory + 0.2)
        share = falling / np.concatenate([[1.0], falling[:-1]])
        starts.append(np.log(share / (1.0 - share)))
    return starts


def _error_and_slope(free: np.ndarray, rounds: int, separation: int, most: int | None) -> tuple[float, np.ndarray]:
    """Return the logarithm of `prefix_sum_error` and its gradient, in 2 d n steps: the inverse of C is a BLT, too."""
    logits = torch.from_numpy(free).requires_grad_()
    rates, roots = _interlaced(logits)
    column = _column(rates, _weights(rates, roots), rounds)
    sums = _column(roots, _weights(roots, rates), rounds).cumsum(0)
    moved = _participations(column, separation, most).square().sum()
    error = 0.5 * (moved.log() + (sums.square() * torch.arange(rounds, 0, -1)).sum().log() - math.log(rounds))
    (slope,) = torch.autograd.grad(error, logits)
    return float(error.detach()), slope.numpy()


def _interlaced(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rates and roots, ``1 > theta_1 > root_1 > theta_2 > ... > 0``, for which C is positive and not increasing."""
    falling = logits.sigmoid().cumprod(0)
    return falling[::2], falling[1::2]


def _weights(rates: torch.Tensor, roots: torch.Tensor) -> torch.Tensor:
    """Return omega of ``prod_j (1 - root_j x) / prod_j (1 - theta_j x)``, ``[d]``, by partial fractions."""
    apart = rates[:, None] - rates + torch.eye(len(rates), dtype=rates.dtype)
    return (rates[:, None] - roots).prod(1) / apart.prod(1)


def _column(rates: torch.Tensor, weights: torch.Tensor, rounds: int) -> torch.Tensor:
    """Return the first column of the Toeplitz matrix with these rates and weights."""
    powers = rates[:, None] ** torch.arange(rounds - 1)
    return torch.cat([torch.ones(1, dtype=rates.dtype), weights @ powers])


def _participations(column: torch.Tensor, separation: int, most: int | None) -> torch.Tensor:
    """Return the sum of the columns of the earliest rounds that are `separation` apart, see `turnout.privacy.sensitivity`."""
    rows = -(-len(column) // separation)
    padded = torch.nn.functional.pad(column, (0, rows * separation - len(column))).view(rows, separation)
    total = padded.cumsum(0)
    if most is not None and most < rows:
        total = total - torch.cat([torch.zeros_like(total[:most]), total[:-most]])
    return total.flatten()[: len(column)]
