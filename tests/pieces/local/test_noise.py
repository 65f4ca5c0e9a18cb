"""Synthetic gradient noise."""

import math

import numpy as np
import pytest
import torch

from turnout import ConfigurationError, Experiment, Sgd, compose, models
from turnout.pieces.local import GradientNoise, Inexactness, Scaffold, UniformWork
from turnout.pieces.personalization import Personal
from turnout.simulation import Simulation

from ...phases import train

N = 8
EVERYONE = np.arange(N)
SHARED, HEAD = 16 * 40 + 40, 40 * 4 + 4
ONE_EXACT_STEP = Sgd(lr=1.0, steps=1, batch_size=64)


def simulation_of(data, *pieces, local=ONE_EXACT_STEP, **options):
    algorithm = compose(local, *pieces, Personal())
    return Simulation(Experiment(data, models.Mlp(hidden=(40,)), algorithm, evaluate_every=100, **options))


def noise_of(simulation):
    """Return the noise in one exact step of size one, ``[N, P]``: shared and personal part."""
    plain = simulation_of(simulation.experiment.data)
    plain.server.state = simulation.state
    first = simulation.memory.gather(EVERYONE)["personal"], plain.memory.gather(EVERYONE)["personal"]
    sent = train(simulation, EVERYONE).delta - train(plain, EVERYONE).delta
    kept = [run.memory.gather(EVERYONE)["personal"] - at for run, at in zip((simulation, plain), first, strict=True)]
    return sent, kept[0] - kept[1]


def test_noise_is_normal_with_the_expected_variance_per_part(tiny):
    shared, personal = noise_of(simulation_of(tiny, GradientNoise(shared=3.0, personal=0.5)))
    for noise, sigma, size in ((shared, 3.0, SHARED), (personal, 0.5, HEAD)):
        assert noise.shape == (N, size)
        one = noise.double().flatten() / (sigma / math.sqrt(size))
        assert abs(one.mean()) < 4 / math.sqrt(len(one))
        assert abs(one.square().mean() - 1) < 4 * math.sqrt(2 / len(one))
        assert abs((one.abs() < 1).double().mean() - 0.6827) < 4 * math.sqrt(0.25 / len(one))
        assert torch.isfinite(one).all()
    assert shared.square().sum(dim=1).mean() == pytest.approx(9.0, rel=0.1)  # the variance of the whole part


def test_zero_noise_changes_no_bit(tiny):
    for options, exact in (({"shared": 1.0}, 1), ({"personal": 1.0}, 0)):
        parts = noise_of(simulation_of(tiny, GradientNoise(**options)))
        assert not parts[exact].any()
        assert parts[1 - exact].all()
    quiet = train(simulation_of(tiny, GradientNoise()), EVERYONE).updates.gathered()
    assert torch.equal(quiet, train(simulation_of(tiny), EVERYONE).updates.gathered())


def test_noise_differs_by_client_step_round_and_seed(tiny):
    simulation = simulation_of(tiny, GradientNoise(shared=1.0))
    first, _ = noise_of(simulation)
    simulation.round()
    second, _ = noise_of(simulation)
    other, _ = noise_of(simulation_of(tiny, GradientNoise(shared=1.0), seed=5))
    rows = torch.cat([first, second, other]).double()
    alike = torch.corrcoef(rows) - torch.eye(3 * N)
    assert alike.abs().max() < 6 / math.sqrt(SHARED)


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_noise_does_not_depend_on_other_clients(tiny, engine):
    """Also for unequal numbers of steps."""
    local = Sgd(lr=0.1, steps=UniformWork(1, 5), batch_size=8)
    together = train(simulation_of(tiny, GradientNoise(1.0, 1.0), local=local, engine=engine), EVERYONE)
    alone = simulation_of(tiny, GradientNoise(1.0, 1.0), local=local, engine=engine)
    for k in range(N):
        assert torch.equal(train(alone, np.array([k])).delta[0], together.delta[k])


def test_later_control_variates_include_the_noise(tiny):
    """The mean gradient of the steps is noisy or exact, depending on the order."""
    before, after = (GradientNoise(shared=1.0), Scaffold()), (Scaffold(), GradientNoise(shared=1.0))
    sent, controls = [], []
    for pieces in ((Scaffold(),), before, after):
        simulation = simulation_of(tiny, *pieces)
        sent.append(train(simulation, EVERYONE).delta)
        controls.append(simulation.memory.gather(EVERYONE)["control"])
    assert torch.equal(sent[1], sent[2])
    torch.testing.assert_close(controls[1], -sent[1], rtol=1e-4, atol=1e-6)
    assert torch.equal(controls[2], controls[0])
    assert (controls[1] - controls[0]).norm() > 1.0


def test_inexactness_ignores_the_noise(tiny):
    """For a client that did not move, the ratio of the two norms is one."""
    local = Sgd(lr=1e-12, steps=1, batch_size=64)
    report = train(simulation_of(tiny, GradientNoise(5.0), Inexactness(), local=local), EVERYONE)
    torch.testing.assert_close(report.seen["inexactness"], torch.ones(N, dtype=torch.float64), rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", ["shared", "personal"])
def test_negative_noise_is_refused(name):
    with pytest.raises(ConfigurationError, match=f"{name}: got -1"):
        GradientNoise(**{name: -1.0})
