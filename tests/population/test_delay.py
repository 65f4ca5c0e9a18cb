"""Delay distributions compared with closed forms."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.random import stream
from turnout.population.delay import (
    Constant,
    Delay,
    Exponential,
    LogNormal,
    Normal,
    Pareto,
    Uniform,
    quantile_of_sum,
    standard_normal,
)

KEY = stream("test", 3)
N = 200_000


def phi(z: float) -> float:
    """The distribution function of N(0, 1)."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


# Each with its distribution function at s.
CASES: list[tuple[Delay, object]] = [
    (Normal(2.0, 0.5), lambda s: phi((s - 2.0) / 0.5) if s >= 0 else 0.0),
    (Normal(0.3, 1.0), lambda s: phi(s - 0.3) if s >= 0 else 0.0),
    (Uniform(8.0, 12.0), lambda s: min(max((s - 8) / 4, 0), 1)),
    (Exponential(3.0), lambda s: 1 - math.exp(-max(s, 0) / 3)),
    (LogNormal(4.0, 0.7), lambda s: phi(math.log(s / 4) / 0.7) if s > 0 else 0.0),
    (Pareto(1.5, 3.0), lambda s: 1 - (1.5 / s) ** 3 if s > 1.5 else 0.0),
]
NAMES = [f"{type(delay).__name__}{i}" for i, (delay, _) in enumerate(CASES)]
ALL = [Constant(2.5), *(delay for delay, _ in CASES)]


def draws(delay: Delay, key: int = KEY) -> np.ndarray:
    return delay.draw(key, np.arange(N) // 10, np.arange(N) % 10)


@pytest.mark.parametrize(("delay", "within"), CASES, ids=NAMES)
def test_quantiles_invert_the_distribution_function(delay, within):
    for q in (0.001, 0.2, 0.5, 0.9, 0.99, 0.9999):
        at = float(delay.quantile(q))
        assert within(at) == pytest.approx(max(q, within(0.0)), abs=1e-9)


@pytest.mark.parametrize(("delay", "within"), CASES, ids=NAMES)
def test_draws_follow_the_distribution(delay, within):
    seconds = draws(delay)
    for q in (0.01, 0.25, 0.5, 0.75, 0.99):
        at = float(delay.quantile(q))
        p = within(at)
        assert (seconds <= at).mean() == pytest.approx(p, abs=4.5 * math.sqrt(p * (1 - p) / N) + 1e-12)


@pytest.mark.parametrize("delay", ALL, ids=repr)
def test_mean_equals_the_mean_of_draws(delay):
    seconds = draws(delay)
    assert seconds.mean() == pytest.approx(delay.mean(), abs=5 * seconds.std() / math.sqrt(N) + 1e-12)
    assert (seconds >= 0).all()


def test_means_equal_hand_computed_values():
    assert Constant(2).mean() == 2.0
    assert Uniform(1, 2).mean() == 1.5
    assert Exponential(7).mean() == 7.0
    assert LogNormal(2.0, 1.0).mean() == pytest.approx(2 * math.exp(0.5))
    assert Pareto(2.0, 3.0).mean() == pytest.approx(3.0)
    assert Pareto(2.0, 1.0).mean() == math.inf
    assert Normal(0.0, 1.0).mean() == pytest.approx(1 / math.sqrt(2 * math.pi))  # half-normal, half of the time


def test_quantiles_equal_hand_computed_values():
    assert Exponential(2.0).quantile(0.99) == pytest.approx(2 * math.log(100))
    np.testing.assert_allclose(Uniform(1, 3).quantile(np.array([0.0, 0.5, 1.0])), [1, 2, 3])
    np.testing.assert_allclose(Pareto(2.0, 2.0).quantile(np.array([0.0, 0.75])), [2, 4])
    assert LogNormal(5.0, 1.3).quantile(0.5) == pytest.approx(5)
    assert Normal(1.0, 2.0).quantile(0.1) == 0.0  # cut off
    np.testing.assert_array_equal(Constant(4).quantile(np.array([[0.1], [0.9]])), [[4], [4]])
    assert standard_normal(0.975) == pytest.approx(1.959963984540054)


@pytest.mark.parametrize("delay", ALL, ids=repr)
def test_quantiles_at_zero_and_one(delay):
    assert np.isfinite(delay.quantile(0.0))
    assert delay.quantile(1.0) >= delay.quantile(1 - 1e-9)


@given(
    index=st.integers(0, len(ALL) - 1),
    tasks=st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**6)), min_size=1, max_size=40),
)
def test_draw_depends_only_on_client_and_task(index, tasks):
    clients, numbers = np.array(tasks).T
    together = ALL[index].draw(KEY, clients, numbers)
    backwards = ALL[index].draw(KEY, clients[::-1], numbers[::-1])[::-1]
    alone = [ALL[index].draw(KEY, clients[i : i + 1], numbers[i : i + 1])[0] for i in range(len(tasks))]
    np.testing.assert_array_equal(together, backwards)
    np.testing.assert_array_equal(together, alone)


def test_draws_differ_by_client_task_and_key():
    one = Exponential().draw(KEY, np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
    assert len(np.unique(one)) == 4
    assert (draws(Exponential())[:100] != draws(Exponential(), stream("test", 4))[:100]).all()


def test_quantile_of_a_sum_of_exponentials_is_a_gamma_quantile():
    # scipy.stats.gamma(2).ppf([.5, .99, .999])
    for q, expected in ((0.5, 1.678346990016661), (0.99, 6.638352067993811), (0.999, 9.233413476451588)):
        assert quantile_of_sum(Exponential(1), Exponential(1), q) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(("one", "other"), [(LogNormal(2, 1), Uniform(0, 3)), (Pareto(1, 1.5), Exponential(2))])
def test_quantile_of_a_sum_equals_that_of_draws(one, other):
    total = draws(one) + draws(other, stream("other", 0))
    for q in (0.1, 0.5, 0.9, 0.99):
        at = quantile_of_sum(one, other, q)
        assert (total <= at).mean() == pytest.approx(q, abs=4.5 * math.sqrt(q * (1 - q) / N) + 1e-4)
        assert at == pytest.approx(quantile_of_sum(other, one, q), rel=2e-3)


def test_quantile_of_a_sum_with_a_constant_is_exact():
    assert quantile_of_sum(Constant(3), Exponential(2), 0.99) == pytest.approx(3 + 2 * math.log(100))
    assert quantile_of_sum(Exponential(2), Constant(0), 0.99) == pytest.approx(2 * math.log(100))
    assert quantile_of_sum(Uniform(1, 2), Uniform(3, 5), 1.0) == 7.0
    assert quantile_of_sum(Uniform(1, 2), Uniform(3, 5), 0.0) == 4.0


@pytest.mark.parametrize("q", [-0.1, 1.1, float("nan"), [0.5, 2.0]])
def test_quantiles_outside_0_1_are_refused(q):
    with pytest.raises(ValueError, match=r"q: got .*, needed probabilities, 0 <= q <= 1"):
        Exponential().quantile(np.array(q))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constant(-1), r"seconds: got -1, needed a finite number >= 0"),
        (lambda: Normal(-1, 1), r"loc: got -1, needed a finite number >= 0"),
        (lambda: Normal(1, 0), r"scale: got 0, needed a finite number > 0"),
        (lambda: Uniform(-1, 1), r"low: got -1, needed a finite number >= 0"),
        (lambda: Uniform(0, float("inf")), r"high: got inf, needed a finite number >= 0"),
        (lambda: Uniform(2, 1), r"high: got 1, needed at least low=2\. Exchange the two"),
        (lambda: Exponential(0), r"scale: got 0, needed a finite number > 0"),
        (lambda: LogNormal(0, 1), r"median: got 0, needed a finite number > 0"),
        (lambda: LogNormal(1, -1), r"sigma: got -1, needed a finite number > 0"),
        (lambda: Pareto(0, 1), r"scale: got 0, needed a finite number > 0"),
        (lambda: Pareto(1, 0), r"shape: got 0, needed a finite number > 0"),
    ],
)
def test_options_out_of_range_raise(make, message):
    with pytest.raises(ValueError, match=message):
        make()
