"""What is spent, against the package that counts it, and the noise that a budget needs."""

import math
import sys

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant

from turnout.core.checks import ConfigurationError
from turnout.privacy import Release, epsilon, noise_multiplier_for, rounds_within
from turnout.privacy.accounting import at_most


def test_rounds_without_sampling_cost_what_one_gaussian_mechanism_costs():
    accountant = RdpAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(4.0), 25)
    exact = epsilon(Release(4.0), 25, 1e-5)
    assert exact == pytest.approx(dp_accounting.get_epsilon_gaussian(4.0 / 5.0, 1e-5))
    assert exact < accountant.get_epsilon(1e-5) < 1.2 * exact


def test_clients_who_rest_spend_only_when_they_take_part():
    assert epsilon(Release(4.0, separation=5), 25, 1e-5) == epsilon(Release(4.0), 5, 1e-5)
    assert epsilon(Release(4.0, most=3), 25, 1e-5) == epsilon(Release(4.0), 3, 1e-5)


def test_sampling_by_the_server_hides_clients():
    sampled, plain = Release(1.0, sampling_rate=0.01), Release(1.0)
    assert epsilon(sampled, 100, 1e-6) == pytest.approx(0.94, abs=0.02)
    assert epsilon(sampled, 100, 1e-6) < epsilon(sampled, 100, 1e-6, "rdp") < epsilon(plain, 100, 1e-6) / 10


@pytest.mark.parametrize("release", [Release(0.0), Release(0.0, separation=10), Release(0.0, sampling_rate=0.02)])
def test_the_noise_that_a_budget_needs_spends_it(release):
    multiplier = noise_multiplier_for(2.0, 1e-6, 60, release)
    spent = Release(multiplier, release.coefficients, release.separation, release.most, release.sampling_rate)
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
        epsilon(Release(3.21), 7, 1e-5)
