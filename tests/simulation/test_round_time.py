"""Simulated duration of rounds."""

from functools import partial

import numpy as np
import pytest

from turnout import ConfigurationError, Experiment, Population, Sgd, fedavg, fednu, models, scaffold
from turnout.pieces.guard import BFloat16, Qsgd
from turnout.pieces.local import TimeBudget, UniformWork
from turnout.population import Dropout, Group, Speed, Trace
from turnout.population.availability import Bernoulli
from turnout.population.delay import Constant, Exponential
from turnout.protocol.pace import Rounds
from turnout.simulation import Simulation

from ..phases import train

P = 4 * 17  # logistic regression, 16 features and 4 classes
SPEED = Speed(Constant(2.0), upload=Constant(5.0), download=Constant(3.0))
SCAFFOLD = partial(scaffold, cohort_size=3)


def run(tiny, algorithm, *, rounds=5, **population):
    population = {"speed": SPEED, **population}
    experiment = Experiment(tiny, models.Logistic(), algorithm, Population(**population), rounds=rounds)
    simulation = Simulation(experiment)
    for _ in range(rounds):
        simulation.round()
    return simulation


def seconds(simulation):
    return simulation.history.column("simulated_seconds")[1]


def test_without_a_speed_there_is_no_clock(tiny):
    simulation = run(tiny, fedavg(), speed=None)
    assert "simulated_seconds" not in simulation.history.column_names


def test_round_takes_as_long_as_its_slowest_client(tiny):
    np.testing.assert_allclose(seconds(run(tiny, fedavg(Sgd(steps=4)))), 3 + 4 * 2 + 5)
    groups = (Group(7), Group(1, compute=Constant(10.0)))  # client 7 is slow, and there in rounds 1 and 3
    there = Trace((*((n, 0, 5) for n in range(7)), (7, 1, 2), (7, 3, 4)))
    uneven = run(tiny, fedavg(Sgd(steps=4)), speed=Speed(Constant(2.0), groups=groups), availability=there)
    np.testing.assert_allclose(seconds(uneven), [8, 40, 8, 40, 8])


def test_more_steps_take_longer(tiny):
    algorithm = fedavg(Sgd(steps=UniformWork(1, 20)))
    simulation = run(tiny, algorithm, speed=Speed(Constant(2.0)))
    simulation.server.state = simulation.state.__class__(simulation.state.params, 2, simulation.state.slots)
    steps = train(simulation, np.arange(8)).num_steps
    assert seconds(simulation)[2] == 2 * steps.max()
    assert len(set(seconds(simulation))) > 1


def test_bytes_take_time_with_finite_bandwidth(tiny):
    """Down: the model and its version; up: parameters, the loss, and three integers."""
    speed = Speed(Constant(1.0), download_bandwidth=100.0, upload_bandwidth=10.0)
    found = seconds(run(tiny, fedavg(Sgd(steps=1)), speed=speed))
    np.testing.assert_allclose(found, (4 * P + 8) / 100 + 1 + (4 * P + 4 + 24) / 10)


@pytest.mark.parametrize(
    ("algorithm", "up", "down", "clock"),
    [
        (fedavg, 4 * P, 4 * P, False),
        (SCAFFOLD, 8 * P, 8 * P, False),
        (partial(fedavg, also=(BFloat16(),)), 2 * P, 2 * P, False),
        (partial(fedavg, also=(Qsgd(bits=4),)), P // 2 + 4, 4 * P, False),
        (partial(SCAFFOLD, also=(Qsgd(bits=4),)), P + 8, 8 * P, False),
        (partial(SCAFFOLD, also=(Qsgd(bits=4),)), P + 8, 8 * P, True),
    ],
)
def test_time_budget_accounts_for_actual_message_sizes(tiny, algorithm, up, down, clock):
    """As many steps as fit beside the transfers, with control variates, compressed or not."""
    speed = Speed(Constant(0.4), download_bandwidth=10.0, upload_bandwidth=10.0)  # a step takes as long as four bytes
    left = 6.3  # seconds for steps
    budget = (down + 8) / 10 + left + (up + 4 + 24) / 10
    algorithm = algorithm(Sgd(steps=TimeBudget(budget)))
    pace = Rounds(deadline=budget + 20.0) if clock else Rounds()
    found = Simulation(Experiment(tiny, models.Logistic(), algorithm, Population(speed=speed), rounds=1, pace=pace))
    assert train(found, np.array([0, 5])).num_steps.tolist() == [int(left / 0.4)] * 2


def test_control_variates_make_a_round_longer(tiny):
    speed = Speed(Constant(1.0), download_bandwidth=100.0, upload_bandwidth=10.0)
    found = seconds(run(tiny, SCAFFOLD(Sgd(steps=1)), speed=speed, rounds=1))
    np.testing.assert_allclose(found, (8 * P + 8) / 100 + 1 + (8 * P + 4 + 24) / 10)


def test_fixed_length_rounds_have_that_length(tiny):
    budget = TimeBudget(seconds=30.0)
    speed = Speed(Constant(2.0), upload=Exponential(1.0))
    simulation = run(tiny, fedavg(Sgd(steps=budget)), speed=speed, availability=Bernoulli(mean=0.3), rounds=8)
    assert (simulation.history.column("num_participants")[1] == 0).any()
    np.testing.assert_array_equal(seconds(simulation), 30.0)
    report = train(simulation, np.arange(8))
    assert report.num_steps.tolist() == [int((30 - np.log(100)) / 2)] * 8


def test_client_without_time_returns_the_model_unchanged(tiny):
    groups = (Group(7), Group(1, compute=Constant(100.0)))
    simulation = run(tiny, fedavg(Sgd(steps=TimeBudget(10.0))), speed=Speed(Constant(1.0), groups=groups))
    report = train(simulation, np.arange(8))
    assert report.num_steps.tolist() == [10] * 7 + [0]
    assert not report.delta[7].any()
    assert report.delta[:7].any(dim=1).all()


def test_measuring_all_clients_adds_a_trip(tiny):
    """There and back with the time of one step, and then the round."""
    found = seconds(run(tiny, fednu(Sgd(steps=4), cohort_size=3)))
    np.testing.assert_allclose(found, (3 + 2 + 5) + (3 + 4 * 2 + 5))


def test_availability_may_have_its_own_clock(tiny):
    found = seconds(run(tiny, fedavg(Sgd(steps=4)), seconds_per_round=60.0))
    np.testing.assert_array_equal(found, 60.0)


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_time_limits_without_a_speed_are_refused_at_the_start(tiny, engine):
    experiment = Experiment(tiny, models.Logistic(), fedavg(Sgd(steps=TimeBudget())), engine=engine)
    with pytest.raises(ConfigurationError, match="the speed of clients is unknown: give the population a speed"):
        Simulation(experiment)


def test_rounds_continue_without_dropped_clients(tiny):
    experiment = Experiment(tiny, models.Logistic(), fedavg(), Population(speed=SPEED, dropout=Dropout(0.5)), rounds=9)
    history = experiment.run().history
    lost, found = history.column("num_unused")[1], history.column("num_participants")[1]
    np.testing.assert_array_equal(lost + found, tiny.num_clients)
    assert 0 < lost.sum() < 9 * tiny.num_clients


def test_measuring_adds_to_a_fixed_length_round(tiny):
    found = seconds(run(tiny, fednu(Sgd(steps=TimeBudget(30.0)), cohort_size=3)))
    np.testing.assert_allclose(found, (3 + 2 + 5) + 30)
