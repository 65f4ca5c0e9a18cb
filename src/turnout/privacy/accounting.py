"""The epsilon that a run has spent, and the noise that keeps it within a budget: by the package dp-accounting.

Neighbours are two federations of N clients of which one client has no data in the second (zero-out): it takes part in the
same rounds and adds nothing, neither to a sum of updates nor to a count. A client with an update adds a vector of length
C at most to a sum of updates, 1/2 or -1/2 to the count of a quantile, and up to its bound to a divisor, and so has these
sensitivities. A report that holds NaN or infinity is that of a client without data. N is public, and without sampling who
takes part when is public, too.

Without sampling, what is spent after t rounds is that of one Gaussian mechanism, since the noise is that of a matrix
mechanism: its multiplier over the sensitivity of t rounds. Where the server draws each client by a coin (`Poisson`), each
round is a Gaussian mechanism of a Poisson sample. As a client that was drawn and has no data adds as much as one that was
not drawn, neighbours may as well differ in whether the client is there at all.

Where the server draws a cohort of fixed size without replacement (`Uniform`), the bound is one for neighbours that differ
in the data of one client, whatever these are, none among them. In the place of an update of length C there may then be
its opposite, so that a sum moves by up to 2 C and a count by up to 1: rounds are counted with half the multiplier, for
which dp-accounting's Renyi divergence of such samples (Wang, Balle and Kasiviswanathan, AISTATS 2019, Theorem 27) takes
that ratio.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from turnout.core.checks import refuse
from turnout.privacy.mechanisms import Accountant, concentrated, gaussian, joined, library, of_fixed_size, of_poisson
from turnout.privacy.sensitivity import most_participations, sensitivity

Sampling = Literal["poisson", "fixed_size"]
_EXACT = 32  # rounds up to which each has its own figure; from there on 32 in each doubling
_LEAST, _MOST = 1e-3, 1e6  # noise multipliers; a round with less noise spends more than 500,000
Windows = tuple[tuple[int, int], ...]
"""Releases that were made and lost: each is (how many came before the first of them, how many with the last)."""


def check_deviation(name: str, value: float, *, zero: bool = False) -> None:
    """Refuse a deviation of noise that hides nothing, or that no floating-point number can hold.

    Args:
        name: of the option.
        value: what was given.
        zero: whether 0, which is no noise, is allowed.

    Raises:
        ConfigurationError: for a number out of range.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (_LEAST <= value <= _MOST or (zero and value == 0)):
        needed = f"{'0 for no noise, or ' * zero}a number from {_LEAST:g} to {_MOST:,.0f}"
        raise refuse(name, given=value, needed=needed, instead="Useful values are about 0.3 to 30")


@dataclass(frozen=True)
class Release:
    """Describe to the accountant how a run releases its sums.

    Attributes:
        noise_multiplier: standard deviation of the noise over the length that updates are clipped to (z).
        coefficients: first column of the matrix mechanism's C, one for each round; None is independent noise.
        separation: least number of rounds from one participation of a client to its next.
        most: participations of a client at most.
        sampling_rate: of the coin by which the server draws clients, or the share of all of them that it draws; None where
            it does not.
        sampling: ``"poisson"``, a coin for each, whose neighbours differ by one client; or ``"fixed_size"``, equally many
            in each round without replacement, whose neighbours differ in the data of one.
        is_discrete: whether the noise is a sum of discrete Gaussians, of which the Renyi divergence is bounded by that of
            Gaussian noise, and no more is known.
    """

    noise_multiplier: float
    coefficients: tuple[float, ...] | None = None
    separation: int = 1
    most: int | None = None
    sampling_rate: float | None = None
    sampling: Sampling = "poisson"
    is_discrete: bool = False


def epsilon(release: Release, rounds: int, delta: float, accountant: Accountant = "pld", beside: float = 0.0) -> float:
    """Return the epsilon of so many rounds for a delta; infinite without noise, 0 without rounds.

    Args:
        release: how sums are released.
        rounds: how many.
        delta: the probability with which epsilon may fail.
        accountant: of rounds sampled by coins, privacy loss distributions (tighter) or Renyi's divergence, which samples of
            fixed size always have. Without sampling both give way to the exact figure of one Gaussian mechanism.
        beside: the sum of ``1 / z^2`` over further releases with independent noise of their own multipliers z, in each of
            which a client takes part once, unsampled: noised answers to evaluations and queries.

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
        return _of_samples(release, release.noise_multiplier, rounds, delta, accountant, beside)
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
    """Return an epsilon that so many rounds do not exceed, for the table of rounds: that of a few more rounds.

    Sampled rounds are composed anew for each figure, which takes a twentieth of a second, so not every round has its own.

    Args:
        release: how sums are released.
        rounds: how many.
        delta: the probability with which epsilon may fail.
        total: rounds of the whole run, whose epsilon no earlier round exceeds; None where that is not known.
        lost: further releases, of which the present run does not know what they said.
        beside: see `epsilon`.
    """
    if release.sampling_rate is not None:
        more = sum(last - first for first, last in lost)  # independent releases, whichever run they belong to
        if rounds + more <= _EXACT:
            return epsilon(release, rounds + more, delta, beside=beside)
        step = 2 ** ((rounds + more).bit_length() - 6)
        above = epsilon(release, -(-(rounds + more) // step) * step, delta, beside=beside)
        if total is None or rounds > total:
            return above
        return min(above, epsilon(release, total + more, delta, beside=beside))
    if not lost:
        return epsilon(release, rounds, delta, beside=beside)
    if release.noise_multiplier <= 0:
        return math.inf
    moved = _length(release, rounds) ** 2 + sum(_moved_by_lost(release, *window) for window in lost)
    if not moved and not beside:
        return 0.0
    multiplier = release.noise_multiplier / math.sqrt(moved) if moved else math.inf
    return _of_one(release, joined(multiplier, beside), delta)


def noise_multiplier_for(budget: float, delta: float, rounds: int, release: Release, beside: float = 0.0) -> float:
    """Return the least noise multiplier whose `rounds` rounds stay within an epsilon; infinite where there is none.

    Args:
        budget: the epsilon.
        delta: see `epsilon`.
        rounds: of the run.
        release: how sums are released; its own noise multiplier is not read.
        beside: see `epsilon`.

    Example:
        >>> round(noise_multiplier_for(8.0, 1e-6, 500, Release(0.0)), 2)
        14.6
    """
    if beside and epsilon(replace(release, noise_multiplier=_MOST), 0, delta, beside=beside) >= budget:
        return math.inf
    if release.sampling_rate is None and not release.is_discrete and not beside:
        return float(library("dp_accounting").get_sigma_gaussian(budget, delta)) * _length(release, rounds)
    low, high = 1e-2, 2.0
    while epsilon(replace(release, noise_multiplier=high), rounds, delta, beside=beside) > budget:
        low, high = high, 2 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        spent = epsilon(replace(release, noise_multiplier=middle), rounds, delta, beside=beside)
        low, high = (low, middle) if spent <= budget else (middle, high)
    return high


def rounds_within(release: Release, budget: float, delta: float, most: int, beside: float = 0.0) -> int:
    """Return how many rounds stay within an epsilon, at most `most`; see `epsilon` for `beside`."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if epsilon(release, middle, delta, beside=beside) <= budget else (low, middle - 1)
    return low


@lru_cache(maxsize=4096)
def _length(release: Release, rounds: int) -> float:
    """Return the sensitivity of the first `rounds` releases to one client with updates of length 1."""
    if release.coefficients is None:
        return math.sqrt(most_participations(rounds, release.separation, release.most))
    column = np.array(release.coefficients[:rounds])
    return sensitivity(column, release.separation, release.most)


def _moved_by_lost(release: Release, first: int, last: int) -> float:
    """Return a bound of the squared distance by which one client with updates of length 1 moves lost releases.

    A run was restored after `first` releases, and another one, which began with the same ones, had made `last`. With the
    noise of both, ``C g`` has the rows of the present run and the rows from `first` to `last` of the other, so that squared
    distances add up. A row of C adds at most the coefficients that are `separation` apart, whatever the client's rounds.
    """
    number = max(last - first, 0)
    if release.coefficients is None or not number:
        return float(most_participations(number, release.separation, release.most))
    apart = release.coefficients[: last : release.separation][: release.most]
    return min(_length(release, last) ** 2, number * sum(apart) ** 2)


def _of_one(release: Release, multiplier: float, delta: float) -> float:
    """Return the epsilon of all rounds as one mechanism, with Gaussian or with discrete noise."""
    return (concentrated if release.is_discrete else gaussian)(multiplier, delta)


def _of_samples(
    release: Release, multiplier: float, rounds: int, delta: float, accountant: Accountant, beside: float
) -> float:
    """Epsilon of sampled rounds with this multiplier in the place of the release's own, and of releases beside them."""
    assert release.sampling_rate is not None
    ratio = 1.0 if release.sampling == "poisson" else 2.0  # in lengths of an update, by which neighbours move a sum
    beside *= ratio**2
    unsampled = multiplier / ratio / math.sqrt(rounds) if rounds else math.inf
    plain = gaussian(joined(unsampled, beside), delta)  # a bound for the same neighbours
    if multiplier < 0.05 or not rounds:  # of so little noise, the distributions of the loss do not fit into memory
        return plain
    if release.sampling == "poisson":
        return min(of_poisson(multiplier, release.sampling_rate, rounds, delta, accountant, beside), plain)
    return min(of_fixed_size(multiplier, release.sampling_rate, rounds, delta, beside), plain)
