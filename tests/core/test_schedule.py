"""Schedules of step sizes."""

import math

import numpy as np
import pytest

from turnout import ConfigurationError
from turnout.core.schedule import ByStep, Cosine, Halving, InverseRoot, LinearWarmup, check_step_size, step_size


def test_fedaus_schedule_for_cifar_100():
    """20,000 rounds of 5 steps; the boundary is between rounds 10,000 and 10,001."""
    schedule = Halving(0.0562, start=10001, every=1000, most=10)
    levels = {
        0: 0,
        9999: 0,
        10000: 0,
        10001: 1,
        11000: 1,
        11001: 2,
        12001: 3,
        19000: 9,
        19001: 10,
        19999: 10,
        50000: 10,
    }
    np.testing.assert_array_equal(schedule.at(np.array([*levels])), [0.0562 / 2**level for level in levels.values()])


def test_schedule_of_the_authors_code_for_cifar_100():
    """With it = 5 t: level min(10, floor((it - 50000) / 5000) + 1) if it > 50000."""
    t = np.arange(25_000)
    authors = np.where(5 * t > 50_000, np.minimum(10, (5 * t - 50_000) // 5000 + 1), 0)
    ours = Halving(0.0562, start=10001, every=1000, most=10, counted_from=10000)
    np.testing.assert_array_equal(np.log2(0.0562 / ours.at(t)), authors)


def test_halving_from_the_first_round():
    np.testing.assert_array_equal(Halving(8.0, start=0, every=2, most=3).at(np.arange(8)), [4, 4, 2, 2, 1, 1, 1, 1])


def test_cosine_decay():
    schedule = Cosine(1.0, rounds=100, final=0.2)
    found = schedule.at(np.array([0, 25, 50, 100, 1000]))
    np.testing.assert_allclose(found, [1.0, 0.6 + 0.4 * math.sqrt(0.5), 0.6, 0.2, 0.2], atol=1e-12)
    assert (np.diff(schedule.at(np.arange(101))) < 0).all()


def test_number_is_a_constant_schedule():
    np.testing.assert_array_equal(step_size(0.3, np.array([0, 7, 10**6])), [0.3, 0.3, 0.3])
    assert step_size(Halving(1.0, start=1, every=1), np.asarray(1)) == 0.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Halving(0.0, 1, 1), "initial: got 0.0, needed a finite number > 0"),
        (lambda: Halving(0.1, -1, 1), "start: got -1, needed a whole number >= 0"),
        (lambda: Halving(0.1, 1, 0), "every: got 0"),
        (lambda: Halving(0.1, 1, 1, most=0), "most: got 0"),
        (lambda: Halving(0.1, 1, 1, counted_from=2), "counted_from: got 2, needed at most start = 1"),
        (lambda: Halving(0.1, 1, 1, counted_from=-1), "counted_from: got -1, needed a whole number >= 0"),
        (lambda: Cosine(-1.0, 10), "initial: got -1.0"),
        (lambda: Cosine(1.0, 0), "rounds: got 0"),
        (lambda: Cosine(1.0, 10, final=2.0), "final: got 2.0, needed a number from 0 to initial = 1.0"),
        (lambda: Cosine(1.0, 10, final=math.nan), "final: got nan"),
        (lambda: check_step_size("lr", "fast"), "lr: got 'fast', needed a finite number > 0"),
    ],
)
def test_invalid_arguments_raise(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_inverse_root_follows_fedawes_authors():
    found = InverseRoot(0.4, every=10).at(np.arange(50))
    np.testing.assert_allclose(found, [0.4 / np.sqrt(t / 10 + 1) for t in range(50)])
    with pytest.raises(ConfigurationError, match=r"initial: got 0.0"):
        InverseRoot(0.0)
    with pytest.raises(ConfigurationError, match=r"every: got 0, needed a whole number >= 1"):
        InverseRoot(0.1, every=0)


def test_by_step_interpolates_between_rounds():
    schedule = ByStep(Cosine(1.0, rounds=10))
    sizes = schedule.at_steps(np.array([3, 3, 5]), np.array([4, 2, 0]))
    assert sizes.shape == (4, 3)
    np.testing.assert_array_equal(sizes[:, 0], Cosine(1.0, rounds=10).at(3 + np.arange(4) / 4))
    np.testing.assert_array_equal(sizes[:2, 1], Cosine(1.0, rounds=10).at(3 + np.arange(2) / 2))
    np.testing.assert_array_equal(schedule.at(np.arange(12)), Cosine(1.0, rounds=10).at(np.arange(12)))


def test_restarting_by_step_is_equal_in_every_round():
    schedule = ByStep(LinearWarmup(Halving(1.0, start=1, every=1), rounds=0.5), restarts=True)
    sizes = schedule.at_steps(np.array([0, 7]), np.array([4, 4]))
    assert sizes.tolist() == [[0.0, 0.0], [0.5, 0.5], [1.0, 1.0], [1.0, 1.0]]
    assert schedule.at(np.array([0, 7])).tolist() == [0.0, 0.0]


def test_schedules_by_round_are_constant_within_a_round():
    sizes = Halving(1.0, start=1, every=1).at_steps(np.array([0, 1]), np.array([3, 1]))
    assert sizes.tolist() == [[1.0, 0.5]] * 3


def test_warm_up_precedes_any_schedule():
    np.testing.assert_allclose(
        LinearWarmup(Cosine(0.4, 8), 4).at(np.array([2, 6])), [0.5, 1] * Cosine(0.4, 8).at(np.array([2, 6]))
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearWarmup(0.1, rounds=0), "rounds: got 0, needed a finite number > 0"),
        (lambda: LinearWarmup(-0.1, rounds=2), "lr: got -0.1"),
        (
            lambda: ByStep(0.1),  # type: ignore[arg-type]
            "schedule: got 0.1, needed a schedule, such as Cosine",
        ),
    ],
)
def test_invalid_schedules_by_step_raise(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
