"""Utility by reporting speed: the paper's formulas, known values, and agreement with simulated schedules."""

from dataclasses import replace

import numpy as np
import pytest
from reproductions.fedstaleweight.influence import (
    best_speed,
    expected_staleness,
    shares,
    staleness_distribution,
    utilities,
    utility_in,
)
from reproductions.fedstaleweight.throttling import BUFFER_SIZE, RULES, Rule, by_formula, by_simulation, rates, speed

from turnout import ConfigurationError, fedbuff, fedstaleweight, folb
from turnout.population import Population
from turnout.protocol.pace import Buffered
from turnout.simulation.schedule import schedule

RATES = np.array([3.0, 1.0, 1.0, 0.5, 0.2])


def constant(tau):
    return np.ones(len(tau))


def test_unnormalized_equation_8_gives_equal_utility_at_any_rate():
    for b in (1, 3, 7):
        alpha = (expected_staleness(RATES, b) * b + 1) / len(RATES)
        np.testing.assert_allclose(alpha * RATES / RATES.sum(), 1 / len(RATES), rtol=1e-14)


@pytest.mark.parametrize("weigh", [constant, lambda tau: 3 * tau + 1, lambda tau: (1 + tau) ** -0.5])
@pytest.mark.parametrize("by_mean", [True, False])
def test_utilities_sum_to_one_and_are_rates_for_equal_weights(weigh, by_mean):
    found = utilities(RATES, 3, weigh, by_mean=by_mean)
    np.testing.assert_allclose(found.sum(), 1, rtol=1e-9)
    if weigh is constant or by_mean is False:
        np.testing.assert_allclose(utilities(RATES, 3, constant, by_mean=by_mean), RATES / 5.7, rtol=1e-9)


def test_expectation_over_two_reports_equals_a_hand_computed_example():
    """With b = 2: ``u_i = 2 p_i sum_j p_j w_i / (w_i + w_j)``."""
    p, w = RATES / RATES.sum(), 2 * expected_staleness(RATES, 2) + 1
    byhand = [2 * p[i] * sum(p[j] * w[i] / (w[i] + w[j]) for j in range(5)) for i in range(5)]
    np.testing.assert_allclose(utilities(RATES, 2, lambda tau: 2 * tau + 1), byhand, rtol=1e-10)


def test_zero_weights_give_zero_utility():
    np.testing.assert_array_equal(utilities([1.0, 1.0], 2, lambda tau: 0 * tau), [0, 0])
    np.testing.assert_allclose(utilities([1.0, 1.0], 2, lambda tau: 1e-9 * tau), [0.5, 0.5])


@pytest.mark.parametrize("p", [0.9, 0.3, 0.02])
def test_staleness_distribution_has_the_mean_of_equation_6(p):
    for b in (1, 4):
        chance = staleness_distribution(p, b)
        np.testing.assert_allclose(chance.sum(), 1, atol=1e-11)
        assert (chance >= 0).all()
        np.testing.assert_allclose(chance @ np.arange(len(chance)), (1 / p - 1) / b, rtol=1e-8)
    assert staleness_distribution(1.0, 4).tolist() == [1.0]


def test_simulated_staleness_follows_the_distribution():
    timeline = schedule(Buffered(BUFFER_SIZE), Population(speed=speed(1.0, memoryless=True)), 15, steps=3000)
    client, staleness = (timeline.tasks[name][timeline.used] for name in ("client", "staleness"))
    share = rates(1.0) / rates(1.0).sum()
    for some, p in ((client < 10, share[0]), (client >= 10, share[-1])):
        expected = staleness_distribution(float(p), BUFFER_SIZE)[:8]
        found = np.bincount(staleness[some], minlength=8)[:8] / some.sum()
        np.testing.assert_allclose(found, expected, atol=0.02)
    mean = np.array([staleness[client == i].mean() for i in range(15)])
    np.testing.assert_allclose(mean, expected_staleness(rates(1.0), BUFFER_SIZE), rtol=0.12)


def test_equation_9_and_its_maximum():
    """The utility in one buffer from its definition, and the speed at which it stops growing."""
    buffer, n, b = [0, 1, 3], len(RATES), 3

    def by_definition(own):
        r = np.concatenate([[own], RATES[1:]])
        alpha = (expected_staleness(r, b) * b + 1) / n
        return alpha[0] / alpha[buffer].sum() * r[0] / r.sum()

    for own in (0.1, 1.0, 3.0, 9.0):
        r = np.concatenate([[own], RATES[1:]])
        np.testing.assert_allclose(utility_in(r, buffer, 0), by_definition(own), rtol=1e-12)
    best = best_speed(RATES, buffer, 0)
    assert best == pytest.approx(np.sqrt(2.7 / 3.0))
    assert by_definition(best) > max(by_definition(0.9 * best), by_definition(1.1 * best))
    assert best_speed(7 * RATES, buffer, 0) == pytest.approx(7 * best)  # so no scale makes the fast truthful


def test_single_client_in_the_buffer_gains_with_speed():
    assert best_speed([1.0, 2.0], [0], 0) == np.inf


EXACT = {
    "fedstaleweight": replace(RULES["fedstaleweight"], algorithm=fedstaleweight(average="cumulative")),
    "fedbuff": RULES["fedbuff"],
}
BY_REPORT = {name: RULES[name] for name in ("1 / sqrt(1 + tau)", "favors_fresh", "favors_stale")}


def test_formula_equals_simulation_for_a_throttling_client():
    """Exact for memoryless clients with weights by the mean of all staleness, or equal weights."""
    formula, found = (
        by_formula([0.3, 1.0], EXACT),
        by_simulation([0.3, 1.0], EXACT, memoryless=True, steps=2000),
    )
    for name in EXACT:
        np.testing.assert_allclose(found[name], formula[name], rtol=0.1, err_msg=name)


def test_formula_equals_simulation_for_fast_and_slow_groups():
    """More precise for groups; and for weights by the staleness of each report."""
    timeline = schedule(Buffered(BUFFER_SIZE), Population(speed=speed(1.0, memoryless=True)), 15, steps=4000)
    for name, rule in (EXACT | BY_REPORT).items():
        formula = utilities(rates(1.0), BUFFER_SIZE, rule.weigh, by_mean=rule.by_mean)
        found = shares(rule.algorithm, timeline, warm_up=400)
        np.testing.assert_allclose(found[:10].mean(), formula[0], rtol=0.02, err_msg=name)
        np.testing.assert_allclose(found[10:].mean(), formula[-1], rtol=0.05, atol=6e-4, err_msg=name)


def test_simulation_averages_over_seeds():
    rules = {"fedbuff": RULES["fedbuff"]}
    one, other, both = (by_simulation([0.5], rules, steps=30, seeds=seeds)["fedbuff"] for seeds in ((1,), (2,), (1, 2)))
    assert one != other
    assert both == pytest.approx((one + other) / 2)


def test_honest_speed_is_optimal_except_for_increasing_weights():
    """FedStaleWeight's claim, and the reason why its weights do not simply increase with staleness."""
    places = [0.2, 0.4, 0.7, 1.0]
    for name, utility in by_formula(places).items():
        if name != "favors_stale":
            assert (np.diff(utility) > 0).all(), name
    found = by_simulation(places, {name: RULES[name] for name in ("fedstaleweight", "favors_stale")}, steps=600)
    assert found["fedstaleweight"].argmax() == 3
    assert found["favors_stale"].max() > 1.2 * found["favors_stale"][-1]


def test_fast_clients_have_less_utility_with_fedstaleweight_than_fedbuff():
    fair, plain = (by_formula([1.0])[name][0] for name in ("fedstaleweight", "fedbuff"))
    assert 1 < fair < plain


def test_utility_follows_the_server_weights():
    timeline = schedule(Buffered(3), Population(speed=speed(0.5)), 15, steps=50)
    plain = shares(fedbuff(), timeline)
    np.testing.assert_allclose(plain, timeline.contributions()["share"])
    late = shares(fedbuff(), timeline, warm_up=40)
    assert late.sum() == pytest.approx(1)
    assert not np.allclose(late, plain)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda: expected_staleness([1.0, 0.0], 3), r"rates: got \[1.0, 0.0\], needed a number > 0 for each client"),
        (lambda: utilities([], 3, constant), r"rates: got \[\], needed a number"),
        (lambda: utilities(RATES, 0, constant), "buffer_size: got 0"),
        (lambda: utility_in(RATES, [1, 2], 0), r"buffer: got \[1, 2\], needed different clients, client 0 among them"),
        (lambda: best_speed(RATES, [0, 1, 1], 0), "needed different clients"),
        (lambda: rates(0.0), "reported: got 0.0, needed a fraction of the client's own speed, > 0 and <= 1"),
        (lambda: speed(1.5), "reported: got 1.5"),
        (
            lambda: shares(fedbuff(), schedule(Buffered(3), Population(speed=speed(1.0)), 15, steps=5), warm_up=5),
            "timeline: got 5 steps, needed more than the warm-up of 5",
        ),
        (
            lambda: shares(folb(), schedule(Buffered(3), Population(speed=speed(1.0)), 15, steps=5)),
            "folb weighs by what clients measure while they train, needed weights that come from who reports",
        ),
    ],
)
def test_invalid_arguments_raise(what, message):
    with pytest.raises(ConfigurationError, match=message):
        what()


def test_user_rule_is_added_in_two_lines():
    hinge = Rule(fedbuff(discount="hinge", grace=2), lambda tau: 1 / (10 * np.maximum(tau - 2, 0) + 1))
    formula, found = (way([1.0], {"hinge": hinge})["hinge"][0] for way in (by_formula, by_simulation))
    assert formula > 1.3
    assert found > 1.3
