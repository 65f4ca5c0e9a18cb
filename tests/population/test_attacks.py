"""Colluding attackers send the updates of their papers, and other reports do not change."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.pieces.aggregation.byzfl import F, vectors

from turnout import ConfigurationError, Population, Sgd, average_participating, fedavg, mifa
from turnout.pieces.aggregation import Krum, NearestNeighbors, TrimmedMean
from turnout.population import (
    ALittleIsEnough,
    InnerProduct,
    LabelFlipping,
    Mimic,
    WorstCase,
    random_updates,
    sign_flipping,
)
from turnout.population.behavior import Attack, BoundAttack
from turnout.simulation import Simulation

from ..laws.recipes import experiment, trained
from ..tiny import federation, report

THEIRS = json.loads((Path(__file__).parents[1] / "pieces/aggregation/byzfl.json").read_text())
WHO = np.arange(11) < F


def sent(attack, x, rule=None):
    """The rows after three of eleven have attacked."""
    known, even = federation(11, x.shape[1]), torch.full((11,), 1 / 11, dtype=torch.float64)

    def direction(reports):
        return even @ reports.delta if rule is None else rule.apply(even, reports, {}, known)[0]

    one = report(range(11), torch.from_numpy(x))
    found = BoundAttack(attack, WHO, 0).colluded(one, direction).delta.numpy()
    np.testing.assert_array_equal(found[F:], x[F:])
    assert (found[:F] == found[0]).all()
    return found[0]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("name", "attack"), [("inner_product", InnerProduct(scale=2.0)), ("a_little_is_enough", ALittleIsEnough(z=1.5))]
)
def test_updates_equal_byzfl(name, attack, seed):
    np.testing.assert_allclose(sent(attack, vectors(seed)), THEIRS[seed][f"attack: {name}"], rtol=1e-12)


def test_little_is_enough_uses_the_papers_z():
    """n = 11, m = 3: s = 6 - 3 = 3 supporters of 8, so z = Phi^-1(5/8)."""
    x = vectors(0)
    z = (sent(ALittleIsEnough(), x) - x[F:].mean(axis=0)) / x[F:].std(axis=0, ddof=1)
    np.testing.assert_allclose(z, 0.3186393639643752)


def test_mimic_copies_the_outermost_client():
    x = vectors(1)
    x[7] += 50.0
    np.testing.assert_array_equal(sent(Mimic(), x), x[7])


@pytest.mark.parametrize("rule", [TrimmedMean(0.3), Krum(0.3), TrimmedMean(0.3, NearestNeighbors())], ids=str)
def test_optimized_attack_is_worse_than_fixed_sizes(rule):
    x, known, even = vectors(2), federation(11, 6), torch.full((11,), 1 / 11, dtype=torch.float64)
    honest = x[F:].mean(axis=0)

    def harm(update):
        rows = np.concatenate([np.tile(update, (F, 1)), x[F:]])
        return np.linalg.norm(
            rule.apply(even, report(range(11), torch.from_numpy(rows)), {}, known)[0].numpy() - honest
        )

    worst = harm(sent(WorstCase(evaluations=30), x, rule))
    assert worst >= max(harm(sent(a, x)) for a in (InnerProduct(scale=2.0), InnerProduct(scale=0.1), ALittleIsEnough()))
    assert worst > 0.1


def test_attack_has_bounded_effect_on_robust_aggregations():
    x = vectors(0)
    assert np.linalg.norm(sent(WorstCase(evaluations=60), x)) > 1e4


def test_single_attacker_is_refused():
    one = report([0, 1, 2], torch.ones(3, 4).double())
    bound = BoundAttack(Mimic(), np.ones(3, dtype=bool), 0)
    assert bound.colluded(one, lambda _: torch.ones(4)) is one
    assert BoundAttack(sign_flipping(0.5), np.ones(3, dtype=bool), 0).colluded(one, lambda _: torch.ones(4)) is one


@pytest.mark.parametrize("attack", [sign_flipping(0.1), LabelFlipping(0.1), Mimic(0.1)])
def test_share_of_attackers_that_is_rounded_to_none_is_refused(attack):
    with pytest.raises(
        ConfigurationError,
        match=r"fraction of attackers: got 0\.1, needed a share that is at least one of 4 clients when",
    ):
        attack.bind(4)
    assert attack.bind(6).attackers.sum() == 1
    assert not replace(attack, fraction=0.0).bind(4).attackers.any()


def test_label_flips_affect_only_attackers_training_data():
    run = experiment("fedavg", population=Population(behavior=LabelFlipping(0.25)), rounds=1)
    simulation = Simulation(run)
    assert simulation.behavior is not None
    own, true = simulation.workspace.data.train.y, run.data.train.y
    assert run.data.num_classes == 16
    for k in range(8):
        rows = slice(*run.data.train.offsets[k : k + 2])
        expected = 15 - true[rows] if simulation.behavior.attackers[k] else true[rows]
        assert torch.equal(own[rows], expected)
    assert torch.equal(simulation.workspace.data(run.data.train).y, true)


@pytest.mark.parametrize("attack", [ALittleIsEnough(0.25), Mimic(0.25), WorstCase(0.25, evaluations=4)], ids=str)
def test_memory_budget_does_not_change_an_attack(attack):
    run = experiment("fedau", population=Population(behavior=attack), rounds=3)
    one, other = trained(run), trained(run, lanes=3)
    assert torch.equal(one.state.params, other.state.params)
    honest = trained(replace(run, population=Population()))
    assert (one.state.params - honest.state.params).norm() > 1e-3


@dataclass(frozen=True)
class Overstated(Attack):
    """Attackers that claim more steps than any task has."""

    def corrupted(self, report, rows, key):
        num_steps = report.num_steps.copy()
        num_steps[rows] = 1 << 40
        return replace(report, num_steps=num_steps)


@pytest.mark.parametrize("name", ["fednova", "scaffold", "fedau of secure sums"])
def test_claimed_steps_beyond_a_task_are_dropped(name):
    """FedNova multiplies a step by their mean. Such a report counts as one with NaN, whatever clients train together."""
    run = experiment(name, population=Population(behavior=Overstated(0.25)), rounds=2)
    one, other = trained(run), trained(run, lanes=3)
    assert torch.equal(one.state.params, other.state.params)
    assert one.history.total("num_dropped") > 0
    honest = trained(replace(run, population=Population()))
    assert (one.state.params - honest.state.params).norm() < 1.0


def test_random_updates_have_the_norm_of_the_honest_update():
    x = torch.from_numpy(vectors(0)).repeat(1, 100)
    found = random_updates(1.0).bind(11).sent(report(range(11), x)).updates.gathered()
    torch.testing.assert_close(found.norm(dim=1), x.norm(dim=1), rtol=0.1, atol=0)
    assert torch.nn.functional.cosine_similarity(found, x).abs().max() < 0.2


def test_invalid_arguments_raise():
    local = Sgd(lr=0.1, steps=1)
    for make, message in (
        (lambda: ALittleIsEnough(z=0.0), "z: got 0.0"),
        (lambda: ALittleIsEnough(1.5), "fraction: got 1.5"),
        (lambda: InnerProduct(scale=-1.0), "scale: got -1.0"),
        (lambda: WorstCase(evaluations=0), "evaluations: got 0"),
        (lambda: LabelFlipping().poisoned(torch.ones(3), 2), "behavior: LabelFlipping flips classes"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            make()
    run = experiment("fedavg", population=Population(behavior=WorstCase(0.5)), rounds=1)
    with pytest.raises(ConfigurationError, match="behavior: Mifa keeps the updates of every client"):
        Simulation(replace(run, algorithm=mifa(local))).round()
    assert fedavg(local).sums_early
    assert average_participating(local).sums_early
