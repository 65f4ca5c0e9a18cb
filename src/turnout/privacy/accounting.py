"""Compute the epsilon of a run, and the noise multiplier for a privacy budget, by the package dp-accounting.

The guarantee is (epsilon, delta)-differential privacy at the level of clients: it covers all released sums of a run,
and therefore all its models. Neighboring federations have the same N clients, but one client has no data in the second
(zero-out adjacency): it participates in the same rounds and contributes nothing, neither to a sum of updates nor to a
count. The sensitivities are the contributions of one client: a vector of norm at most C to a sum of updates, 1/2 or
-1/2 to the count of a quantile, and up to its bound to a divisor. A report with NaN or infinity counts as that of a
client without data. N is public and, without sampling, so is participation.

Without sampling, the noise is that of a matrix mechanism, so that epsilon after t rounds is that of one Gaussian
mechanism whose noise multiplier is divided by the sensitivity of t rounds. If the server draws each client
independently (`Poisson`), each round is a Gaussian mechanism on a Poisson sample. A client that is drawn and has no
data contributes as much as one that is not drawn, so that neighbors may as well differ in the presence of the client.

If the server draws a cohort of fixed size without replacement (`Uniform`), the bound is for neighbors that differ in
the data of one client in any way. An update of norm C may then be replaced by its opposite, so that a sum changes by up
to 2 C and a count by up to 1: rounds are counted with half the multiplier, which is the ratio in dp-accounting's Renyi
divergence of such samples (Wang, Balle and Kasiviswanathan, AISTATS 2019, Theorem 27).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from turnout.privacy.mechanisms import Accountant, concentrated, gaussian, joined, library, of_fixed_size, of_poisson
from turnout.privacy.ranges import DEVIATIONS
from turnout.privacy.sensitivity import most_participations, sensitivity

Sampling = Literal["poisson", "fixed_size"]
_EXACT = 32  # rounds with an epsilon of their own; later ones are rounded up, with 32 values in each octave
Windows = tuple[tuple[int, int], ...]
"""Lost releases, as pairs (number of releases before the first lost one, number up to the last lost one)."""


@dataclass(frozen=True)
class Release:
    """The noised sums of a run, as the accountant needs them.

    Attributes:
        noise_multiplier: z, the standard deviation of the noise divided by the norm to which updates are clipped, >= 0.
        coefficients: first column of the matrix C of a matrix mechanism, one number for each round; None is independent
            noise.
        separation: minimum number of rounds from one participation of a client to the next, >= 1.
        most: maximum number of participations of a client; None is unlimited.
        sampling_rate: probability with which the server draws a client, or the fraction of clients in a cohort; None
            without sampling.
        sampling: ``"poisson"`` draws each client independently, and neighbors differ by one client; ``"fixed_size"``
            draws cohorts of fixed size without replacement, and neighbors differ in the data of one client.
        is_discrete: True for sums of the discrete Gaussian noise of clients, whose Renyi divergence is bounded by that of
            Gaussian noise (Kairouz, Liu and Steinke, ICML 2021, Proposition 14).
    """

    noise_multiplier: float
    coefficients: tuple[float, ...] | None = None
    separation: int = 1
    most: int | None = None
    sampling_rate: float | None = None
    sampling: Sampling = "poisson"
    is_discrete: bool = False


def epsilon(release: Release, rounds: int, delta: float, accountant: Accountant = "pld", beside: float = 0.0) -> float:
    """Return the epsilon of a number of rounds at a delta; infinite without noise, 0 without rounds.

    Args:
        release: the noised sums.
        rounds: number of rounds, >= 0.
        delta: delta of the guarantee, in (0, 1).
        accountant: for Poisson sampling, privacy loss distributions (``"pld"``, tighter) or Renyi divergence
            (``"rdp"``). Samples of fixed size use Renyi divergence. Without sampling, epsilon is exact, that of one
            Gaussian mechanism.
        beside: sum of ``1 / z^2`` over further unsampled releases with independent noise multipliers z, in each of
            which a client participates once: noised answers to evaluations and queries.

    Example:
        >>> round(epsilon(Release(noise_multiplier=10.0), rounds=100, delta=1e-5), 3)
        4.377
        >>> round(epsilon(Release(noise_multiplier=10.0), rounds=96, delta=1e-5, beside=4 / 10.0**2), 3)
        4.377
    """
    if not rounds and not beside:
        return 0.0
    if rounds and release.noise_multiplier <= 0:
        return math.inf
    if release.sampling_rate is not None:
        return _of_samples(release, rounds, delta, accountant, beside)
    multiplier = release.noise_multiplier / _length(release, rounds) if rounds else math.inf
    return _of_one(release, joined(multiplier, beside), delta)


def at_most(
    release: Release,
    rounds: int,
    delta: float,
    total: int | None = None,
    lost: Windows = (),
    beside: float = 0.0,
) -> float:
    """Return an upper bound of the epsilon of a number of rounds, for the table of rounds.

    Composing sampled rounds takes a twentieth of a second for each number of rounds. Large numbers are therefore rounded up.

    Args:
        release: the noised sums.
        rounds: the number of rounds.
        delta: the delta.
        total: the number of rounds of the whole run, whose epsilon bounds that of earlier rounds; None if unknown.
        lost: lost releases, whose values the run does not know.
        beside: see `epsilon`.
    """
    if release.sampling_rate is not None:
        # Releases are independent, so lost ones count as further rounds.
        more = sum(last - first for first, last in lost)
        return _bound_of_samples(release, rounds + more, delta, None if total is None else total + more, beside)
    if not lost:
        return epsilon(release, rounds, delta, beside=beside)
    if release.noise_multiplier <= 0:
        return math.inf
    moved = _length(release, rounds) ** 2 + sum(_moved_by_lost(release, *window) for window in lost)
    if not moved and not beside:
        return 0.0
    multiplier = release.noise_multiplier / math.sqrt(moved) if moved else math.inf
    return _of_one(release, joined(multiplier, beside), delta)


def _bound_of_samples(release: Release, rounds: int, delta: float, total: int | None, beside: float) -> float:
    """Return `at_most` for sampled rounds."""
    if rounds <= _EXACT:
        return epsilon(release, rounds, delta, beside=beside)
    step = 2 ** (rounds.bit_length() - 6)
    bound = epsilon(release, -(-rounds // step) * step, delta, beside=beside)
    if total is None or rounds > total:
        return bound
    return min(bound, epsilon(release, total, delta, beside=beside))


def noise_multiplier_for(budget: float, delta: float, rounds: int, release: Release, beside: float = 0.0) -> float:
    """Return the least noise multiplier for which a number of rounds stays within a budget; infinite if there is none.

    Args:
        budget: maximum epsilon, > 0.
        delta: delta of the guarantee, in (0, 1).
        rounds: number of rounds.
        release: the noised sums; its noise multiplier is ignored.
        beside: see `epsilon`.

    Example:
        >>> round(noise_multiplier_for(8.0, 1e-6, 500, Release(0.0)), 2)
        14.6
    """
    if beside and epsilon(replace(release, noise_multiplier=DEVIATIONS[1]), 0, delta, beside=beside) >= budget:
        return math.inf
    if release.sampling_rate is None and not release.is_discrete and not beside:
        return float(library("dp_accounting").get_sigma_gaussian(budget, delta)) * _length(release, rounds)

    def exceeds(multiplier: float) -> bool:
        return epsilon(replace(release, noise_multiplier=multiplier), rounds, delta, beside=beside) > budget

    low, high = 1e-2, 2.0
    while exceeds(high):
        low, high = high, 2 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high


def rounds_within(release: Release, budget: float, delta: float, most: int, beside: float = 0.0) -> int:
    """Return the maximum number of rounds, up to `most`, that stays within a budget.

    Args:
        release: the noised sums.
        budget: maximum epsilon, > 0.
        delta: delta of the guarantee, in (0, 1).
        most: upper limit of the result.
        beside: see `epsilon`.
    """
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if epsilon(release, middle, delta, beside=beside) <= budget else (low, middle - 1)
    return low


@lru_cache(maxsize=4096)
def _length(release: Release, rounds: int) -> float:
    """Return the sensitivity of the first releases to one client with updates of norm 1."""
    if release.coefficients is None:
        return math.sqrt(most_participations(rounds, release.separation, release.most))
    column = np.array(release.coefficients[:rounds])
    return sensitivity(column, release.separation, release.most)


def _moved_by_lost(release: Release, first: int, last: int) -> float:
    """Return a bound of the squared distance by which one client with updates of norm 1 changes lost releases.

    A run was restored after `first` releases, while another one with the same beginning had made `last`. With the noise of
    both, ``C g`` has the rows of the present run and the rows from `first` to `last` of the other, so that squared distances
    add up. A row of C contributes at most the sum of coefficients that are `separation` apart, whatever the client's rounds.
    """
    number = max(last - first, 0)
    if release.coefficients is None or not number:
        return float(most_participations(number, release.separation, release.most))
    apart = release.coefficients[: last : release.separation][: release.most]
    return min(_length(release, last) ** 2, number * sum(apart) ** 2)


def _of_one(release: Release, multiplier: float, delta: float) -> float:
    """Return the epsilon of all rounds as one mechanism, with Gaussian or with discrete noise."""
    return (concentrated if release.is_discrete else gaussian)(multiplier, delta)


def _of_samples(release: Release, rounds: int, delta: float, accountant: Accountant, beside: float) -> float:
    """Return the epsilon of sampled rounds, and of releases beside them."""
    multiplier, rate = release.noise_multiplier, release.sampling_rate
    assert rate is not None
    # The change of a sum between neighbors, in norms of an update.
    ratio = 1.0 if release.sampling == "poisson" else 2.0
    beside *= ratio**2
    unsampled = multiplier / ratio / math.sqrt(rounds) if rounds else math.inf
    plain = gaussian(joined(unsampled, beside), delta)  # a bound for the same neighbors
    if multiplier < 0.05 or not rounds:  # for less noise, privacy loss distributions do not fit into memory
        return plain
    if release.sampling == "poisson":
        return min(of_poisson(multiplier, rate, rounds, delta, accountant, beside), plain)
    return min(of_fixed_size(multiplier, rate, rounds, delta, beside), plain)
