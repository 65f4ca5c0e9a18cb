"""FedBABU's head keeps its initial values, and new clients fine-tune it."""

from typing import Any, cast

import numpy as np
import pytest

from turnout import AdamW, ConfigurationError, Experiment, Sgd, compose, fedbabu, fedper, models
from turnout.data import digits
from turnout.data.partition import Dirichlet
from turnout.pieces.personalization import Frozen
from turnout.simulation import Simulation

from ...phases import train


def run(algorithm, rounds=10):
    data = digits().split(Dirichlet(0.3), num_clients=12, client_test_fraction=0.3, unseen_clients=4)
    simulation = Simulation(Experiment(data, models.Mlp(hidden=(16,)), algorithm, rounds=rounds, evaluate_every=rounds))
    for _ in range(rounds):
        simulation.round()
    simulation.finish()
    return simulation


@pytest.mark.parametrize("local", [Sgd(lr=0.2, momentum=0.5, weight_decay=0.1), AdamW(lr=0.01, weight_decay=0.0)])
def test_head_stays_fixed_and_body_moves(local):
    simulation = run(fedbabu(local, cohort_size=6))
    own = simulation.memory.gather(np.arange(8))["personal"]
    first = simulation.objective.initial[len(simulation.state.params) :]
    assert (own == first).all()
    assert (simulation.state.params - simulation.objective.initial[: len(simulation.state.params)]).norm() > 0.1


@pytest.mark.parametrize("tunes", ["all", "head"])
def test_fine_tuning_helps_new_clients(tunes):
    history = run(compose(Frozen(adaptation_steps=(1, 50), tunes=tunes), Sgd(lr=0.2))).history
    after = {k: history.column(f"unseen_after_{k}_train_loss")[1][-1] for k in (1, 50)}
    assert after[50] < 0.8 * after[1]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Frozen(tunes=cast("Any", "body")), "tunes"),
        (lambda: fedbabu(AdamW(weight_decay=0.1)), "Frozen freezes the head by a gradient of zero"),
    ],
)
def test_pattern_that_freezes_nothing_is_refused(make, why):
    with pytest.raises(ConfigurationError, match=why):
        make()


def test_head_is_not_sent():
    assert fedbabu().personal == Frozen()
    report = train(run(fedbabu(cohort_size=6), rounds=1), np.arange(3))
    whole = train(run(fedper(cohort_size=6), rounds=1), np.arange(3))
    assert report.delta.shape == whole.delta.shape
