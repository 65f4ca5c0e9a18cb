"""Accounting compared with dp-accounting, and the noise for a budget."""

import math
import re
import sys
import tomllib
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy.stats import norm

from turnout.core.checks import ConfigurationError
from turnout.pieces.aggregation import PrivateSum
from turnout.pieces.guard import NoiseShare
from turnout.pieces.weighting import DivideByNoisyCurvature, DivideByNoisySum
from turnout.privacy import Release, epsilon, noise_multiplier_for, rounds_within
from turnout.privacy.accounting import at_most
from turnout.privacy.mechanisms import _replaced, gaussian


def test_rounds_without_sampling_cost_one_gaussian_mechanism():
    accountant = RdpAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(4.0), 25)
    exact = epsilon(Release(4.0), 25, 1e-5)
    assert exact == pytest.approx(dp_accounting.get_epsilon_gaussian(4.0 / 5.0, 1e-5))
    assert exact < accountant.get_epsilon(1e-5) < 1.2 * exact


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_epsilon_of_a_gaussian_mechanism_equals_dp_accounting(delta):
    for multiplier in (0.01, 0.3, 1.0, 20.0, 1e3):
        found = epsilon(Release(multiplier), 1, delta)
        assert found == pytest.approx(dp_accounting.get_epsilon_gaussian(multiplier, delta), rel=1e-9, abs=1e-12)
    assert epsilon(Release(1e20), 1, delta) == 0.0


def test_separation_reduces_the_cost():
    assert epsilon(Release(4.0, separation=5), 25, 1e-5) == epsilon(Release(4.0), 5, 1e-5)
    assert epsilon(Release(4.0, most=3), 25, 1e-5) == epsilon(Release(4.0), 3, 1e-5)


def test_secret_sampling_amplifies_privacy():
    sampled, plain = Release(1.0, sampling_rate=0.01), Release(1.0)
    assert epsilon(sampled, 100, 1e-6) == pytest.approx(0.94, abs=0.02)
    assert epsilon(sampled, 100, 1e-6) < epsilon(sampled, 100, 1e-6, "rdp") < epsilon(plain, 100, 1e-6) / 10


def test_fixed_size_sampling_uses_the_replacement_relation():
    """With all clients drawn it is the Gaussian mechanism with sensitivity 2 C instead of C."""
    drawn = Release(4.0, sampling_rate=0.01, sampling="fixed_size")
    everyone = Release(4.0, sampling_rate=1.0, sampling="fixed_size")
    exact = dp_accounting.get_epsilon_gaussian(2.0 / 10.0, 1e-5)
    assert epsilon(everyone, 100, 1e-5) == pytest.approx(exact)
    coins = Release(4.0, sampling_rate=0.01)
    assert epsilon(coins, 100, 1e-5) < epsilon(drawn, 100, 1e-5) < exact / 20
    assert (
        1.99 < epsilon(replace(drawn, noise_multiplier=noise_multiplier_for(2.0, 1e-5, 100, drawn)), 100, 1e-5) <= 2.0
    )


def test_one_of_two_clients_equals_numerical_integration():
    """One round, m = 1 of N = 2: mixtures at +1 and -1, or 0 and 0, around the other client, in one dimension."""
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
def test_noise_for_a_budget_spends_it_exactly(release):
    multiplier = noise_multiplier_for(2.0, 1e-6, 60, release)
    spent = replace(release, noise_multiplier=multiplier)
    assert 1.99 < epsilon(spent, 60, 1e-6) <= 2.0 + 1e-9
    assert 55 <= rounds_within(spent, 2.0 + 1e-9, 1e-6, 100) <= 70


def test_rows_never_understate_epsilon():
    release = Release(1.0, sampling_rate=0.05)
    exact = [epsilon(release, rounds, 1e-6) for rounds in (75, 76)]
    assert exact[0] < at_most(release, 75, 1e-6) == exact[1]


def test_no_row_exceeds_the_epsilon_of_the_whole_run():
    release = Release(1.0, sampling_rate=0.05)
    rows = [at_most(release, rounds, 1e-6, total=75) for rounds in range(63, 76)]
    assert rows == sorted(rows)
    assert rows[-1] == epsilon(release, 75, 1e-6)


def test_lost_releases_are_counted_with_the_run():
    """Each independent release counts once; correlated ones are bounded by the dense matrix of both runs."""
    plain = Release(2.0)
    assert at_most(plain, 6, 1e-5, 9, ((2, 5),)) == epsilon(plain, 9, 1e-5)
    assert at_most(replace(plain, separation=4), 8, 1e-5, 8, ((3, 5),)) == pytest.approx(epsilon(plain, 3, 1e-5))
    assert at_most(replace(plain, noise_multiplier=0.0), 6, 1e-5, 9, ((2, 5),)) == math.inf
    sampled = Release(2.0, sampling_rate=0.1)
    assert at_most(sampled, 6, 1e-5, 9, ((2, 5),)) == epsilon(sampled, 9, 1e-5)


@pytest.mark.parametrize("separation", [1, 2, 3])
@pytest.mark.parametrize("window", [(2, 6), (3, 4), (0, 6)])
def test_sensitivity_over_a_run_and_lost_releases_is_bounded(separation, window):
    """Over all pairs of participation patterns that agree before the copy."""
    n, (first, last) = 6, window
    column = np.array([1.0, 0.5, 0.375, 0.3125, 0.2734375, 0.24609375])
    c = np.array([[column[i - j] if i >= j else 0.0 for j in range(n)] for i in range(n)])
    patterns = [
        np.array(pattern)
        for pattern in product((0.0, 1.0), repeat=n)
        if all(b - a >= separation for a, b in pairwise(np.flatnonzero(pattern)))
    ]
    moved = max(
        (c @ one) @ (c @ one) + (c @ other)[first:last] @ (c @ other)[first:last]
        for one, other in product(patterns, patterns)
        if (one[:first] == other[:first]).all()
    )
    release = Release(5.0, tuple(column), separation)
    assert at_most(release, n, 1e-5, n, (window,)) >= epsilon(Release(5.0 / math.sqrt(moved)), 1, 1e-5) * (1 - 1e-9)


@pytest.mark.parametrize("value", [1e-300, 1e-9, -1.0, 1e300, math.inf, math.nan, True, "2"])
def test_unrepresentable_noise_is_refused(value):
    for piece in (PrivateSum, DivideByNoisySum, DivideByNoisyCurvature, NoiseShare):
        with pytest.raises(
            ConfigurationError, match=r"noise_multiplier: got .*to 1,000,000\. Useful values are about 0\.3"
        ):
            piece(noise_multiplier=value)
    with pytest.raises(ConfigurationError, match="count_deviation: got"):
        PrivateSum(count_deviation=value)


@pytest.mark.parametrize("sampling", [{}, {"sampling_rate": 0.1}, {"sampling_rate": 0.1, "sampling": "fixed_size"}])
def test_almost_no_noise_costs_infinite_epsilon(sampling):
    assert epsilon(Release(1e-300, **sampling), 10, 1e-5) == math.inf
    assert 1e4 < epsilon(Release(1e-2, **sampling), 10, 1e-5) < math.inf


def test_zero_rounds_cost_nothing_and_zero_noise_costs_infinity():
    assert epsilon(Release(1.0), 0, 1e-5) == 0.0
    assert epsilon(Release(0.0), 1, 1e-5) == math.inf


@pytest.mark.parametrize(("missing", "named"), [("dp_accounting", "dp-accounting"), ("scipy.optimize", "SciPy")])
def test_missing_package_names_what_to_install(monkeypatch, missing, named):
    monkeypatch.setitem(sys.modules, missing, None)
    gaussian.cache_clear()
    with pytest.raises(
        ConfigurationError, match=rf"needs {named}, which is not installed: pip install '\.\[privacy\]'"
    ):
        noise_multiplier_for(2.0, 1e-5, 7, Release(0.0)) if named != "SciPy" else epsilon(Release(1.0), 7, 1e-5)


def test_extra_declares_the_imports_of_accounting():
    settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    declared = {re.split("[>=<]", each)[0] for each in settings["project"]["optional-dependencies"]["privacy"]}
    assert declared == {"dp-accounting", "scipy"}


@pytest.mark.parametrize("rate", [1e-3, 0.5, 1.0])
def test_little_noise_over_many_sampled_rounds_is_counted_quickly(rate):
    """The attack: settings whose privacy loss distribution took minutes or all memory."""
    spent = epsilon(Release(0.05, sampling_rate=rate), 10**6, 1e-5)
    assert 200.0 < spent <= epsilon(Release(0.05), 10**6, 1e-5)


def test_sample_of_one_client_among_billions_has_a_cost():
    """A fraction below 1e-9 was rounded to zero."""
    costs = [_replaced(1.0, 1 / n)[1][0] for n in (2**20, 2**31, 2**33)]
    assert costs[0] > costs[1] > costs[2] > 0.0
