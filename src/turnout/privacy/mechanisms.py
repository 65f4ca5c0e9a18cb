"""The epsilon of Gaussian mechanisms, composed and sampled: by the package dp-accounting."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from turnout.core.extras import imported

Accountant = Literal["pld", "rdp"]
_NO_PROTECTION = 200.0  # epsilon
_LEAST = 1e-6  # multiplier of a mechanism, below which floating-point numbers tell no protection from none


def joined(multiplier: float, beside: float) -> float:
    """Return the multiplier of one Gaussian mechanism that costs what a mechanism and further releases cost together."""
    return (multiplier**-2 + beside) ** -0.5 if beside else multiplier


@lru_cache(maxsize=4096)
def concentrated(multiplier: float, delta: float) -> float:
    """Epsilon of a mechanism whose Renyi divergence of every order a is at most ``a / (2 m^2)``, m its multiplier.

    Reference: Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Proposition 12.
    """
    if multiplier < _LEAST:
        return math.inf
    orders = 1.0 + np.geomspace(1e-3, 1e6, 2000)
    bounds = library("dp_accounting.rdp").compute_epsilon(orders, orders / (2.0 * multiplier**2), delta)
    return max(float(bounds[0]), 0.0)


@lru_cache(maxsize=4096)
def gaussian(multiplier: float, delta: float) -> float:
    """Epsilon of one Gaussian mechanism: ``Phi(m/2 - epsilon/m) - e^epsilon Phi(-m/2 - epsilon/m) = delta``, m its inverse.

    Every row of a run has one. It is what dp-accounting's `get_epsilon_gaussian` gives, which takes a millisecond, thirty
    times as long, by the normal distribution that it evaluates.

    Reference: Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, Theorem 8.
    """
    brentq, log_ndtr = library("scipy.optimize").brentq, library("scipy.special").log_ndtr

    if multiplier < _LEAST:
        return math.inf

    def excess(epsilon: float) -> float:
        """The logarithm of the delta of an epsilon, minus that of the one asked for."""
        first, second = (
            log_ndtr(0.5 / multiplier - epsilon * multiplier),
            log_ndtr(-0.5 / multiplier - epsilon * multiplier),
        )
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
    """Orders, and the Renyi divergence of one round of a sample of fixed size; neighbours differ in one client's data.

    The package's event has the multiplier for a sensitivity of C, its Renyi divergence reads it as that for the whole
    sensitivity, which is 2 C where a client is replaced: so half of it is what it is given.
    """
    dp = library("dp_accounting")
    orders = [
        *range(2, 25),
        *range(26, 49, 2),
        56,
        64,
        96,
        128,
        257,
        512,
    ]  # up to 256, one takes the time of its square
    accountant: Any = library("dp_accounting.rdp").RdpAccountant(orders, dp.NeighboringRelation.REPLACE_ONE)
    share = Fraction(rate).limit_denominator(2**62)  # 0 clients of N would be for free
    event = dp.SampledWithoutReplacementDpEvent(share.denominator, share.numerator, dp.GaussianDpEvent(multiplier / 2))
    accountant.compose(event)
    return orders, accountant._rdp.tolist()  # get_epsilon would compose anew for every number of rounds


def of_fixed_size(multiplier: float, rate: float, rounds: int, delta: float, beside: float) -> float:
    """Epsilon of Gaussian mechanisms of samples of fixed size, and of one beside them.

    Neighbours differ in the data of one client.
    """
    orders, once = _replaced(multiplier, rate)
    divergence = [rounds * each + order * beside / 2 for order, each in zip(orders, once, strict=True)]
    return float(library("dp_accounting.rdp").compute_epsilon(orders, divergence, delta)[0])


@lru_cache(maxsize=4096)
def of_poisson(
    multiplier: float, rate: float, rounds: int, delta: float, accountant: Accountant, beside: float
) -> float:
    """Epsilon of Gaussian mechanisms of Poisson samples, and of one beside them; neighbours differ by one client.

    Distributions of losses take memory and time in proportion to epsilon. Where a bound by Renyi's divergence of whole orders
    is so large that it protects nobody, that is the figure, whichever accountant is asked for.
    """
    dp, rdp = library("dp_accounting"), library("dp_accounting.rdp").RdpAccountant

    def composed(of_all: Any) -> float:
        of_all.compose(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(multiplier)), rounds)
        if beside:
            of_all.compose(dp.GaussianDpEvent(beside**-0.5))
        return float(of_all.get_epsilon(delta))

    if accountant == "rdp":
        return composed(rdp())
    if (bound := composed(rdp([*range(2, 33), 64, 128, 256]))) > _NO_PROTECTION:
        return bound
    return composed(library("dp_accounting.pld").PLDAccountant(value_discretization_interval=1e-3))


def library(name: str) -> Any:
    """Import a module of the extra `privacy`.

    Raises:
        ConfigurationError: where it is missing.
    """
    package = {"scipy": "SciPy"}.get(name.split(".")[0], "dp-accounting")
    return imported(name, "counting what differential privacy costs", "turnout[privacy]", package)
