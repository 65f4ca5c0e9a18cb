"""What is spent, against the package that counts it, and the noise that a budget needs."""

import math
import sys
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy.stats import norm

from turnout.core.checks import ConfigurationError
from turnout.privacy import Release, epsilon, noise_multiplier_for, rounds_within
from turnout.privacy.accounting import at_most


def test_rounds_without_sampling_cost_what_one_gaussian_mechanism_costs():
    accountant = RdpAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(4.0), 25)
    exact = epsilon(Release(4.0), 25, 1e-5)
    assert exact == pytest.approx(dp_accounting.get_epsilon_gaussian(4.0 / 5.0, 1e-5))
    assert exact < accountant.get_epsilon(1e-5) < 1.2 * exact


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_the_epsilon_of_one_gaussian_mechanism_is_that_of_the_package(delta):
    for multiplier in (0.01, 0.3, 1.0, 20.0, 1e3):
        found = epsilon(Release(multiplier), 1, delta)
        assert found == pytest.approx(dp_accounting.get_epsilon_gaussian(multiplier, delta), rel=1e-9, abs=1e-12)
    assert epsilon(Release(1e20), 1, delta) == 0.0


def test_clients_who_rest_spend_only_when_they_take_part():
    assert epsilon(Release(4.0, separation=5), 25, 1e-5) == epsilon(Release(4.0), 5, 1e-5)
    assert epsilon(Release(4.0, most=3), 25, 1e-5) == epsilon(Release(4.0), 3, 1e-5)


def test_sampling_by_the_server_hides_clients():
    sampled, plain = Release(1.0, sampling_rate=0.01), Release(1.0)
    assert epsilon(sampled, 100, 1e-6) == pytest.approx(0.94, abs=0.02)
    assert epsilon(sampled, 100, 1e-6) < epsilon(sampled, 100, 1e-6, "rdp") < epsilon(plain, 100, 1e-6) / 10


def test_samples_of_fixed_size_are_counted_for_clients_that_are_replaced():
    """With all clients drawn it is the Gaussian mechanism, whose sum a client moves by 2 C in the place of C."""
    drawn = Release(4.0, sampling_rate=0.01, sampling="fixed_size")
    everyone = Release(4.0, sampling_rate=1.0, sampling="fixed_size")
    exact = dp_accounting.get_epsilon_gaussian(2.0 / 10.0, 1e-5)
    assert epsilon(everyone, 100, 1e-5) == pytest.approx(exact)
    coins = Release(4.0, sampling_rate=0.01)
    assert epsilon(coins, 100, 1e-5) < epsilon(drawn, 100, 1e-5) < exact / 20
    assert (
        1.99 < epsilon(replace(drawn, noise_multiplier=noise_multiplier_for(2.0, 1e-5, 100, drawn)), 100, 1e-5) <= 2.0
    )


def test_two_clients_of_whom_one_is_drawn_lose_what_integration_says():
    """One round, m = 1 of N = 2: the mixtures at +1 and -1 or 0 and 0 apart from the other client, in one dimension."""
    x = np.linspace(-12, 12, 40001)
    z, other = 2.0, 1.0

    def density(own):
        return (norm.pdf(x, own, z) + norm.pdf(x, other, z)) / 2

    found = epsilon(Release(z, sampling_rate=0.5, sampling="fixed_size"), 1, 1e-3)
    for own, instead in ((1.0, -1.0), (-1.0, 1.0), (1.0, 0.0), (-1.0, 0.0)):
        p, q = density(own), density(instead)
        assert np.trapezoid(np.maximum(p - np.exp(found) * q, 0), x) <= 1e-3


@pytest.mark.parametrize(
    "release",
    [Release(0.0), Release(0.0, separation=10), Release(0.0, sampling_rate=0.02, sampling="fixed_size")],
    ids=["independent", "rests", "fixed size"],
)
def test_the_noise_that_a_budget_needs_spends_it(release):
    multiplier = noise_multiplier_for(2.0, 1e-6, 60, release)
    spent = replace(release, noise_multiplier=multiplier)
    assert 1.99 < epsilon(spent, 60, 1e-6) <= 2.0 + 1e-9
    assert 55 <= rounds_within(spent, 2.0 + 1e-9, 1e-6, 100) <= 70


def test_a_row_of_the_table_never_tells_too_little():
    release = Release(1.0, sampling_rate=0.05)
    exact = [epsilon(release, rounds, 1e-6) for rounds in (75, 76)]
    assert exact[0] < at_most(release, 75, 1e-6) == exact[1]


def test_nothing_done_costs_nothing_and_no_noise_costs_all():
    assert epsilon(Release(1.0), 0, 1e-5) == 0.0
    assert epsilon(Release(0.0), 1, 1e-5) == math.inf


def test_the_error_without_the_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'turnout\[privacy\]'"):
        noise_multiplier_for(2.0, 1e-5, 7, Release(0.0))
