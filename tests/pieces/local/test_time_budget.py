"""Numbers of local steps that fit a time budget."""

import math

import numpy as np
import pytest
from tests.tiny import recipe

import turnout as to
from turnout.pieces.local import TimeBudget
from turnout.population import Group, RecordedSpeed, Speed
from turnout.population.delay import Constant, Exponential, Pareto


def steps(budget: TimeBudget, speed: Speed, num_clients: int = 1, **sizes: int) -> list[int]:
    found = budget.steps(speed.bind(num_clients), **sizes)
    assert found.dtype == np.int64
    return found.tolist()


def test_steps_fit_between_download_and_upload():
    speed = Speed(Constant(0.5), upload=Exponential(2))
    left = 30 - 2 * math.log(100)  # T_k^c is the 99th percentile of the exponential distribution
    assert steps(TimeBudget(30), speed) == [math.floor(left / 0.5)]
    assert steps(TimeBudget(30, quantile=0.5), speed) == [math.floor((30 - 2 * math.log(2)) / 0.5)]


def test_clients_that_cannot_report_in_time_take_no_step_by_default():
    speed = Speed(
        Constant(1), groups=(Group(upload=Constant(3)), Group(upload=Constant(10)), Group(upload=Constant(12)))
    )
    assert steps(TimeBudget(10), speed, 3) == [7, 0, 0]
    assert steps(TimeBudget(10, least=1), speed, 3) == [7, 1, 1]
    assert steps(TimeBudget(10, least=1, most=4), speed, 3) == [4, 1, 1]


def test_exactly_fitting_step_survives_rounding():
    assert steps(TimeBudget(1.0), Speed(Constant(0.1), upload=Constant(0.9))) == [1]
    assert steps(TimeBudget(0.3), Speed(Constant(0.1))) == [3]
    assert steps(TimeBudget(0.3), Speed(Constant(0.1001))) == [2]


def test_message_sizes_reduce_the_steps():
    speed = Speed(Constant(1), upload_bandwidth=100, download_bandwidth=1000)
    assert steps(TimeBudget(10), speed, bytes_up=200, bytes_down=3000) == [5]


def test_steps_follow_the_speeds_of_clients():
    bound = Speed(Constant(0.2), spread=1.0).bind(100)
    np.testing.assert_array_equal(TimeBudget(5).steps(bound), np.floor(5 / bound.seconds_per_step))


def test_step_of_infinite_mean_duration_never_fits():
    assert steps(TimeBudget(10), Speed(Pareto(1, 0.9))) == [0]


def test_steps_of_zero_duration_are_limited():
    speed = Speed(Constant(0), upload=Constant(1))
    assert steps(TimeBudget(10, most=20), speed) == [20]
    assert steps(TimeBudget(1, most=20), speed) == [0]
    with pytest.raises(ValueError, match=r"a local step takes 0 seconds, so any number fits: write most="):
        steps(TimeBudget(10), speed)


def test_recorded_speeds_determine_steps():
    bound = RecordedSpeed(((0, 1.0, 2.0, 3.0), (0, 1.0, 4.0, 1.0)), per="step").bind(1)
    assert TimeBudget(13).steps(bound).tolist() == [3]


def test_speeds_with_times_per_task_are_refused():
    with pytest.raises(ValueError, match=r"the time of a local step is not known"):
        TimeBudget().steps(Speed(per="task").bind(1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seconds": 0}, r"seconds: got 0, needed a finite number > 0"),
        ({"quantile": 2}, r"quantile: got 2, needed a probability"),
        ({"quantile": 1}, r"quantile: got 1, needed less than 1\. Most delays have no greatest value"),
        ({"least": -1}, r"least: got -1, needed a whole number >= 0"),
        ({"least": 3, "most": 2}, r"most: got 2, needed a whole number >= 3"),
        ({"most": 0}, r"most: got 0, needed a whole number >= 1"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        TimeBudget(**options)


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
@pytest.mark.parametrize("name", ["fedavg", "folb", "scaffold", "mifa"])
def test_round_without_steps_leaves_the_model_unchanged(name, engine, tiny):
    local = to.Sgd(steps=TimeBudget(seconds=1.0))
    experiment = to.Experiment(
        data=tiny, model=to.models.Logistic(), algorithm=recipe(name, local), rounds=2, engine=engine,
        population=to.Population(speed=Speed(compute=Constant(2.0))),
    )  # fmt: skip
    rounds = experiment.run().rounds.to_pydict()
    assert rounds["update_norm"] == [0.0, 0.0]
    assert rounds["num_dropped"] == [0, 0]
    assert min(rounds["num_participants"]) > 0
