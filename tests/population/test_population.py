"""Populations."""

from dataclasses import replace

import numpy as np
import pytest

import turnout as to
from turnout.population import Diurnal, Dropout, Everyone, Markov, Population, Speed, TimedTrace, delay
from turnout.protocol.pace import Buffered
from turnout.record.describe import describe, differences
from turnout.simulation.schedule import schedule

from ..tiny import classification


def test_default_is_full_availability():
    assert Population() == Population(availability=Everyone())
    assert Population(Markov()).availability == Markov()


def test_population_without_speed_has_no_clock():
    assert Population().speed is None
    assert Population(speed=Speed(), dropout=Dropout(0.1), seconds_per_round=60).seconds_per_round == 60


def test_description_without_speed_is_the_same_population():
    # config.json of run folders, and checkpoints, are compared by `differences`: they must still be accepted.
    before = {"kind": "Population", "availability": {"kind": "Everyone"}}
    assert list(differences(before, describe(Population()))) == []
    assert list(differences(before, describe(Population(speed=Speed())))) != []


def test_class_instead_of_an_instance_is_refused():
    with pytest.raises(ValueError, match=r"availability: got .*Markov.*, needed an availability: write Markov\(\)"):
        Population(Markov)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"speed: got .*Speed.*, needed a speed: write Speed\(\)"):
        Population(speed=Speed)  # type: ignore[arg-type]


def test_name_instead_of_an_instance_is_refused():
    with pytest.raises(ValueError, match=r"availability: got 'markov', needed an availability, such as Markov"):
        Population("markov")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"dropout: got 0\.1, needed a dropout, such as Dropout\(probability=0\.05\)"):
        Population(speed=Speed(), dropout=0.1)  # type: ignore[arg-type]


def test_seconds_per_round_must_be_positive():
    with pytest.raises(ValueError, match=r"seconds_per_round: got 0, needed a finite number > 0"):
        Population(speed=Speed(), seconds_per_round=0)


@pytest.mark.parametrize("options", [{"dropout": Dropout(0.1)}, {"seconds_per_round": 60.0}])
def test_options_that_need_a_clock_are_refused_without_one(options):
    name = next(iter(options))
    with pytest.raises(ValueError, match=rf"{name} is about a clock, and without a speed there is none: write speed="):
        Population(**options)


RECORDED = TimedTrace(((0, 0, 1200), (1, 600, 1800)), seconds_per_round=300)


@pytest.mark.parametrize("availability", [RECORDED, Diurnal(seconds_per_round=300)])
def test_timed_availability_determines_the_round_length(availability):
    assert Population(availability).round_seconds is None  # no clock
    assert Population(availability, Speed()).round_seconds == 300
    assert Population(availability, Speed(), seconds_per_round=300.0).round_seconds == 300
    assert Population(availability, seconds_per_round=300.0).round_seconds is None
    kind = type(availability).__name__
    message = (
        rf"seconds_per_round: got 60 beside {kind}\(seconds_per_round=300\), so that the pattern would pass 5 times as fast "
        rf"as the clock: leave it out, and write {kind}\(seconds_per_round=60\)"
    )
    with pytest.raises(ValueError, match=message):
        Population(availability, Speed(), seconds_per_round=60)
    with pytest.raises(ValueError, match=message):
        Population(availability, seconds_per_round=60)


def test_round_based_availability_uses_the_given_round_length():
    assert Population(Markov(), Speed()).round_seconds is None
    assert Population(Markov(), Speed(), seconds_per_round=60).round_seconds == 60


def test_tasks_go_to_clients_available_at_that_second():
    rng = np.random.default_rng(0)
    rows = [
        (n, int(t), int(t) + 900) for n in range(40) for t in rng.choice(np.arange(0, 80_000, 2000), 8, replace=False)
    ]
    trace = TimedTrace(tuple(rows), seconds_per_round=60)
    found = schedule(Buffered(4), Population(trace, Speed(delay.Constant(20.0))), 40, until=40_000)
    bound = trace.bind(40)
    tasks, rounds = found.tasks, (found.tasks["asked"] // 60).astype(int)
    there = [bool(bound.available(np.array([c]), r)[0]) for c, r in zip(tasks["client"], rounds, strict=True)]
    assert len(there) > 200
    assert np.mean(there) > 0.95


@pytest.mark.parametrize("separation", [1, 0, -3, 2.5, True])
def test_separation_of_less_than_two_rounds_is_refused(separation):
    with pytest.raises(ValueError, match=r"separation: got .*, needed a whole number >= 2"):
        Population(separation=separation)


@pytest.mark.parametrize("availability", [Everyone(), Markov(mean=0.6)])
def test_clients_take_part_only_after_their_separation(availability):
    experiment = to.Experiment(
        classification(), to.models.Logistic(), to.fedau(to.Sgd(lr=0.1, steps=1), also=(to.selection.Uniform(3),)),
        Population(availability, separation=3), rounds=40, evaluate_every=40,
    )  # fmt: skip
    table = experiment.run().participation
    rounds = [set(table["client"].to_numpy()[table["round"].to_numpy() == t]) for t in range(1, 41)]
    assert sum(map(len, rounds)) > 40
    for t, clients in enumerate(rounds):
        assert not any(clients & earlier for earlier in rounds[max(0, t - 2) : t])
    assert any(clients & rounds[t - 3] for t, clients in enumerate(rounds) if t >= 3)


def test_rates_of_availability_are_not_those_of_participation_under_a_separation():
    plain = to.Experiment(classification(), to.models.Logistic(), to.average_participating(), Population(Markov()))
    separated = replace(plain, population=Population(Markov(), separation=5))
    assert plain.everyone_available_takes_part
    assert not separated.everyone_available_takes_part


def test_separation_needs_rounds_and_excludes_amplification_by_sampling():
    base = to.Experiment(classification(), to.models.Logistic(), to.fedbuff(), Population(), rounds=3)
    with pytest.raises(
        ValueError, match=r"separation: got 4 beside Buffered, which has no rounds: leave separation out"
    ):
        replace(base, population=Population(speed=Speed(), separation=4), pace=Buffered(2)).run()
    private = to.average_all(also=(to.aggregation.PrivateSum(sampling_rate=0.3), to.selection.Poisson(0.3)))
    with pytest.raises(ValueError, match="no dropout, no separation and synchronous rounds"):
        replace(base, algorithm=private, population=Population(separation=4))
