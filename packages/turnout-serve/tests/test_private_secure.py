"""Masks and noise at once between machines: the bits of a simulation, noise of a secret, and rounds that do not open."""

import json
import logging
from dataclasses import replace
from functools import partial

import pytest
import torch
from tests.laws.recipes import DATA
from tests.tiny import report

import turnout as to
from turnout import privacy
from turnout.pieces.aggregation import PrivateSum, SecureSum, private_shares, private_sum, round_noise
from turnout.privacy.noise import server_words
from turnout.protocol.secure.masker import Masker
from turnout.simulation import Simulation
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.run.noise import RELEASES, Noise
from turnout_serve.server.run.served_experiment import ServedExperiment
from turnout_serve.wire.assignment import plain_row
from turnout_serve.wire.format import read_manifest

from .test_privacy import advance, backup, restored
from .test_secure_sum import run_without
from .world import FIVE, LOCAL, turn_without

Z, ROUNDS = 0.5, 2
SECURE = SecureSum(fraction_bits=20, largest=1.0)
PIECE = PrivateSum(norm=0.3, noise_multiplier=Z, secure=SECURE)
EVERYONE = to.Population(to.availability.Everyone())


def run(piece=PIECE, rounds=ROUNDS, recipe=to.fedau, population=EVERYONE, data=FIVE):
    algorithm = recipe(LOCAL, also=(piece,))
    return to.Experiment(data, to.models.Logistic(), algorithm, population, rounds=rounds, evaluate_every=2)


@pytest.fixture
def same_noise(monkeypatch):
    """Noise of the seed on a server too, so that it can be held against a simulation."""
    monkeypatch.setattr(
        round_noise,
        "server_words",
        lambda purpose, known, number: server_words(purpose, replace(known, secret=None), number),
    )


def simulated(experiment):
    simulation = Simulation(experiment)
    for _ in range(experiment.rounds):
        simulation.round()
    return simulation


def epsilons(deployed):
    return deployed.host.driver.ledger.history.column("epsilon")[1].tolist()


KINDS = {
    "fedau": (to.fedau, PIECE),
    "correlated": (to.average_all, replace(PIECE, correlation=to.privacy.BandedSquareRoot(2), rounds=ROUNDS)),
    "blt": (to.fedau, replace(PIECE, correlation=to.privacy.BufferedToeplitz(2), rounds=ROUNDS)),
    "a mean": (to.average_participating, replace(PIECE, cohort=5)),
}


@pytest.mark.usefixtures("same_noise")
@pytest.mark.parametrize("kind", KINDS)
def test_deployment_equals_simulation_bit_for_bit(world, kind):
    recipe, piece = KINDS[kind]
    experiment = run(piece, recipe=recipe)
    deployed = world(experiment).run()
    reference = simulated(experiment)
    assert torch.equal(deployed.host.driver.params, reference.state.params)
    assert epsilons(deployed) == pytest.approx(reference.history.rounds["epsilon"].to_pylist())
    visible = {each.kind: each.what for each in ServedExperiment.of(experiment).visible}
    assert "updates" not in visible
    assert "masked" in visible["sums"]


@pytest.mark.usefixtures("same_noise")
@pytest.mark.parametrize("phase", ["share", "mask", "open"])
def test_client_dropped_before_masking_is_not_in_the_sum(world, phase):
    deployed = world(run(rounds=1))
    run_without(deployed, deployed.homes[2], phase)
    took_part = deployed.host.driver.ledger.history.participation["client"].to_pylist()
    assert took_part == [c for c in range(5) if c != 2 or phase == "open"]
    there = to.Population(to.availability.Trace(tuple((c, 0, 1) for c in took_part)))
    assert torch.equal(deployed.host.driver.params, simulated(run(rounds=1, population=there)).state.params)
    assert epsilons(deployed) == [privacy.epsilon(privacy.Release(Z), 1, 1e-5)]


def test_unopened_sum_has_noise_and_costs_budget(world):
    """What the server publishes of it is noise of a secret, which a replay adds again, and counts as any other round."""
    deployed = world(run(replace(PIECE, secure=replace(SECURE, threshold=1.0)), rounds=1, data=DATA))
    before = deployed.host.driver.params.clone()
    run_without(deployed, deployed.homes[2], "open")
    moved = deployed.host.driver.params - before
    assert deployed.host.driver.version == 1
    assert not len(deployed.host.driver.ledger.history.participation)
    assert float(moved.double().std()) == pytest.approx(0.3 * Z / 8, rel=0.3)
    assert epsilons(deployed) == [privacy.epsilon(privacy.Release(Z), 1, 1e-5)]
    again = replay(deployed.setting, deployed.folder)
    assert torch.equal(again.driver.params, deployed.host.driver.params)
    assert json.loads((deployed.folder / RELEASES).read_text())["releases"] == 1


def test_restart_during_a_sum_continues(world):
    """Before each phase of the second round another server process takes over, with a fresh secret for what is to come."""
    deployed, phases, secrets = world(run(), checkpoint_every=0.0), set(), set()
    for _ in range(60):
        for home in deployed.homes:
            held = deployed.host.driver.task_of(home.state.client)
            if held is not None and held.version == 1 and held.phase not in phases:
                phases.add(held.phase)
                deployed.restart()
                secrets.add(deployed.host.driver.budget.noise.secret)
            if home.over is None:
                home.turn(deployed.host)
        deployed.clock.now += 1.0
        deployed.host.pump()
    driver = deployed.host.driver
    assert phases == {"train", "share", "mask", "open"}
    assert len(secrets) == 4
    assert driver.version == ROUNDS
    assert driver.budget.noise.lost == ()
    assert driver.ledger.history.participation["client"].to_pylist() == [*range(5)] * ROUNDS
    deployed.host.close()
    assert torch.equal(replay(deployed.setting, deployed.folder).driver.params, driver.params)


def test_restored_copy_draws_new_noise_and_counts_lost_releases(world):
    deployed = world(run(rounds=4))
    advance(deployed, 1)
    copy = backup(deployed)
    advance(deployed, 3)
    first = deployed.host.driver.params.clone()
    restored(deployed, copy)
    assert deployed.host.driver.budget.noise.lost == ((1, 3),)
    advance(deployed, 3)
    assert not torch.allclose(deployed.host.driver.params, first, atol=1e-3)
    assert epsilons(deployed)[-1] == pytest.approx(privacy.epsilon(privacy.Release(Z), 3 + 2, 1e-5))


def test_noise_depends_on_every_message_of_the_round(world, monkeypatch):
    """Another masked update in the place of one, in a copy of the server's memory, has other noise in its sum."""
    seen, after = [], Noise.after

    def spied(noise, reports, digests):
        seen.append(list(digests))
        return after(noise, reports, seen[-1])

    monkeypatch.setattr(Noise, "after", spied)
    deployed = world(run(rounds=1)).run()
    bodies = [path.read_bytes() for path in deployed.host.store.files.reports.iterdir()]
    kinds = [next(iter(read_manifest(body))) for body in bodies]
    assert len(bodies) == 4 * 5
    assert kinds.count("masked") == 5
    assert set(seen[0]) == {path.stem for path in deployed.host.store.files.reports.iterdir()}


@pytest.mark.usefixtures("same_noise")
def test_update_with_nan_is_masked_as_zeros(world):
    """A client that gave up would tell of its data, and so would the sums that do not open without it."""
    deployed = world(run(rounds=1))
    worker = deployed.homes[3].client.trainer
    announce = worker._phases.announce

    def poisoned(client, version, report, memory):
        return announce(client, version, replace(report, delta=report.delta * torch.nan), memory)

    worker._phases.announce = poisoned
    deployed.run()
    assert deployed.host.driver.ledger.history.participation["client"].to_pylist() == [*range(5)]
    there = to.Population(to.availability.Trace(tuple((c, 0, 1) for c in range(5) if c != 3)))
    assert torch.equal(deployed.host.driver.params, simulated(run(rounds=1, population=there)).state.params)


def test_masked_update_is_within_the_norm():
    """The codes of an update that is far too long, under masks that are known here, stand for a vector within the norm."""
    assert PIECE.extra is not None
    masker = Masker(PIECE.extra)
    update = torch.full((1, 300), 1e4)
    assert masker.announce(0, 0, replace(report([0], update), delta=update), {}) is not None
    found = masker._encoded(7.0, report([0], update))
    length = float(torch.from_numpy(SECURE.code.decode(found)).norm())
    assert 0.29 < length <= 0.3


SHARES = PrivateSum(norm=0.3, noise_multiplier=Z, noise_shares=5, dropouts=1, secure=replace(SECURE, fraction_bits=16))


def test_noise_of_clients_equals_simulation_and_is_independent(world, folder, monkeypatch):
    """Where clients draw from the seed; where they draw from their operating systems, no two runs are alike."""
    one, other = (world(run(SHARES, rounds=2), folder=folder / name).run() for name in "ab")
    assert not torch.allclose(one.host.driver.params, other.host.driver.params, atol=1e-3)
    assert torch.equal(replay(one.setting, one.folder).driver.params, one.host.driver.params)
    drawn = private_shares.with_noise_under_masks
    monkeypatch.setattr(
        private_sum, "with_noise_under_masks", lambda piece, values, report, _: drawn(piece, values, report, 0)
    )
    deployed = world(run(SHARES, rounds=2), folder=folder / "c").run()
    reference = simulated(run(SHARES, rounds=2))
    assert torch.equal(deployed.host.driver.params, reference.state.params)
    release = privacy.Release(Z, is_discrete=True)
    assert epsilons(deployed) == [privacy.epsilon(release, k, 1e-5) for k in (1, 2)]


@pytest.mark.parametrize(("gone", "opens"), [(1, True), (2, False)])
def test_server_opens_no_sum_with_too_little_noise(world, gone, opens):
    """As many drop-outs as the margin before they mask, and one more."""
    deployed = world(run(SHARES, rounds=1))
    left = deployed.homes[:gone]
    for _ in range(40):
        turn_without(deployed, left, "mask")
    history = deployed.host.driver.ledger.history
    assert deployed.host.driver.version == 1
    assert history.participation["client"].to_pylist() == ([*range(gone, 5)] if opens else [])
    assert float(deployed.host.driver.params.double().std()) > 0.3 * Z / 5 * 0.8
    assert epsilons(deployed) == [privacy.epsilon(privacy.Release(Z, is_discrete=True), 1, 1e-5)]


def test_clients_open_no_sum_with_too_little_noise(world, caplog):
    """The attack: a server asks for the secrets of a sum of three, of which the settings say four."""
    deployed = world(run(SHARES, rounds=1))
    asked = []

    def lie(client, task, model, memory, do):
        if task.phase == "open":
            asked.append(client)
            secrets = task.tensors()
            task = replace(task, told=plain_row(secrets | {"there": secrets["there"][:, :2]}, 0))
        return do(client, task, model, memory)

    for home in deployed.homes:
        home.client.trainer.do = partial(lie, do=home.client.trainer.do)
    with caplog.at_level(logging.WARNING, "turnout.client"):
        for _ in range(10):
            deployed.round()
    assert sorted(asked) == [*range(5)]
    reasons = {record.reason for record in caplog.records if "drops out" in record.message}
    assert reasons == {"the server opens a sum of 3 clients, and by the run's settings it has 4 at least"}
    assert not len(deployed.host.driver.ledger.history.participation)
