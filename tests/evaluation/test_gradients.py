"""Gradients over all clients."""

import numpy as np
import pytest
import torch
from torch import nn

from turnout import ConfigurationError, Experiment, GradientMetrics, Sgd, average_participating, fedavg_p, models
from turnout.simulation import Simulation

NAMES = ("squared_shared_gradient_norm", "squared_personal_gradient_norm", "squared_gradient_norm")
MODEL = models.Mlp(hidden=(6,))
LOCAL = Sgd(lr=0.2, steps=3, batch_size=8)


def by_hand(simulation):
    """Return all clients' gradients by plain autograd: of the shared layer and of the head."""
    module, found = simulation.experiment.build_model(), ([], [])
    for k in range(8):
        simulation.objective.layout.load(module, simulation.models.serving(np.array([k]))[0])
        x, y = simulation.experiment.data.train.client(k)
        names = ("hidden1.weight", "hidden1.bias", "output.weight", "output.bias")
        named, loss = dict(module.named_parameters()), nn.functional.cross_entropy(module(x), y)
        parts = [g.flatten().double() for g in torch.autograd.grad(loss, [named[name] for name in names])]
        for part, gradients in zip(found, (parts[:2], parts[2:]), strict=True):
            part.append(torch.cat(gradients))
    return torch.stack(found[0]), torch.stack(found[1])


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_figures_equal_those_of_the_theorems(tiny, engine):
    run = Experiment(
        tiny,
        MODEL,
        fedavg_p(LOCAL, cohort_size=3),
        rounds=4,
        evaluate_every=4,
        gradients=GradientMetrics(),
        engine=engine,
    )
    simulation = Simulation(run)
    for _ in range(4):
        simulation.round()
    shared, personal = by_hand(simulation)
    g_u, g_v = float(shared.mean(dim=0).square().sum()), float(personal.square().sum(dim=1).mean())
    row = simulation.evaluate()
    assert [row[name] for name in NAMES] == pytest.approx([g_u, g_v, g_u + 3 / 8 * g_v], rel=1e-4)
    assert simulation.history.column(NAMES[2])[1].tolist() == [row[NAMES[2]]]
    few = Simulation(run)
    few.workspace.lanes = 3
    for _ in range(4):
        few.round()
    assert few.evaluate() == row


def test_without_personal_part_it_is_the_full_gradient(tiny):
    run = Experiment(tiny, MODEL, average_participating(LOCAL), gradients=GradientMetrics(), rounds=1)
    simulation = Simulation(run)
    whole = torch.cat(by_hand(simulation), dim=1).mean(dim=0).square().sum()
    row = simulation.evaluate()
    assert row[NAMES[0]] == row[NAMES[2]] == pytest.approx(float(whole), rel=1e-4)
    assert NAMES[1] not in row


@pytest.mark.parametrize(
    ("metrics", "cohort_size", "share"),
    [
        (GradientMetrics(), None, 1.0),
        (GradientMetrics(), 4, 0.4),
        (GradientMetrics(), 40, 1.0),
        (GradientMetrics(participants=2), 4, 0.2),
    ],
)
def test_gradient_over_a_share_of_clients(metrics, cohort_size, share):
    assert metrics.share(cohort_size, 10) == share


def test_invalid_options_raise(tiny):
    with pytest.raises(ConfigurationError, match="participants: got 0"):
        GradientMetrics(participants=0)
    with pytest.raises(ConfigurationError, match="gradients must be GradientMetrics"):
        Experiment(tiny, MODEL, gradients=True)  # type: ignore[arg-type]
