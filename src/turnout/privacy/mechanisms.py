"""Compute the epsilon of composed and sampled Gaussian mechanisms, by the package dp-accounting."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from turnout.core.extras import imported

Accountant = Literal["pld", "rdp"]
_NO_PROTECTION = 200.0  # an epsilon above which the guarantee is meaningless
_LEAST = 1e-6  # multiplier below which epsilon is infinite in floating point


def joined(multiplier: float, beside: float) -> float:
    """Return the multiplier of one Gaussian mechanism with the cost of a mechanism and further releases together."""
    return (multiplier**-2 + beside) ** -0.5 if beside else multiplier


@lru_cache(maxsize=4096)
def concentrated(multiplier: float, delta: float) -> float:
    """Return the epsilon of a mechanism with Renyi divergence at most ``a / (2 m^2)`` for every order a, m its multiplier.

    Reference: Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Proposition 12.
    """
    if multiplier < _LEAST:
        return math.inf
    orders = 1.0 + np.geomspace(1e-3, 1e6, 2000)
    bounds = library("dp_accounting.rdp").compute_epsilon(orders, orders / (2.0 * multiplier**2), delta)
    return max(float(bounds[0]), 0.0)


@lru_cache(maxsize=4096)
def gaussian(multiplier: float, delta: float) -> float:
    """Return the epsilon of a Gaussian mechanism.

    It is the solution of ``Phi(m/2 - epsilon/m) - e^epsilon Phi(-m/2 - epsilon/m) = delta``, m the inverse of the multiplier.
    The result is that of dp-accounting's `get_epsilon_gaussian`, in a thirtieth of its
    time, because every row of a run needs it.

    Reference: Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, Theorem 8.
    """
    brentq, log_ndtr = library("scipy.optimize").brentq, library("scipy.special").log_ndtr

    if multiplier < _LEAST:
        return math.inf

    def excess(epsilon: float) -> float:
        """Return the logarithm of the delta at an epsilon minus that of the target."""
        first = log_ndtr(0.5 / multiplier - epsilon * multiplier)
        second = log_ndtr(-0.5 / multiplier - epsilon * multiplier)
        share = -math.expm1(epsilon + second - first)
        return first + math.log(share) - math.log(delta) if share > 0 else -math.inf

    if excess(0.0) < 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
    return float(brentq(excess, 0.0, high, xtol=1e-12))


@lru_cache(maxsize=64)
def _replaced(multiplier: float, rate: float) -> tuple[list[int], list[float]]:
    """Return orders, and the Renyi divergence of one round on a sample of fixed size; neighbors differ in one client's data.

    The package interprets the multiplier relative to the whole sensitivity, which is 2 C if a client is replaced. It
    therefore gets half of the multiplier.
    """
    dp = library("dp_accounting")
    orders = [*range(2, 25), *range(26, 49, 2), 56, 64, 96, 128, 257, 512]  # time is quadratic in orders up to 256
    accountant: Any = library("dp_accounting.rdp").RdpAccountant(orders, dp.NeighboringRelation.REPLACE_ONE)
    share = Fraction(rate).limit_denominator(2**62)  # 0 clients of N would be for free
    event = dp.SampledWithoutReplacementDpEvent(share.denominator, share.numerator, dp.GaussianDpEvent(multiplier / 2))
    accountant.compose(event)
    return orders, accountant._rdp.tolist()  # get_epsilon would repeat the composition for every number of rounds


def of_fixed_size(multiplier: float, rate: float, rounds: int, delta: float, beside: float) -> float:
    """Return the epsilon of Gaussian mechanisms on samples of fixed size, and of one beside them.

    Neighbors differ in the data of one client.
    """
    orders, once = _replaced(multiplier, rate)
    divergence = [rounds * one + order * beside / 2 for order, one in zip(orders, once, strict=True)]
    return float(library("dp_accounting.rdp").compute_epsilon(orders, divergence, delta)[0])


@lru_cache(maxsize=4096)
def of_poisson(
    multiplier: float, rate: float, rounds: int, delta: float, accountant: Accountant, beside: float
) -> float:
    """Return the epsilon of Gaussian mechanisms on Poisson samples, and of one beside them.

    Neighbors differ by one client. Memory and time of privacy loss distributions are proportional to epsilon. If a bound by
    Renyi divergence of integer orders exceeds `_NO_PROTECTION`, that bound is returned, whatever the accountant.
    """
    dp, rdp = library("dp_accounting"), library("dp_accounting.rdp").RdpAccountant

    def composed(accounting: Any) -> float:
        accounting.compose(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(multiplier)), rounds)
        if beside:
            accounting.compose(dp.GaussianDpEvent(beside**-0.5))
        return float(accounting.get_epsilon(delta))

    if accountant == "rdp":
        return composed(rdp())
    if (bound := composed(rdp([*range(2, 33), 64, 128, 256]))) > _NO_PROTECTION:
        return bound
    return composed(library("dp_accounting.pld").PLDAccountant(value_discretization_interval=1e-3))


def library(name: str) -> Any:
    """Import a module of the extra `privacy`.

    Raises:
        ConfigurationError: if it is missing.
    """
    package = {"scipy": "SciPy"}.get(name.split(".")[0], "dp-accounting")
    return imported(name, "counting what differential privacy costs", ".[privacy]", package)
