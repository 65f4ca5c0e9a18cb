"""Discrete Gaussian noise: probabilities, and the cost of a sum of shares."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from turnout import privacy
from turnout.privacy.accounting import at_most
from turnout.privacy.discrete import FINEST, discrete_gaussian
from turnout.privacy.mechanisms import concentrated


def chances(number, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).random(number))


def test_probabilities_are_those_of_a_discrete_gaussian():
    drawn = discrete_gaussian(chances(400_000), FINEST)
    assert torch.equal(drawn, drawn.round())
    values = np.arange(-60, 61)
    mass = np.exp(-(values**2) / (2 * FINEST**2))
    some = np.abs(values) <= 13
    counts = np.bincount(drawn.long() + 60, minlength=len(values))
    expected = mass[some] / mass.sum() * len(drawn)
    rest = [counts[~some].sum()], [len(drawn) - expected.sum()]
    assert chisquare([*counts[some], *rest[0]], [*expected, *rest[1]]).pvalue > 1e-3


@pytest.mark.parametrize("deviation", [4.0, 100.3, 2.0**17])
def test_noise_is_symmetric_with_the_requested_deviation(deviation):
    chance = chances(200_000, 1)
    drawn = discrete_gaussian(chance, deviation)
    assert torch.equal(discrete_gaussian(1.0 - chance, deviation), -drawn)
    assert drawn.std().item() == pytest.approx(deviation, rel=0.01)
    ends = discrete_gaussian(torch.tensor([2.0**-54, 0.5, 1.0 - 2.0**-53], dtype=torch.float64), deviation)
    assert 8.0 < -float(ends[0]) / deviation < 8.6
    assert float(ends[1]) == 0
    assert 8.0 < float(ends[2]) / deviation < 8.6


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
    found, exact = (privacy.epsilon(each, 1, 1e-5) for each in (release, privacy.Release(multiplier)))
    assert exact < found < 1.15 * exact + 0.01
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
