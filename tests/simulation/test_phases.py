"""Rounds with a clock, measurements and preparation."""

from dataclasses import replace

import numpy as np
import pytest

from turnout import Experiment, Population, Sgd, compose, delay, folb_two_set, models, mw_fed, scaffold_p
from turnout.pieces.local import Scaffold
from turnout.pieces.selection import AllAvailable, ByGradientNorm, Uniform, WithReplacement
from turnout.population import Dropout
from turnout.population.availability import Bernoulli, Markov
from turnout.population.speed import Speed
from turnout.protocol.pace import Rounds
from turnout.simulation import Simulation, running

from ..laws.recipes import assert_same_bits, assert_same_tensors
from ..tiny import SIZES, classification

N = len(SIZES)
DATA = classification()
LOCAL = Sgd(lr=0.3, steps=2, batch_size=8)
POPULATION = Population(Bernoulli(0.6), speed=Speed(compute=delay.Uniform(1, 2), per="task"))
RECIPES = {
    "norms": compose(LOCAL, ByGradientNorm(3)),
    "two cohorts": folb_two_set(LOCAL, cohort_size=3),
    "with replacement": compose(LOCAL, WithReplacement(4)),
    "scaffold": compose(LOCAL, Scaffold()),
    "prepared": scaffold_p(LOCAL, also=(Uniform(3),)),
    "told": mw_fed(LOCAL, also=(AllAvailable(),)),
}


def simulation(name, pace, population=POPULATION, rounds=6, **options):
    return Simulation(
        Experiment(
            DATA, models.Mlp(hidden=(8,)), RECIPES[name], population, pace, rounds=rounds, evaluate_every=3, **options
        )
    )


def trained(made, until=6):
    while made.state.version < until:
        made.round()
    return made


@pytest.mark.parametrize("name", RECIPES)
def test_rounds_without_missed_deadlines_equal_synchronous_rounds(name):
    by_clock, in_step = (trained(simulation(name, pace)) for pace in (Rounds(deadline=1e9), Rounds()))
    assert_same_tensors({"params": by_clock.state.params}, {"params": in_step.state.params})
    assert_same_tensors(by_clock.memory.state(), in_step.memory.state())
    for place, slot in in_step.state.slots.items():
        assert_same_tensors(by_clock.state.slots[place], slot)
    ours = by_clock.history
    for column in in_step.history.column_names:
        if column not in ("seconds", "simulated_seconds"):
            np.testing.assert_array_equal(ours.column(column), in_step.history.column(column), err_msg=column)
    assert (ours.column("simulated_seconds")[1] < 1e3).all()


@pytest.mark.parametrize("name", ["two cohorts", "prepared"])
def test_resumed_run_with_late_and_dropped_clients_is_equal(name, tmp_path):
    population = replace(POPULATION, availability=Markov(0.7), dropout=Dropout(0.2), seconds_per_round=3.0)
    whole = trained(simulation(name, Rounds(deadline=1.7), population))
    assert whole.history.total("num_unused") > 0
    cut = trained(simulation(name, Rounds(deadline=1.7), population), until=3)
    running.save_simulation(cut, tmp_path)
    again = simulation(name, Rounds(deadline=1.7), population)
    running.restore(again, tmp_path)
    assert_same_bits(trained(again), whole)
    np.testing.assert_array_equal(again.history.column("bytes_up"), whole.history.column("bytes_up"))


def test_late_clients_keep_their_control_variates():
    """Hence c = mean of c_k, in float64 sums of float32 rows."""
    made = trained(simulation("prepared", Rounds(deadline=1.5), replace(POPULATION, dropout=Dropout(0.2))))
    own = made.memory.gather(np.arange(N))["control"].double()
    assert made.history.total("num_unused") > 0
    np.testing.assert_allclose(made.state.slots["controls"]["control"], own.mean(dim=0), atol=1e-6)


def test_every_phase_has_its_own_duration():
    """With steps of 1 second: two to prepare, two to train; one for a gradient, and two to train."""
    steady = Population(speed=Speed(compute=delay.Constant(1.0)))
    seconds = {
        name: trained(simulation(name, Rounds(deadline=100.0), steady), 2).history.column("simulated_seconds")[1]
        for name in ("prepared", "norms")
    }
    np.testing.assert_allclose(seconds["prepared"], [4.0, 2.0])
    np.testing.assert_allclose(seconds["norms"], [3.0, 3.0])
