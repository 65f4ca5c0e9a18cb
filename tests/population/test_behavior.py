"""Byzantine behavior is a function of (seed, version, client)."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from turnout import ConfigurationError, Experiment, Population, Sgd, models, scaffold
from turnout.population.behavior import Byzantine, scaled_updates, sign_flipping
from turnout.population.behavior.attacks import InnerProduct
from turnout.simulation import Simulation

from ..tiny import classification, report

N = 40


def reports(clients=None, num_params=2000, version=3):
    clients = np.arange(N) if clients is None else np.asarray(clients)
    rows = torch.randn(N, num_params, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    seen = {
        "loss": torch.ones(len(clients)),
        "appeal_gap": torch.zeros(len(clients)).double(),
        "other": torch.ones(len(clients)),
    }
    return report(clients, rows[clients], version=version, seen=seen)


def test_corrupt_clients_are_drawn_once_by_seed():
    attack = Byzantine(0.25)
    attackers = attack.bind(N, seed=1).attackers
    assert attackers.sum() == 10
    assert (attackers == attack.bind(N, seed=1).attackers).all()
    assert (attackers != attack.bind(N, seed=2).attackers).any()
    assert not Byzantine(0.0).bind(N).attackers.any()
    assert Byzantine(1.0).bind(N).attackers.all()


def test_honest_clients_are_unchanged():
    bound, before = Byzantine(0.25).bind(N), reports()
    after = bound.sent(before)
    honest = torch.from_numpy(~bound.attackers)
    assert torch.equal(after.delta[honest], before.delta[honest])
    for name in before.seen:
        assert torch.equal(after.seen[name][honest], before.seen[name][honest])
    assert before.seen["loss"].tolist() == [1.0] * N  # nor what the client itself holds
    nobody = before.take(np.flatnonzero(~bound.attackers))
    assert bound.sent(nobody) is nobody


def test_losses_and_updates_have_the_requested_corruption():
    bound, before = Byzantine(0.25, inflation=7.0, noise=0.5).bind(N), reports()
    after, attackers = bound.sent(before), torch.from_numpy(bound.attackers)
    assert after.seen["loss"][attackers].tolist() == [8.0] * 10
    assert after.seen["appeal_gap"][attackers].tolist() == [7.0] * 10
    assert torch.equal(after.seen["other"], before.seen["other"])
    noise = (after.delta - before.delta)[attackers]
    relative = noise.norm(dim=1) / before.delta[attackers].norm(dim=1)
    torch.testing.assert_close(relative, torch.full((10,), 0.5, dtype=torch.float64), rtol=0.1, atol=0)
    unit = noise / noise.std(dim=1, keepdim=True)
    assert unit.mean().abs() < 0.02
    assert (unit**4).mean() == pytest.approx(3.0, rel=0.05)  # as a Gaussian's
    correlated = torch.corrcoef(noise) - torch.eye(10)
    assert correlated.abs().max() < 0.12


def test_noise_depends_only_on_seed_version_and_client():
    attack = Byzantine(1.0)
    together = attack.bind(N).sent(reports()).updates.gathered()
    alone = attack.bind(N).sent(reports([7, 3])).updates.gathered()
    assert torch.equal(alone, together[[7, 3]])
    for other in (attack.bind(N, seed=1).sent(reports()), attack.bind(N).sent(reports(version=4))):
        assert (other.delta - together).abs().min(dim=1).values.max() > 0
        assert not torch.equal(other.updates.gathered(), together)


def test_sign_flips_and_scales():
    before = reports()
    assert torch.equal(sign_flipping(1.0).bind(N).sent(before).updates.gathered(), -before.updates.gathered())
    assert torch.equal(
        scaled_updates(1.0, scale=4.0).bind(N).sent(before).updates.gathered(), 4 * before.updates.gathered()
    )
    assert torch.equal(sign_flipping(1.0).bind(N).sent(before).seen["loss"], before.seen["loss"])


def test_measurement_reports_are_unchanged():
    before = replace(reports(), delta=torch.zeros(N, 0, dtype=torch.float64))
    after = Byzantine(1.0).bind(N).sent(before)
    assert after.delta.shape == (N, 0)
    assert (after.seen["appeal_gap"] == 100.0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fraction": 1.5}, r"fraction: got 1\.5, needed a probability"),
        ({"inflation": -1.0}, r"inflation: got -1\.0, needed a finite number >= 0"),
        ({"noise": float("nan")}, r"noise: got nan, needed a finite number >= 0"),
        ({"scale": float("inf")}, r"scale: got inf, needed a finite number"),
        ({"inflation": 0, "noise": 0}, r"this attack changes nothing: write inflation, noise or scale"),
    ],
)
def test_invalid_attacks_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Byzantine(**options)


@pytest.mark.parametrize(
    "attack",
    [
        Byzantine(0.5, scale=1e39),
        Byzantine(0.5, scale=-1e308, noise=0.0),
        Byzantine(0.5, inflation=1e39, noise=1e300),
        InnerProduct(0.5, scale=1e300),
    ],
)
def test_overflowing_attack_keeps_the_mean_of_control_variates(attack):
    """Attackers send finite values, so the server accepts their changes."""
    data = classification()
    algorithm, population = scaffold(Sgd(lr=0.1, steps=2), cohort_size=5), Population(behavior=attack)
    run = Simulation(Experiment(data, models.Logistic(), algorithm, population))
    clients = np.arange(data.num_clients)
    for _ in range(3):
        run.round()
    own = run.memory.gather(clients)["control"].double()
    np.testing.assert_allclose(run.state.slots["controls"]["control"], own.mean(dim=0), atol=1e-6)
    assert own.norm() > 0.1


def test_overflow_is_clamped_and_non_finite_updates_pass_through():
    before = reports()
    before = replace(before, delta=before.delta.float(), seen={"loss": torch.ones(N), "start_loss": torch.ones(N)})
    before.updates.gathered()[3, 5], before.seen["loss"][4] = torch.nan, torch.inf
    after = Byzantine(1.0, scale=-1e300, inflation=1e39, noise=0.0).bind(N).sent(before)
    largest = torch.finfo(torch.float32).max
    assert after.delta[0].abs().unique().tolist() == [largest]
    assert (after.delta[0].sign() == -before.delta[0].sign()).all()
    assert after.seen["start_loss"].tolist() == [largest] * N
    assert after.finite().tolist() == [row not in (3, 4) for row in range(N)]


def test_colluding_attackers_with_non_finite_updates_send_them_unchanged():
    before = reports()
    bound = InnerProduct(0.5).bind(N)
    rows = np.flatnonzero(bound.attackers)
    before.updates.gathered()[rows[0], 0] = torch.nan
    after = bound.colluded(before, lambda report: report.delta[0])
    assert after.finite().tolist() == [row != rows[0] for row in range(N)]
    assert not torch.equal(after.delta[rows[1]], before.delta[rows[1]])
