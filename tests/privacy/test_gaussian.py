"""Gaussian noise on a grid: exact probabilities, far tails, and the cost of a sum of shares."""

import math
from decimal import Decimal

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, norm

from turnout import privacy
from turnout.core.random import fold, stream
from turnout.privacy import exact, gaussian
from turnout.privacy.accounting import at_most
from turnout.privacy.gaussian import COARSEST, FINEST, discrete_gaussian, rounded_gaussian
from turnout.privacy.mechanisms import concentrated

CPU = torch.device("cpu")


def words(seed=0):
    """Random bits that are a function of position and draw."""
    return lambda positions, draw: fold(stream("test", seed, draw), positions)


def scripted(*first):
    """Random bits of one number: these, as fractions in [0, 1) of 53 digits, and then zeros."""
    given = [round(number * 2**53) << 11 for number in first]
    given = [number - 2**64 if number >= 2**63 else number for number in given]
    return lambda _, draw: torch.tensor([given[draw] if draw < len(given) else 0])


DISTRIBUTIONS = {
    "rounded to the deviation": (lambda n, w: rounded_gaussian(w, n, 0, CPU), 1.0),
    "rounded to a quarter of it": (lambda n, w: rounded_gaussian(w, n, 2, CPU), 4.0),
    "discrete, finest": (lambda n, w: discrete_gaussian(w, n, FINEST, CPU), FINEST),
    "discrete, no whole number": (lambda n, w: discrete_gaussian(w, n, 5.3, CPU), 5.3),
    "discrete, below one": (lambda n, w: discrete_gaussian(w, n, 0.7, CPU), 0.7),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_probabilities_are_those_of_the_distribution(name):
    draw, deviation = DISTRIBUTIONS[name]
    drawn = draw(400_000, words(3))
    assert torch.equal(drawn, drawn.round())
    values = np.arange(-60, 61)
    if name.startswith("rounded"):
        mass = np.diff(norm.cdf(np.arange(-60, 62) - 0.5, scale=deviation))
    else:
        mass = np.exp(-(values**2) / (2 * deviation**2))
    expected = mass / mass.sum() * len(drawn)
    some = expected > 20
    counts = np.bincount(drawn.long() + 60, minlength=len(values))
    rest = counts[~some].sum(), len(drawn) - expected[some].sum()
    assert chisquare([*counts[some], rest[0]], [*expected[some], rest[1]]).pvalue > 1e-3


@pytest.mark.parametrize("deviation", [4.0, 100.3, 2.0**17, COARSEST])
def test_noise_is_symmetric_with_the_requested_deviation(deviation):
    drawn = discrete_gaussian(words(1), 200_000, deviation, CPU)
    assert drawn.std().item() == pytest.approx(deviation, rel=0.01)
    assert abs(drawn.mean().item()) < 0.01 * deviation
    rounded = rounded_gaussian(words(2), 200_000, 40, CPU)
    assert rounded.std().item() == pytest.approx(2.0**40, rel=0.01)
    assert abs((rounded % 2).mean().item() - 0.5) < 0.01  # the last digit is random, too


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_exact_arithmetic_decides_as_float64_does(name, monkeypatch):
    """All comparisons are left to exact arithmetic: the same random bits give the same integers."""
    draw, _ = DISTRIBUTIONS[name]
    plain = draw(300, words(5))
    monkeypatch.setattr(gaussian, "_UNSURE", 2.0)
    assert torch.equal(draw(300, words(5)), plain)


def test_comparisons_that_float64_leaves_open_are_decided_by_further_digits():
    """The first 53 digits equal those of the probability; the further ones decide."""
    digits = math.floor(Decimal("-0.125").exp() * 2**53)
    for further, happens in ((0, True), (2**64 - 1, False)):
        chance = exact.Uniform(digits, 53, lambda further=further: further)
        assert exact.happens(chance, lambda _: exact.Fraction(1, 8)) is happens
    highest = exact.Uniform(2**53 - 1, 53, lambda: 2**64 - 1 - 2**20)  # 1 - 2^-97
    assert exact.level(highest) == 11
    assert exact.level(exact.Uniform(0, 53, lambda: 0)) == 0


def test_no_number_is_too_far_out():
    """Random bits near 1 give numbers that no table of float64 probabilities contains."""
    far = rounded_gaussian(scripted(1.0 - 2.0**-53, 0.5), 1, 10, CPU)
    assert 8 * 2**10 <= abs(far.item()) < 9 * 2**10
    beyond = exact.Uniform(2**53 - 1, 53, iter([2**64 - 1, 2**64 - 1, 0, 0, 0, 0, 0, 0]).__next__)
    assert exact.level(beyond) >= 15  # a probability of 2^-181


def test_draws_depend_on_random_bits_alone():
    one, other = (rounded_gaussian(words(seed), 10_000, 30, CPU) for seed in (1, 2))
    assert torch.equal(one, rounded_gaussian(words(1), 10_000, 30, CPU))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.04
    longer = rounded_gaussian(words(1), 10_001, 30, CPU)
    assert torch.equal(longer[:-1], one)


def test_shares_on_the_finest_grid_cost_as_much_as_gaussian_noise():
    """tau of a billion shares, times sqrt(P) of a trillion parameters, is negligible."""
    shares, num_params = 1e9, 1e12
    tau = 10 * sum(math.exp(-2 * math.pi**2 * FINEST**2 * k / (k + 1)) for k in range(1, 1000))
    tau += 10 * shares * math.exp(-2 * math.pi**2 * FINEST**2 * 0.999)
    assert tau * math.sqrt(num_params) < 1e-55


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 3.0, 20.0])
def test_epsilon_of_discrete_noise_follows_its_renyi_divergence(multiplier):
    """It is slightly above that of Gaussian noise; the optimum over all orders is found."""
    release = privacy.Release(multiplier, is_discrete=True)
    found, exact_one = (privacy.epsilon(each, 1, 1e-5) for each in (release, privacy.Release(multiplier)))
    assert exact_one < found < 1.15 * exact_one + 0.01
    rho, delta = 0.5 / multiplier**2, 1e-5
    orders = 1 + np.geomspace(1e-3, 1e5, 400_000)
    bound = rho * orders + (np.log(1 / delta) - np.log(orders)) / (orders - 1) + np.log1p(-1 / orders)
    assert found == pytest.approx(float(bound.min()), rel=1e-4)
    assert privacy.epsilon(release, 9, 1e-5) == concentrated(multiplier / 3, 1e-5)
    assert at_most(release, 4, 1e-5, lost=((4, 9),)) == concentrated(multiplier / 3, 1e-5)
    needed = privacy.noise_multiplier_for(found, 1e-5, 1, release)
    assert needed == pytest.approx(multiplier, rel=2e-3)
    assert privacy.epsilon(privacy.Release(needed, is_discrete=True), 1, 1e-5) <= found
    assert concentrated(1e-7, 1e-5) == math.inf
