"""Differential privacy between real machines: noise that no client can work out, and that a server that died adds again."""

import json
import os
import re
import shutil
import time
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load
from tests.tiny import report

from turnout import ConfigurationError, Population, average_all, average_participating, fedau, privacy
from turnout.core.checks import CheckpointError
from turnout.core.types import Federation
from turnout.data.shards import Shards
from turnout.experiment import Experiment
from turnout.models import Logistic
from turnout.pieces.aggregation import PrivateSum, round_noise
from turnout.pieces.guard import NoiseShare
from turnout.pieces.selection import Poisson
from turnout.population.availability import Everyone
from turnout.privacy import Answers, BandedSquareRoot, BufferedToeplitz, Release, buffered_toeplitz
from turnout.privacy.noise import GridNoise, server_words
from turnout.privacy.plan import _together
from turnout.simulation import Simulation
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.process import Server
from turnout_serve.server.run.deployable import check
from turnout_serve.server.run.noise import RELEASES, Noise
from turnout_serve.server.run.served_experiment import ServedExperiment
from turnout_serve.wire.format import encode

from .test_evaluate import held_out
from .test_hostile import put, task_of
from .world import DATA, LOCAL

ROUNDS = 4


def private(*pieces, recipe=fedau):
    return Experiment(DATA, Logistic(), recipe(LOCAL, also=pieces), Population(Everyone()), rounds=ROUNDS)


def test_noise_secret_is_in_the_journal_and_never_sent(world):
    run = private(PrivateSum(noise_multiplier=2.0, correlation=BandedSquareRoot(2), rounds=ROUNDS))
    deployed = world(run)
    while deployed.host.driver.version < 2:
        deployed.round()
    deployed.restart()  # from the journal, and checkpoints where there are any
    deployed.run()
    driver = deployed.host.driver
    secret = driver.budget.noise.secret
    assert secret != f"{driver.run.server.federation.secret:064x}"  # that of a step says nothing of others
    plan = run.algorithm.privacy
    assert plan is not None
    assert driver.ledger.history.column("epsilon")[1][-1] == privacy.epsilon(plan.release, ROUNDS, 1e-5)
    simulation = Simulation(run)
    for _ in range(ROUNDS):
        simulation.round()
    assert not torch.allclose(driver.params, simulation.state.params, atol=1e-3)  # whose noise follows from the seed
    assert int(secret, 16).bit_length() > 200
    for path in ("/", "/v1/run", "/v1/status", "/metrics"):
        answer = deployed.host.send("GET", path)
        assert answer.status == 200, path
        assert secret.encode() not in answer.body
    deployed.host.close()
    again = replay(deployed.setting, deployed.folder)
    assert torch.equal(again.driver.params, driver.params)


def advance(deployed, version):
    """Have clients report until the server has taken so many steps."""
    for _ in range(100):
        if deployed.host.driver.version >= version or deployed.host.driver.over:
            return
        deployed.round()
    raise AssertionError("no step")


def restored(deployed, copy, *also_lost):
    """Put a copy of the journal back as the guide says, and start the server again."""
    deployed.host.close()
    for path in deployed.folder.glob("journal.sqlite*"):
        path.unlink()
    for pattern in ("checkpoint*", *also_lost):
        for path in deployed.folder.glob(pattern):
            path.unlink()
    for path in copy.glob("journal.sqlite*"):
        shutil.copy(path, deployed.folder)
    deployed.restart()


def backup(deployed):
    """Copy the journal of a server that is stopped for it."""
    copy = deployed.folder / "backup"  # which is deleted with it
    deployed.host.close()
    copy.mkdir()
    for path in deployed.folder.glob("journal.sqlite*"):
        shutil.copy(path, copy)
    deployed.restart()
    return copy


@pytest.fixture
def draws(monkeypatch):
    """Random bits of the noise added to updates, by how many releases there were before, in the order of the draws."""
    found = defaultdict(list)

    def recorded(purpose, federation, release):
        found[release].append(server_words(purpose, federation, release)(torch.arange(8), 0))
        return server_words(purpose, federation, release)

    monkeypatch.setattr(round_noise, "server_words", recorded)
    return found


def epsilon_of(deployed):
    return deployed.host.driver.ledger.history.column("epsilon")[1][-1]


def test_restored_copy_draws_new_noise_and_counts_lost_releases(world, draws):
    """The same noise in two sums would give away their difference, and lost releases are out for good."""
    run = private(PrivateSum(noise_multiplier=2.0))
    release = Release(2.0)
    deployed = world(run)
    advance(deployed, 1)
    copy = backup(deployed)
    advance(deployed, 3)
    before = {release: noise[-1] for release, noise in draws.items()}
    draws.clear()
    restored(deployed, copy)
    assert torch.equal(draws[0][0], before[0])  # a step that the journal has, with the secret that it had then
    advance(deployed, 3)
    deployed.restart()
    assert epsilon_of(deployed) == pytest.approx(privacy.epsilon(release, 3 + 2, 1e-5))
    for number in (1, 2):
        assert not torch.equal(draws[number][0], before[number])
        assert torch.equal(draws[number][0], draws[number][-1])
    deployed.run()
    assert epsilon_of(deployed) == pytest.approx(privacy.epsilon(release, 4 + 2, 1e-5))
    deployed.host.close()
    assert torch.equal(replay(deployed.setting, deployed.folder).driver.params, deployed.host.driver.params)


def test_correlation_is_searched_once(world, monkeypatch):
    """What SciPy finds is in the journal, and another version may find something else."""
    deployed = world(private(PrivateSum(correlation=BufferedToeplitz(2), rounds=ROUNDS, budget=100.0)))
    advance(deployed, 2)
    monkeypatch.setattr(buffered_toeplitz, "_best", None)
    _together.cache_clear()
    for path in deployed.folder.glob("checkpoint*"):
        path.unlink()
    deployed.restart()
    deployed.run()
    deployed.host.close()
    assert torch.equal(replay(deployed.setting, deployed.folder).driver.params, deployed.host.driver.params)


def test_lost_releases_are_counted_after_repeated_restores(world):
    run = private(PrivateSum(noise_multiplier=2.0))
    deployed = world(run)
    advance(deployed, 1)
    copy = backup(deployed)
    for version in (3, 2):
        advance(deployed, version)
        restored(deployed, copy)
    assert deployed.host.driver.budget.noise.lost == ((1, 3), (1, 2))
    deployed.restart()
    assert deployed.host.driver.budget.noise.lost == ((1, 3), (1, 2))


def test_missing_releases_file_spends_the_remaining_budget(world):
    run = private(PrivateSum(noise_multiplier=2.0))
    deployed = world(run)
    advance(deployed, 1)
    restored(deployed, backup(deployed), RELEASES)
    deployed.restart()  # once more: they are lost once
    assert deployed.host.driver.budget.noise.lost == ((1, ROUNDS),)
    (deployed.folder / RELEASES).write_text("{")
    with pytest.raises(CheckpointError, match=r"releases.json is damaged.*counted as spent"):
        deployed.restart()


def _pipe(path):
    os.mkfifo(path)


def _sparse(path):
    with path.open("wb") as file:
        file.truncate(1 << 40)


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.with_name("whole").read_bytes()[:-5]),
    "a folder": Path.mkdir,
    "a pipe": _pipe,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "sparse": _sparse,
    "negative": lambda path: path.write_text(path.with_name("whole").read_text().replace(": 1,", ": -1,")),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_releases_file_is_no_fresh_budget(world, damage):
    """Neither is it waited for, nor read without end."""
    deployed = world(private(PrivateSum(noise_multiplier=2.0)))
    advance(deployed, 1)
    path = deployed.folder / RELEASES
    path.rename(path.with_name("whole"))
    DAMAGES[damage](path)
    with pytest.raises(CheckpointError, match=r"releases.json is damaged.*counted as spent"):
        deployed.restart()


def test_releases_file_of_another_run_is_no_fresh_budget(world):
    deployed = world(private(PrivateSum(noise_multiplier=2.0)))
    advance(deployed, 1)
    path = deployed.folder / RELEASES
    path.write_text(json.dumps(json.loads(path.read_text()) | {"run": "another", "releases": 0}))
    deployed.restart()
    assert deployed.host.driver.budget.noise.lost == ((1, ROUNDS),)


def test_repeated_steps_count_twice(world):
    """A report that is gone changes the sums of the journal's steps, whose models clients have seen."""
    deployed = world(private(PrivateSum(noise_multiplier=2.0)))
    advance(deployed, 2)
    deployed.restart()
    assert deployed.host.driver.budget.noise.lost == ()
    path = deployed.folder / RELEASES
    path.write_text(json.dumps(json.loads(path.read_text()) | {"steps": "of one more report"}))
    deployed.restart()
    assert deployed.host.driver.budget.noise.lost == ((0, 2),)
    advance(deployed, 3)
    deployed.restart()
    assert deployed.host.driver.budget.noise.lost == ((0, 2),)


def test_restored_run_stays_within_its_budget(world):
    release = Release(2.0)
    budget = privacy.epsilon(release, ROUNDS, 1e-5)
    deployed = world(private(PrivateSum(noise_multiplier=2.0, budget=budget)))
    advance(deployed, 1)
    copy = backup(deployed)
    advance(deployed, 3)
    restored(deployed, copy)
    deployed.run()
    driver = deployed.host.driver
    assert driver.version == 2  # with two that were lost
    assert epsilon_of(deployed) == pytest.approx(budget)
    assert re.match(r"the privacy budget is spent: round 3 and 2 lost releases would bring epsilon to", driver.over)
    deployed.restart()
    assert (deployed.host.driver.version, deployed.host.driver.over) == (2, driver.over)


def test_checkpoint_of_another_journal_copy_is_ignored(world):
    deployed = world(private(PrivateSum(noise_multiplier=2.0)), checkpoint_every=0.0)
    advance(deployed, 1)
    copy = backup(deployed)
    advance(deployed, 2)
    kept = {path: path.read_bytes() for path in deployed.folder.glob("checkpoint*")}
    restored(deployed, copy)
    advance(deployed, 3)
    params = deployed.host.driver.params
    for path, content in kept.items():
        path.write_bytes(content)
    deployed.restart()
    assert deployed.host.driver.version == 3
    assert torch.equal(deployed.host.driver.params, params)


def test_noise_depends_on_the_reports():
    """A machine that is restored with its memory has the secret; what differs is what clients sent."""
    noise = Noise(secret="ab" * 32)
    one, other = (noise.after(report([client], torch.zeros(1, 2)), [digest]) for client, digest in ((0, "x"), (0, "y")))
    left_out = noise.after(report([0], torch.zeros(1, 2)), ["x", "y"])
    assert len({noise.of_step, one.of_step, other.of_step, left_out.of_step}) == 4
    same = report([1], torch.zeros(1, 2)), ["z"]
    assert one.after(*same).of_step != other.after(*same).of_step
    assert one.after(*same) == one.after(*same)


def test_every_run_draws_its_own_noise(world, folder):
    run = private(PrivateSum(noise_multiplier=2.0))
    one, other = (world(run, folder=folder / name).run().host.driver.params for name in "ab")
    assert not torch.allclose(one, other, atol=1e-3)


def test_noise_is_gaussian_and_determined_by_its_secret():
    def drawn(secret, release=0, purpose="noise of the model"):
        zeros = torch.zeros(20_000, dtype=torch.float64)
        return GridNoise(1.0, 1.0).noised(zeros, purpose, Federation(9, 5, secret=secret), release)

    first = drawn(1 << 200)
    assert torch.equal(first, drawn(1 << 200))
    assert first.mean().abs() < 0.03
    assert first.std().item() == pytest.approx(1.0, rel=0.03)
    for other in (drawn(1 << 200, 1), drawn((1 << 200) + 1), drawn(0), drawn(1 << 200, 0, "noise of the count")):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.03


def test_randomness_known_from_the_seed_is_refused():
    with pytest.raises(ConfigurationError, match="the server draws clients by the run's seed"):
        check(private(PrivateSum(sampling_rate=0.5), Poisson(0.5), recipe=average_all))
    with pytest.raises(ConfigurationError, match="NoiseShare: the noise of a client is a function of the run's seed"):
        check(private(PrivateSum(cohort=4, noise_shares=4), NoiseShare(shares=4), recipe=average_participating))


def test_report_with_nan_stays_in_a_private_step(world):
    """One that is refused would change the weights of all others, by what the client's data are."""
    deployed = world(private(PrivateSum(noise_multiplier=2.0, cohort=4), recipe=average_participating))
    for home in deployed.homes:
        home.step(deployed.host)
    home = deployed.homes[0]
    home.train(deployed.host)
    assert home.state.pending is not None
    tensors = load(home.state.pending.body)
    body, task = encode(tensors | {"delta": tensors["delta"] * torch.nan}), task_of(deployed, 0)
    assert put(deployed, 0, task, body).status == 201
    home.state.pending = None
    while deployed.host.driver.version < 1:
        deployed.round()
    driver = deployed.host.driver
    assert driver.params.isfinite().all()
    history = driver.ledger.history
    assert history.participation["client"].to_pylist()[:4] == list(range(4))
    assert {"local_loss", "num_dropped", "train_loss"}.isdisjoint(
        name for name in history.column_names if len(history.column(name)[1])
    )
    for path in ("/v1/status", "/metrics"):
        assert b"local_loss" not in deployed.host.send("GET", path).body


def test_reports_with_nan_end_no_private_run(world):
    """The attack: whether a run ends would tell that the updates of its only participants hold NaN."""
    sizes = [len(DATA.train.client(row)[1]) for row in range(DATA.num_clients)]
    value = torch.finfo(DATA.train.x.dtype).max ** 0.9
    huge = Shards(torch.full_like(DATA.train.x, value), DATA.train.y * 0, np.cumsum([0, *sizes]))
    private = average_participating(replace(LOCAL, steps=3), also=(PrivateSum(noise_multiplier=2.0, cohort=4),))
    run = Experiment(DATA, Logistic(), private, Population(Everyone()), rounds=ROUNDS)
    deployed = world(replace(run, data=replace(DATA, train=huge)), served=run, max_empty_steps=2)
    while not all(home.over for home in deployed.homes):
        deployed.round()
    assert deployed.host.driver.version == ROUNDS


def neighbor(data, kind):
    """The same clients, of whom the first has other examples, and other numbers of them."""
    x, y = data.train.client(0)
    parts = [data.train.client(row) for row in range(1, data.num_clients)]
    scale = {"others": 3.0, "huge": 1e30}[kind]  # of which updates hold NaN
    first = torch.full((len(x) + 7, *x.shape[1:]), scale, dtype=x.dtype), torch.zeros(len(x) + 7, dtype=y.dtype)
    xs, ys = zip(first, *parts, strict=True)
    offsets = np.cumsum([0, *map(len, ys)])
    return replace(data, train=Shards(torch.cat(xs), torch.cat(ys), offsets))


def leaving(deployed):
    """All that leaves a server beside models, after each round, and its tables, by name."""
    seen = defaultdict(list)

    def note(name, value):
        if isinstance(value, dict):
            for key, part in value.items():
                note(f"{name}/{key}", part)
        else:
            seen[name].append(str(value))

    for _ in range(40):
        deployed.round()
        note("status", deployed.host.send("GET", "/v1/status").table())
        note("clients", deployed.host.administer("GET", "clients").table()["clients"])
        for line in deployed.host.send("GET", "/metrics").body.decode().splitlines():
            note("metric " + line.rpartition(" ")[0], line.rpartition(" ")[2])
        if all(home.over for home in deployed.homes):
            break
    deployed.host.service.writer.checkpoint()
    for path in deployed.folder.rglob("*.parquet"):
        for name, column in pq.read_table(path).to_pydict().items():
            note(f"{path.name} {name}", column)
    return seen


@pytest.mark.parametrize("kind", ["others", "huge"])
def test_neighboring_data_change_only_noised_figures(world, folder, kind, monkeypatch):
    """Status, metrics, the list of clients and tables: nothing else tells two servers apart of which one client differs."""
    monkeypatch.setattr(time, "time", lambda: 1e9)
    answers = Answers(noise_multiplier=4.0, most=6, examples=30)
    run = private(PrivateSum(norm=0.3, noise_multiplier=2.0, answers=answers))
    run = replace(run, data=held_out(), rounds=2, evaluate_every=1, evaluate_share=1.0)
    there = leaving(world(run, folder=folder / "a"))
    other = leaving(world(replace(run, data=neighbor(run.data, kind)), folder=folder / "b", served=run))
    assert there.keys() == other.keys()
    different = {name for name in there if there[name] != other[name]}
    noised = re.compile(
        r"curves/test_|evaluation/figures/|turnout_evaluation{|turnout_test_|rounds.parquet (update_norm|test_)"
    )
    unexplained = {name for name in different if not noised.search(name)}
    assert unexplained == {"status/run"}  # the name of a run is drawn
    assert len(different) > 10


def test_delta_bounds_the_number_of_clients():
    setting = ServedExperiment.of(private(PrivateSum(delta=0.05))).setting
    assert setting.check_clients(8, None) == 19
    with pytest.raises(ConfigurationError, match=r"max_clients: got 20, and delta=0.05 .* --max-clients 19"):
        setting.check_clients(8, 20)
    with pytest.raises(ConfigurationError, match=r"delta: got 0\.05 with 20 clients"):
        setting.check_clients(20, None)


def test_removed_clients_count_toward_the_number_that_delta_bounds(world):
    """Their data are in the model, so that N includes them."""
    deployed = world(private(PrivateSum(delta=0.19)), max_clients=5)
    enroll = partial(deployed.host.send, "POST", "/v1/enrol", b'{"protocol": 2}')
    statuses = []
    for number in range(3):
        assert deployed.host.administer("POST", f"clients/{number}", change="remove").status == 200
        statuses.append(enroll({"authorization": f"Bearer {number:040}"}).status)
    assert statuses == [201, 403, 403]
    assert deployed.host.driver.roster.num_clients * 0.19 < 1


def test_readable_folder_is_warned_of(folder, caplog):
    run = private(PrivateSum(noise_multiplier=2.0))
    for mode, warnings in ((0o700, 0), (0o755, 1)):
        (folder / "run").mkdir(exist_ok=True)
        (folder / "run").chmod(mode)
        Server(run, folder / "run").stop()
        assert sum("others can read" in each.message for each in caplog.records) == warnings


def test_a_run_whose_correlation_is_searched_is_refused_at_its_start(folder):
    run = private(PrivateSum(correlation=BufferedToeplitz(2), rounds=ROUNDS, budget=0.1))
    with pytest.raises(ConfigurationError, match="budget: 4 rounds would spend"):
        Server(run, folder / "run")
