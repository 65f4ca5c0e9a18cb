"""What a server keeps and deletes, and what becomes of those who come after it was restored from a copy."""

import shutil
from dataclasses import replace

import pytest
import sqlalchemy as sa
import torch

import turnout as to
from turnout import Experiment, Population, fedau
from turnout.core.checks import CheckpointError, ConfigurationError
from turnout.models import Mlp
from turnout.pieces.aggregation import PrivateSum, SecureSum
from turnout.population.availability import Everyone
from turnout.protocol.pace import Buffered, Rounds
from turnout.record import checkpoint, lock, storage
from turnout.simulation import Simulation
from turnout_serve.server.journal import checkpoints, retention
from turnout_serve.server.journal.events import Event
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.journal.retention import FOLDER, anchors
from turnout_serve.server.options import Options
from turnout_serve.server.service import Service
from turnout_serve.server.store import store as stores
from turnout_serve.server.store.database import TASKS, StoreUnavailable
from turnout_serve.server.store.store import Store

from .test_hostile import put, waiting
from .test_network import cli
from .world import DATA, LOCAL, Killed

RUN = Experiment(DATA, Mlp(hidden=(4,)), fedau(LOCAL), Population(Everyone()), rounds=5, evaluate_every=5)


LONG = replace(RUN, rounds=12)


def kept(deployed):
    """Files of reports, rows of the journal that are no starts, rows of tasks, and anchors."""
    store = deployed.host.store
    with store.engine.begin() as connection:
        tasks = connection.execute(sa.select(sa.func.count()).select_from(TASKS)).scalar()
    rows = sum(entry.kind not in ("start", "restart") for entry in store.entries())
    return len(list(store.files.reports.iterdir())), rows, tasks, len(anchors(deployed.folder))


@pytest.mark.parametrize("restarts", [False, True])
def test_kept_files_and_entries_do_not_grow(world, restarts):
    """Three steps at least, seven at most; the model is the undisturbed one, and so is that of a replay from the oldest."""
    simulation = Simulation(LONG)
    for _ in range(LONG.rounds):
        simulation.round()
    deployed, most = world(LONG, keep_reports=3, checkpoint_every=0.0), (0, 0, 0, 0)
    while not all(home.over for home in deployed.homes):
        deployed.round()
        most = tuple(map(max, most, kept(deployed)))
        if restarts:
            deployed.restart()
        if (version := deployed.host.driver.version) in (5, 10):
            again = replay(deployed.setting, deployed.folder)
            assert version - 7 <= again.begins <= max(0, version - 3)
            assert again.same is True
            assert torch.equal(again.driver.params, deployed.host.driver.params)
    assert most[0] <= 8 * 4
    assert most[1] <= 8 * 5 + 8
    assert most[2] <= 8 * 4
    assert most[3] == 2
    assert torch.equal(deployed.host.driver.params, simulation.state.params)
    result = to.load(deployed.folder)
    assert len(result.history) == LONG.rounds  # the tables have all steps


def test_outcome_of_an_old_report_is_still_known(world):
    """It may have sent it and got no answer: what became of the last task of each client is kept."""
    deployed = world(replace(LONG, rounds=8), keep_reports=1, checkpoint_every=0.0)
    while deployed.host.driver.version < 2:
        deployed.round()
    task, home = deployed.host.driver.task_of(0).task, deployed.homes[0]
    home.train(deployed.host)
    home.step(deployed.host)
    digest = home.state.pending.digest if home.state.pending else None
    deployed.host.service.leave(0)
    deployed.homes = deployed.homes[1:]
    deployed.run()
    deployed.restart()
    found = deployed.host.service.state_of(0, task).body
    assert (found["state"], digest) == ("taken", None)
    assert kept(deployed)[2] <= 4 * 4


RUNS = {
    "buffered": replace(LONG, algorithm=to.fedstaleweight(LOCAL), pace=Buffered(3)),
    "secure": replace(LONG, algorithm=fedau(LOCAL, also=(SecureSum(largest=64.0),)), rounds=4),
    "private": replace(LONG, algorithm=fedau(LOCAL, also=(PrivateSum(noise_multiplier=2.0),)), rounds=5),
    "two phases": replace(LONG, algorithm=to.folb(LOCAL, cohort_size=2), rounds=5),
    "tables": replace(LONG, algorithm=to.mifa(LOCAL), rounds=5),
}


@pytest.mark.parametrize("name", RUNS)
def test_replay_from_the_oldest_anchor_gives_the_same_model(world, name):
    """With reports that wait in a buffer, phases after training, secrets of the noise, and tables of clients."""
    deployed, turns = world(RUNS[name], keep_reports=2, checkpoint_every=1e9), 0
    for _ in range(3):
        for home in deployed.homes:
            home.train(deployed.host)
            home.step(deployed.host)  # a report, if it has one
            turns += 1
            if turns % 11 == 0:
                deployed.host.service.writer.checkpoint()  # also with reports that wait for others
                again = replay(deployed.setting, deployed.folder)
                assert torch.equal(again.driver.params, deployed.host.driver.params)
        deployed.clock.now += 1.0
    deployed.options["checkpoint_every"] = 0.0
    deployed.restart()
    deployed.run()
    deployed.restart()
    assert deployed.host.driver.version == RUNS[name].rounds
    deployed.host.service.writer.checkpoint()
    again = replay(deployed.setting, deployed.folder)
    assert 0 < again.begins < RUNS[name].rounds
    assert again.same is True


def test_server_recovers_from_an_anchor(world):
    """Both checkpoints are damaged: the last anchor is as good; without any whole one it says what to do."""
    deployed = world(replace(LONG, rounds=7), keep_reports=2, checkpoint_every=0.0)
    while deployed.host.driver.version < 6:
        deployed.round()
    before, version = deployed.host.driver.params, deployed.host.driver.version
    for path in deployed.folder.glob("checkpoint*"):
        path.unlink()
        path.write_bytes(b"damaged")
    deployed.restart()
    assert deployed.host.driver.version == version
    assert torch.equal(deployed.host.driver.params, before)
    for anchor in anchors(deployed.folder):
        (anchor.path / checkpoint.FILE).write_bytes(b"damaged")
    with pytest.raises(
        CheckpointError, match=r"journal of .* begins at entry .*, and no checkpoint from there on is whole"
    ):
        deployed.restart()
    with pytest.raises(CheckpointError, match="is damaged"):
        replay(deployed.setting, deployed.folder)
    shutil.rmtree(deployed.folder / FOLDER)
    for path in deployed.folder.glob("checkpoint*"):
        path.unlink()
    with pytest.raises(CheckpointError, match=r"anchors holds no checkpoint from there: restore it from a copy"):
        replay(deployed.setting, deployed.folder)


STEPS = {
    "the anchor's file": (retention, "_link"),
    "its digests": (storage, "_list_digests"),
    "the journal": (Store, "compact"),
    "the reports": (Store, "keep_reports"),
    "earlier anchors": (retention.shutil, "rmtree"),
    "a transaction": (stores, "upsert_of"),
    "the checkpoint": (checkpoint, "save"),
}
"""Everything that writes or deletes while a server saves."""


KILLED = replace(LONG, rounds=5)


@pytest.fixture(scope="module")
def undisturbed():
    simulation = Simulation(KILLED)
    for _ in range(KILLED.rounds):
        simulation.round()
    return simulation.state.params


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_kill_during_deletion_loses_nothing(world, monkeypatch, undisturbed, step, after):
    """The process ends before or after each write, again and again: the same model, and a replay that leads to it."""
    owner, name = STEPS[step]
    write, left, kills = getattr(owner, name), [2], 0

    def killed(*arguments, **options):
        left[0] -= 1
        if left[0] == 0 and not after:
            raise Killed
        result = write(*arguments, **options)
        if left[0] == 0 and after:
            raise Killed
        return result

    deployed, acts = world(KILLED, keep_reports=1, checkpoint_every=0.0), ["round"]
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, killed)
        for _ in range(60):
            try:
                getattr(deployed, acts[-1])()
                if acts[-1] == "restart":
                    again = replay(deployed.setting, deployed.folder)
                    assert torch.equal(again.driver.params, deployed.host.driver.params)
                acts.append("round")
            except Killed:
                kills += 1
                left[0] = 1 + kills
                acts.append("restart")
            if all(home.over for home in deployed.homes):
                break
    assert kills > 1
    deployed.run()
    assert torch.equal(deployed.host.driver.params, undisturbed)
    deployed.host.service.writer.checkpoint()
    again = replay(deployed.setting, deployed.folder)
    assert again.same is True
    assert again.begins > 0


def test_failed_deletion_is_logged(world, monkeypatch, caplog):
    """The run goes on, and everything is kept until the next time."""
    deployed = world(replace(LONG, rounds=8), keep_reports=1, checkpoint_every=0.0)

    def full(*_):
        raise StoreUnavailable("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "compact", full)
        while deployed.host.driver.version < 6:
            deployed.round()
    assert any(each.message == "retention failed" for each in caplog.records)
    assert kept(deployed)[0] >= 6 * 4
    deployed.run()
    assert kept(deployed)[0] <= 4 * 4


def test_trace_requires_a_complete_journal(world, monkeypatch):
    deployed = world(replace(LONG, rounds=6), keep_reports=2, checkpoint_every=0.0)
    deployed.run()
    deployed.host.service.writer.checkpoint()
    begins = replay(deployed.setting, deployed.folder).begins
    with pytest.raises(CheckpointError, match=rf"begins at step {begins}, .*--keep-reports\): a trace needs all of it"):
        replay(deployed.setting, deployed.folder, whole=True)
    monkeypatch.setattr("turnout_serve.cli.deployed.settings_in", lambda *_: (deployed.experiment, None))
    said = cli("replay", deployed.folder)
    assert f"from step {begins} on, the oldest that the server has kept (--keep-reports)" in said
    assert "the same model as in the checkpoint, bit for bit" in said
    for bad in (0, -1):
        with pytest.raises(ConfigurationError, match=f"keep_reports: got {bad}"):
            Service(deployed.host.driver, None, Options(keep_reports=bad))


def test_checkpoint_is_saved_without_steps(world, monkeypatch):
    """Whatever happens without a step is in a checkpoint after so many entries."""
    monkeypatch.setattr(checkpoints, "_MAX_ENTRIES", 50)
    deployed = world(LONG, min_clients=5, checkpoint_every=0.0)
    for number in range(500):
        deployed.host.service.writer.put(Event("fail", number % 4, 7))
        deployed.host.pump()
        assert deployed.host.driver.applied - deployed.host.service.writer.checkpoints._applied <= 50
    assert checkpoint.facts(deployed.folder)["journal"] > 450


def test_removed_folder_ends_the_server_with_the_reason(world, tmp_path):
    deployed = world(RUN, checkpoint_every=0.0)
    with lock.locked(deployed.folder):
        deployed.round()
        shutil.move(deployed.folder, tmp_path / "elsewhere")
        with pytest.raises(CheckpointError, match="was removed or replaced while the server ran"):
            deployed.host.service.writer.checkpoint()
        assert not deployed.folder.exists()
        shutil.move(tmp_path / "elsewhere", deployed.folder)
    with pytest.raises(CheckpointError, match="was removed or replaced"):  # a copy of it is another folder
        deployed.host.service.writer.checkpoint()


def test_restored_server_refuses_reports_on_lost_tasks(world):
    """A task of the same number and client, but of another model: 410, and the client does what it is asked now."""
    deployed = world(Experiment(**{**vars(RUN), "pace": Rounds(deadline=30.0)}))
    for home in deployed.homes:
        home.step(deployed.host)
    for home in deployed.homes:
        home.train(deployed.host)
        home.step(deployed.host)
    copy = deployed.folder.with_name(deployed.folder.name + "-copy")
    deployed.host.close()
    shutil.copytree(deployed.folder, copy)
    deployed.restart()

    late, others = deployed.homes[0], deployed.homes[1:]
    for home in others:
        home.train(deployed.host)
        home.step(deployed.host)
    pass_deadline(deployed)
    late.train(deployed.host)
    lost = late.state.pending.task
    assert lost.version == 2

    deployed.host.close()
    shutil.rmtree(deployed.folder)
    shutil.move(copy, deployed.folder)
    deployed.restart()
    pass_deadline(deployed)
    given = deployed.host.driver.task_of(0)
    assert (given.task, given.version) == (lost.task, lost.version)
    assert given.model != lost.model
    answer = put(deployed, 0, lost.task, waiting(late), task_fingerprint=lost.fingerprint)
    assert (answer.status, answer.table()["reason"]) == (
        410,
        "this number is another task's by now: the server was restored from a copy",
    )
    late.step(deployed.host)
    assert late.state.pending is None
    late.train(deployed.host)
    assert late.state.pending is not None
    assert late.state.pending.task == given
    late.step(deployed.host)
    assert late.client.done == 2


def pass_deadline(deployed):
    deployed.clock.now += 31.0
    deployed.host.pump()
