"""Runs that come to nothing, disks and folders that fail, journals with a second server, and entries that raise."""

import asyncio
import contextlib
import errno
import io
import os
import re
import shutil
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file
from sqlalchemy import event, exc
from tests.laws.recipes import RECIPES

import turnout as to
from turnout import Experiment, Population, fedau
from turnout.core.checks import CheckpointError, ConfigurationError, Diverged
from turnout.models import Mlp
from turnout.pieces.server_optimizer import ServerSgd
from turnout.population.availability import Everyone
from turnout.protocol.pace import Buffered, Rounds
from turnout.record import checkpoint
from turnout.simulation import Simulation
from turnout_serve.cli.serve_options import norm_bound, task_seconds
from turnout_serve.server import address
from turnout_serve.server.first_client import first_shape
from turnout_serve.server.journal import checkpoints
from turnout_serve.server.journal import driver as drivers
from turnout_serve.server.journal.checkpoints import check_progress
from turnout_serve.server.journal.entries import Entry
from turnout_serve.server.journal.events import Event, UnwrittenVisits
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.leases import Leases
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.server.run import reports as reading
from turnout_serve.server.run.served_experiment import ServedExperiment
from turnout_serve.server.store import database as databases
from turnout_serve.server.store import files
from turnout_serve.server.store import store as stores
from turnout_serve.server.store.database import StoreLost, StoreUnavailable
from turnout_serve.server.store.facts import Facts
from turnout_serve.server.store.store import Store
from turnout_serve.wire.administrator import JOURNAL_FILE
from turnout_serve.wire.format import encode

from .test_hostile import put, task_of, waiting
from .world import DATA, LOCAL, Host

RUN = Experiment(DATA, Mlp(hidden=(4,)), fedau(LOCAL), Population(Everyone()), rounds=4, evaluate_every=2)


@pytest.fixture(scope="module")
def undisturbed():
    simulation = Simulation(RUN)
    for _ in range(RUN.rounds):
        simulation.round()
    return simulation.state.params


def at_work(deployed):
    """Have all clients train, and hold their reports."""
    for home in deployed.homes:
        home.step(deployed.host)
    for home in deployed.homes:
        home.train(deployed.host)
    return deployed


def enlarged(home, factor):
    """The report of a client with a delta of so much in every number."""
    tensors = load(waiting(home))
    tensors["delta"] = torch.full_like(tensors["delta"], factor)
    return encode(tensors)


# A run that comes to nothing.


def test_report_beyond_max_norm_is_refused(world, undisturbed):
    """By default, the limit is 100 times the norm of the first model; the run continues with other reports."""
    deployed = at_work(world(RUN))
    task = deployed.host.driver.task_of(0).task
    answer = put(deployed, 0, task, enlarged(deployed.homes[0], 3e38))
    assert answer.status == 422
    reason = answer.table()["reason"]
    assert re.search(
        r"delta has norm 3\.65e\+39, and this server takes at most 1\.22e\+03 \(max_norm, serve --max-norm\)", reason
    )
    deployed.run()
    assert deployed.host.driver.version == 4
    assert deployed.host.driver.params.abs().max() < 100.0
    assert not torch.equal(deployed.host.driver.params, undisturbed)


def test_max_norm_bounds_each_vector():
    setting = ServedExperiment.of(RUN).setting
    size = len(setting.initial)
    assert setting.reports["train"].max_norm == pytest.approx(100 * max(size**0.5, float(setting.initial.norm())))
    assert ServedExperiment.of(RUN, max_norm=None).setting.reports["train"].max_norm is None
    assert ServedExperiment.of(RUN, max_norm=2.5).setting.reports["train"].max_norm == 2.5
    assert (norm_bound("auto"), norm_bound("none"), norm_bound("2.5")) == ("auto", None, 2.5)
    for bad in ("0", "-1", "nan", "inf", "much"):
        with pytest.raises(ConfigurationError, match=r"max_norm: got '.*', needed a number > 0, or auto, or none"):
            norm_bound(bad)


def test_client_beyond_its_task_deadline_is_dropped():
    """The deadline is ten minutes, or that of a round; 0 is no deadline."""
    assert task_seconds(None, Rounds()) == 600.0
    assert task_seconds(None, Rounds(deadline=3600.0)) == 3600.0
    assert task_seconds(None, Buffered(3)) == 600.0
    assert task_seconds(5.0, Rounds(deadline=3600.0)) == 5.0
    assert task_seconds(0.0, Rounds()) is None


def ruined(world):
    """A federation without a bound, one of whose clients has sent a huge report, and whose others cannot train any more."""
    deployed = world(RUN, leases=Leases(heartbeat=1.0, grace=1.0), max_empty_steps=2)
    deployed.setting.reports["train"].__dict__["max_norm"] = None
    at_work(deployed)
    task = deployed.host.driver.task_of(0).task
    assert put(deployed, 0, task, enlarged(deployed.homes[0], 3e38)).status == 201
    for home in deployed.homes[1:]:
        home.step(deployed.host)
    assert deployed.host.driver.version == 1
    return deployed


def test_run_without_usable_reports_fails_with_the_reason(world):
    """All updates are NaN: the run fails after two empty steps, and does not count as over."""
    deployed = ruined(world)
    with pytest.raises(Diverged, match=r"last 2 steps, up to step 3 \(tasks dropped so far: died 8\)"):
        deployed.run()
    assert deployed.host.driver.version == 3
    assert deployed.host.driver.over is None
    deployed.restart()  # a new attempt has as many steps
    assert deployed.host.driver.run.empty_steps == 0


def test_step_with_reports_resets_the_count_of_empty_steps(world):
    """Empty steps that are not consecutive do not end a run."""
    run = Experiment(**{**vars(RUN), "pace": Rounds(deadline=30.0), "rounds": 8})
    deployed = world(run, max_empty_steps=2)

    def step(reports):
        at_work(deployed)
        for home in deployed.homes[:reports]:
            home.step(deployed.host)
        deployed.clock.now += 31.0
        deployed.host.pump()

    for reports in (0, 1, 0, 1, 0):
        step(reports)
    assert deployed.host.driver.version == 5
    with pytest.raises(Diverged):
        step(0)


def test_failed_run_is_reported_in_status_metrics_and_exit(folder, monkeypatch):
    """The server ends with the reason, its status is "failed", and it saves a checkpoint."""
    server = Server(RUN, folder, None, Options(port=0, min_clients=1, linger=0.2))
    monkeypatch.setattr(server.service.writer.handler, "tick", lambda: 1.0)
    server.driver.publication.finite = False
    server.service.enroll("t" * 40)
    with pytest.raises(Diverged, match="the model of step 0 holds NaN or infinity"):
        server.run(lambda _: None)
    from turnout_serve.server.http.status import status

    figures = status(server.service, 0, {})
    assert (figures.state, figures.healthy) == ("failed", False)
    assert "holds NaN" in str(figures.failure)
    assert (folder / "checkpoint.safetensors").exists()


def test_overflowing_model_stops_the_run(world):
    """The model is finite in float32, and infinite in bfloat16, in which clients receive it."""
    deployed = world(RUN)
    deployed.round()
    driver = deployed.host.driver
    driver.run.server.state.params.fill_(float("inf"))
    driver.publication.last = None
    driver.publish()
    assert not driver.publication.finite
    with pytest.raises(Diverged, match="holds NaN or infinity: restore a backup from before"):
        check_progress(driver, 10)


def test_overflowing_update_is_not_kept_in_server_state(world, folder):
    """Without a limit of norms, a step that overflows is taken without the report that causes it."""
    run, params = replace(RUN, algorithm=replace(RECIPES["mifa"](LOCAL), server=ServerSgd(100.0))), []
    for name, value in (("huge", 3e38), ("bad", float("nan"))):
        deployed = world(run, folder=folder / name)
        deployed.setting.reports["train"] = replace(deployed.setting.reports["train"], max_norm=None, takes_nan=True)
        at_work(deployed)
        assert put(deployed, 0, task_of(deployed, 0), enlarged(deployed.homes[0], value)).status == 201
        deployed.homes[0].state.pending = None
        deployed.run()
        params.append(deployed.host.driver.params)
    assert params[0].isfinite().all()
    assert torch.equal(*params)


# Its model.


def test_model_of_a_served_run_is_exported(world, tmp_path):
    """From the last checkpoint while the run goes on, and when it is over."""
    deployed = world(RUN)
    deployed.round()
    deployed.host.service.writer.checkpoint()
    for over in (False, True):
        if over:
            deployed.run()
            deployed.host.service.writer.checkpoint()
        result = to.load(deployed.folder)
        file = load_file(result.export(tmp_path / "model.safetensors"))
        names = [name for name, _ in result.model.named_parameters()]
        assert file.keys() == set(names)
        assert torch.equal(torch.cat([file[name].reshape(-1) for name in names]), deployed.host.driver.params)
        assert result.history.last_round == deployed.host.driver.version
        with pytest.raises(ConfigurationError, match="in a deployment, clients keep theirs to themselves"):
            result.state_dict(0)


def test_exported_model_has_the_personal_part_of_a_newcomer(world):
    """The personal part is the one that a new client begins with."""
    from tests.laws.recipes import RECIPES

    run = Experiment(**{**vars(RUN), "algorithm": RECIPES["fedavg_p"](LOCAL), "rounds": 1})
    deployed = world(run).run()
    deployed.host.service.writer.checkpoint()
    names = list(to.load(deployed.folder).state_dict())
    assert len(names) == 4


# Disks.


class Full:
    """A disk that is full at the n-th write, for three attempts."""

    def __init__(self, at):
        self.left, self.failed, self._lock = at, 0, threading.Lock()  # files are synced by several threads

    def around(self, function):
        def called(*arguments, **options):
            with self._lock:
                self.left -= 1
                if -3 < self.left <= 0:
                    self.failed += 1
                    raise OSError(errno.ENOSPC, "No space left on device")
            return function(*arguments, **options)

        return called


WRITES = {
    "files": (files, "sync"),
    "names": (files, "move"),
    "model": (files, "encode_file"),
    "digests": (checkpoint.storage, "_write"),
    "uploads": (files.Files, "damaged"),
    "reports": (Path, "read_bytes"),
}


@pytest.mark.parametrize("point", WRITES)
@pytest.mark.parametrize("at", [1, 3])
def test_server_waits_for_a_full_disk(world, monkeypatch, undisturbed, point, at):
    """Writes and reads are repeated until they succeed: the model is the same, and nothing is lost or counts twice."""
    disk = Full(at)
    deployed = world(RUN, checkpoint_every=0.0)
    monkeypatch.setattr("turnout_serve.server.journal.journal_writer.time.sleep", lambda _: None)
    writer, flush = deployed.host.service.writer, deployed.host.service.writer.flush

    def patient():
        while True:
            try:
                return flush()
            except StoreUnavailable as error:
                assert not writer.healthy
                writer.wait(error)

    monkeypatch.setattr(writer, "flush", patient)
    target, name = WRITES[point]
    with monkeypatch.context() as full:
        full.setattr(target, name, disk.around(getattr(target, name)))
        deployed.run()
    assert disk.failed == 3
    assert torch.equal(deployed.host.driver.params, undisturbed)
    assert not list(deployed.host.store.files.incoming.iterdir())
    writer.checkpoint()
    assert writer.checkpoints.error is None
    assert replay(deployed.setting, deployed.folder).same is True


@pytest.mark.parametrize("task_deadline", [None, 60.0])
def test_full_disk_drops_no_task(world, monkeypatch, undisturbed, task_deadline):
    """Clients that were answered with 503 have the time to come back, however long it took to free space."""
    disk, leases = Full(3), Leases(heartbeat=2.0, grace=5.0, task_deadline=task_deadline)
    deployed = world(RUN, checkpoint_every=0.0, leases=leases)
    writer, flush = deployed.host.service.writer, deployed.host.service.writer.flush

    def later(_):
        deployed.clock.now += 1000.0

    def patient():
        while True:
            try:
                return flush()
            except StoreUnavailable as error:
                writer.wait(error)
                writer.handler.tick()

    monkeypatch.setattr("turnout_serve.server.journal.journal_writer.time.sleep", later)
    monkeypatch.setattr(writer, "flush", patient)
    with monkeypatch.context() as full:
        full.setattr(files, "sync", disk.around(files.sync))
        deployed.run()
    assert disk.failed == 3
    assert deployed.host.driver.ledger.dropped == {}
    assert torch.equal(deployed.host.driver.params, undisturbed)


@pytest.mark.parametrize("seconds", [40.0, 1000.0])
def test_full_disk_puts_off_the_deadline_of_a_round(world, monkeypatch, seconds):
    """A third of it is left, and still is afterwards: no report is late because the server could not write."""
    deployed, commit, left = at_work(world(replace(RUN, pace=Rounds(deadline=30.0)))), Store.commit, [3]
    writer = deployed.host.service.writer

    def full(*arguments):
        left[0] -= 1
        if left[0] >= 0:
            raise StoreUnavailable("the disk is full")
        return commit(*arguments)

    def later(_):
        deployed.clock.now += seconds

    monkeypatch.setattr("turnout_serve.server.journal.journal_writer.time.sleep", later)
    monkeypatch.setattr(writer, "flush", patient(writer))
    deployed.clock.now += 20.0
    with monkeypatch.context() as patched:
        patched.setattr(Store, "commit", full)
        deployed.homes[0].step(deployed.host)
    deployed.clock.now += 9.0
    deployed.host.pump()
    assert (deployed.host.driver.version, deployed.host.driver.ledger.dropped) == (0, {})
    deployed.clock.now += 2.0
    deployed.host.pump()
    assert (deployed.host.driver.version, deployed.host.driver.ledger.dropped) == (1, {"late": 3})


def test_round_has_its_whole_deadline_after_a_long_step(world, monkeypatch, undisturbed):
    """The model of each step takes longer to write than a round may last, and the next round begins when it is there."""
    deployed, write_model = world(replace(RUN, pace=Rounds(deadline=30.0))), files.Files.write_model

    def slowly(*arguments):
        deployed.clock.now += 100.0
        return write_model(*arguments)

    monkeypatch.setattr(files.Files, "write_model", slowly)
    deployed.run()
    assert deployed.host.driver.ledger.dropped == {}
    assert torch.equal(deployed.host.driver.params, undisturbed)


class ReadOnly:
    """A folder that is mounted read-only at its n-th write, until the server has waited three times."""

    def __init__(self, folder, at, monkeypatch):
        self.folder, self.left, self.failed, self.waited = str(folder), at, set(), 0
        monkeypatch.setattr(asyncio, "to_thread", at_once)  # so that writes have an order
        for module, name in ((os, "replace"), (os, "unlink"), (os, "mkdir"), (os, "rmdir"), (os, "link"), (os, "open")):
            monkeypatch.setattr(module, name, self.around(name, getattr(module, name)))
        monkeypatch.setattr(io, "open", self.around("io.open", io.open))
        monkeypatch.setattr(files, "encode_file", self.around("model", files.encode_file))
        monkeypatch.setattr("turnout_serve.server.journal.journal_writer.time.sleep", self.wait)

    def wait(self, _):
        self.waited += 1

    def writes(self, name, arguments):
        if name == "os.open" or name == "open":
            return arguments[1] & (os.O_WRONLY | os.O_RDWR)
        return name != "io.open" or set(str(arguments[1:2])) & set("wax+")

    def around(self, name, function):
        def called(*arguments, **options):
            if any(str(each).startswith(self.folder) for each in arguments) and self.writes(name, arguments):
                self.left -= 1
                if self.is_mounted:
                    self.failed.add(name)
                    raise OSError(errno.EROFS, "Read-only file system", str(arguments[0]))
            return function(*arguments, **options)

        return called

    @property
    def is_mounted(self):
        return self.left <= 0 and self.waited < 3

    def connected(self, connection, *_):
        connection.execute(f"PRAGMA query_only = {int(self.is_mounted)}")


async def at_once(function, *arguments):
    return function(*arguments)


@pytest.mark.parametrize("at", [1, 2, 3, 5, 8, 13, 21, 34, 55, 89])
def test_folder_mounted_read_only_and_back_loses_nothing(world, monkeypatch, undisturbed, at):
    """In the middle of a run, at any of its writes: uploads, reports, models, checkpoints, exports and the database."""
    deployed = world(RUN, checkpoint_every=0.0, keep_reports=1)
    disk, writer = ReadOnly(deployed.folder, at, monkeypatch), deployed.host.service.writer
    event.listen(deployed.host.store.engine, "checkout", disk.connected)
    monkeypatch.setattr(writer, "flush", patient(writer))
    token = {"authorization": f"Bearer {deployed.homes[0].state.token}"}
    for _ in range(20):
        deployed.round()
        deployed.host.send("GET", "/v1/model", b"", token)
        if disk.is_mounted and not writer._queue:  # nothing is left that the journal waits for
            disk.waited = 3
    assert disk.failed
    assert deployed.host.driver.over is not None
    assert (writer.failure, writer.healthy) == (None, True)
    assert torch.equal(deployed.host.driver.params, undisturbed)
    assert deployed.host.driver.ledger.dropped == {}
    monkeypatch.undo()
    writer.checkpoint()
    assert writer.checkpoints.error is None
    assert replay(deployed.setting, deployed.folder).same is True


@pytest.mark.parametrize("at", [1, 2, 5, 9, 17])
def test_server_waits_for_a_disk_that_does_not_answer(world, monkeypatch, undisturbed, at):
    """Neither does it say whether the folder is still there, as a share whose machine is away: that is not its removal."""
    deployed, stat, left = world(RUN, checkpoint_every=0.0), Path.stat, [at]
    writer = deployed.host.service.writer
    monkeypatch.setattr("turnout_serve.server.journal.journal_writer.time.sleep", lambda _: None)
    monkeypatch.setattr(writer, "flush", patient(writer))

    def silent(path, **options):
        if path == deployed.folder:
            left[0] -= 1
            if -3 < left[0] <= 0:
                raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return stat(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", silent)
        deployed.run()
    assert left[0] <= -3
    assert (writer.failure, deployed.host.driver.ledger.dropped) == (None, {})
    assert torch.equal(deployed.host.driver.params, undisturbed)


def test_disk_that_does_not_answer_in_the_middle_of_an_entry_is_waited_for(world, monkeypatch, undisturbed):
    """The model of a step cannot be written, and the folder cannot be looked at either."""
    deployed, disk, stat = world(RUN), Full(2), Path.stat
    writer = deployed.host.service.writer
    monkeypatch.setattr("turnout_serve.server.journal.journal_writer.time.sleep", lambda _: None)

    def silent(path, **options):
        if path == deployed.folder and 0 < disk.failed < 3:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return stat(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(files, "encode_file", disk.around(files.encode_file))
        patched.setattr(Path, "stat", silent)
        deployed.run()
    assert (disk.failed, writer.failure) == (3, None)
    assert torch.equal(deployed.host.driver.params, undisturbed)


def test_server_waits_for_a_database_on_a_full_disk(folder):
    """Reports are accepted once SQLite can write again, each once."""
    store = Store(folder)
    store.claim()
    with store.engine.begin() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    entries = [Entry(n, 0.0, 0.0, "join", 0, data={"x": "y" * 4000}) for n in range(1, 20)]
    with pytest.raises(StoreUnavailable, match="full"):
        store.commit(entries)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 100000")
    store.commit(entries)
    assert len(list(store.entries())) == 19
    store.close()


def test_stopping_server_does_not_wait_for_the_disk(world):
    """A server that stops gives up after a few attempts; its journal is complete."""
    deployed = world(RUN)
    writer = deployed.host.service.writer
    writer.stopping = True
    writer._failures = 3
    with pytest.raises(StoreUnavailable, match="cannot be written: full"):
        writer.wait(OSError("full"))
    deployed.host.store.wait = stores._refuse
    with pytest.raises(StoreUnavailable, match=r"cannot be read or written: .*Free some space"):
        deployed.host.store.until_done(lambda: files.sync(deployed.folder / "nothing"))


def test_missing_last_checkpoint_is_reported(folder, monkeypatch):
    """A server whose last save failed does not say that all is in its folder."""
    server = Server(RUN, folder, None, Options(port=0, min_clients=1, linger=0.0))

    def full(*_):
        raise CheckpointError("the disk is full")

    monkeypatch.setattr(checkpoints, "save", full)
    server.service.writer.stopping = True
    with pytest.raises(CheckpointError, match=r"last checkpoint is missing: the disk is full. Start the server again"):
        server.run(lambda _: None)


@pytest.mark.parametrize("what", ["folder", "journal"])
def test_removed_folder_ends_the_server(folder, what, monkeypatch):
    """The server writes nothing more, leaves no part of a file, and reports the reason."""
    monkeypatch.setattr("turnout_serve.server.journal.journal_writer._IDLE", 0.02)
    server = Server(RUN, folder / "run", None, Options(port=0, min_clients=1))

    def remove(_):
        if what == "folder":
            os.replace(folder / "run", folder / "gone")  # at once: the server looks at its folder meanwhile
        else:
            os.replace(folder / "run" / JOURNAL_FILE, folder / "elsewhere")

    with pytest.raises(CheckpointError, match="was removed or replaced while the server ran"):
        server.run(remove)
    assert (folder / "run").exists() == (what == "journal")


@pytest.mark.parametrize(
    "name",
    [
        "address.txt", "certificate.pem", "admin.token", "codes.txt", "checkpoint.safetensors", "SHA256SUMS",
        "rounds.parquet", "journal.sqlite", "models/next.part", "exports/3.part", "queries/00000000.json", "incoming/other",
    ],
)  # fmt: skip
def test_folder_in_place_of_a_file_ends_the_start(folder, name):
    """At once: a file that cannot be written was tried again and again, or first at the end of a run."""
    (folder / "run" / name).mkdir(parents=True)
    needed = rf"{name} is a folder, needed a file: move it away, or give another --folder"
    with pytest.raises(CheckpointError, match=needed):
        Server(RUN, folder / "run", None, Options(port=0, min_clients=1))
    with pytest.raises(CheckpointError, match=needed):
        first_shape(folder / "run", Options(port=0), {}, lambda shape: shape)


@pytest.mark.parametrize(
    "name", ["models", "reports", "incoming", "exports", "anchors", "queries", "evaluations", ".parts"]
)
def test_file_in_place_of_a_folder_ends_the_start(folder, name):
    (folder / name).write_text("")
    with pytest.raises(
        CheckpointError, match=rf"{name} is a file, needed a folder: move it away, or give another --folder"
    ):
        Server(RUN, folder, None, Options(port=0, min_clients=1))


def test_other_folders_in_that_of_a_run_are_left_alone(folder):
    (folder / "notes.2024").mkdir()
    (folder / "plots").mkdir()
    (folder / "plots" / "loss.json").mkdir()
    Server(RUN, folder, None, Options(port=0, min_clients=1)).stop()


def test_address_that_cannot_be_written_ends_the_start(folder, monkeypatch):
    server, replaced = Server(RUN, folder / "run", None, Options(port=0, min_clients=1)), address.replace_files

    def read_only(writers):
        return replaced({path: writers[path] for path in writers if path.mkdir() or True})

    monkeypatch.setattr(address, "replace_files", read_only)
    with pytest.raises(CheckpointError, match=r"cannot write .*address.txt: .*Is a directory"):
        server.run(lambda _: None)


def test_folder_removed_before_stop_is_reported(world):
    """The last checkpoint detects it."""
    deployed = world(RUN)
    deployed.round()
    shutil.rmtree(deployed.folder)
    deployed.host.service.writer.stop()
    assert isinstance(deployed.host.service.writer.failure, StoreLost)
    assert not deployed.folder.exists()


# A second server.


def test_second_server_on_a_journal_ends_the_first(folder):
    """Without file locks, the server that claimed the journal last has it, and the other one writes nothing more."""
    first, second = Store(folder), Store(folder)
    first.claim()
    first.commit([Entry(1, 0.0, 0.0, "join", 0)])
    second.claim()
    with pytest.raises(StoreLost, match="another server has taken over this journal"):
        first.commit([Entry(2, 0.0, 0.0, "join", 0)])
    second.commit([Entry(2, 0.0, 0.0, "leave", 0)])
    assert [entry.kind for entry in second.entries()] == ["join", "leave"]
    for store in (first, second):
        store.close()


def test_lost_connection_leaves_the_journal_to_its_server(folder, monkeypatch):
    """The database has not noticed the loss, and has its lock taken: the claim tells who has the journal."""
    store = Store(folder)
    store.claim()
    claim, locked = store._claim, []
    assert claim is not None
    monkeypatch.setattr(claim, "hold", lambda: bool(locked.append(True)))  # of PostgreSQL, where somebody else has it
    store.commit([Entry(1, 0.0, 0.0, "join", 0)])
    second = Store(folder)
    second.claim()
    with pytest.raises(StoreLost, match="another server has taken over this journal"):
        store.commit([Entry(2, 0.0, 0.0, "join", 0)])
    assert (locked, len(list(store.entries()))) == ([True, True], 1)
    for each in (store, second):
        each.close()


def test_lock_is_taken_again_where_a_dying_connection_cannot_be_closed(folder, monkeypatch):
    """Its rollback raises, too: the error would have ended the server."""
    store = Store(folder)
    store.claim()
    claim, calls = store._claim, []
    assert claim is not None

    class Dying:
        def execute(self, _):
            raise exc.OperationalError("SELECT 1", None, OSError("connection socket closed"))

        def close(self):
            raise exc.OperationalError("ROLLBACK", None, OSError("another command is already in progress"))

        def invalidate(self):
            calls.append("invalidated")

    taken: Any = SimpleNamespace(execute=lambda _: SimpleNamespace(scalar=lambda: True), close=lambda: None)
    engine: Any = SimpleNamespace(
        dialect=SimpleNamespace(name="postgresql"),
        connect=lambda: contextlib.nullcontext(
            SimpleNamespace(execution_options=lambda **_: taken, close=lambda: None)
        ),
    )
    monkeypatch.setattr(claim, "_engine", engine)
    monkeypatch.setattr(claim, "_connection", Dying())
    assert claim.hold()
    assert calls == ["invalidated"]
    monkeypatch.undo()
    store.close()


def test_second_machine_takes_a_run_over(world, monkeypatch, undisturbed):
    """Two servers on one folder, where locks do not reach the other machine: the first one ends and saves nothing."""
    opened = Store.__init__

    def claiming(self, *arguments, **options):
        opened(self, *arguments, **options)
        self.claim()

    monkeypatch.setattr(Store, "__init__", claiming)
    deployed = world(RUN)
    deployed.round()
    first = deployed.host
    deployed.host = Host(deployed.setting, deployed.folder, deployed.clock, **deployed.options)
    deployed.round()
    deployed.host.service.writer.checkpoint()
    saved = checkpoint.facts(deployed.folder)["journal"]
    with pytest.raises(StoreLost, match="another server has taken over this journal"):
        first.service.writer.checkpoint()
    first.service.writer.put(Event("fail", 0, 0))
    first.service.writer.run()
    assert isinstance(first.service.writer.failure, StoreLost)
    first.service.writer.stop()
    first.close()
    assert checkpoint.facts(deployed.folder)["journal"] == saved
    deployed.run()
    assert torch.equal(deployed.host.driver.params, undisturbed)
    deployed.host.service.writer.checkpoint()
    assert replay(deployed.setting, deployed.folder).same is True


def test_idle_server_notices_that_another_one_has_its_journal(folder, monkeypatch):
    """It would tell clients of the other one that it does not know them or their tasks, and they would drop their reports."""
    monkeypatch.setattr(databases, "_SECONDS", 0.0)
    server = Server(RUN, folder, None, Options(port=0, min_clients=1))
    second = Store(folder)
    second.claim()  # on a machine that the lock of the folder does not reach
    server.service.writer.stopping = True  # ends the thread in any case
    server.service.writer.run()
    assert isinstance(server.service.writer.failure, StoreLost)
    assert "another server has taken over this journal" in str(server.service.writer.failure)
    server.stop()
    second.close()


def test_idle_server_is_healthy_again_after_its_database(folder, monkeypatch):
    """Without anything to write, and with nothing lost."""
    monkeypatch.setattr(databases, "_SECONDS", 0.0)
    server = Server(RUN, folder, None, Options(port=0, min_clients=1))
    writer, look, failed = server.service.writer, databases.Claim.look, []

    def away(claim):
        if len(failed) < 3:
            failed.append(writer.healthy)
            raise StoreUnavailable("the database cannot be used now")
        look(claim)
        writer.stopping = True

    monkeypatch.setattr(databases.Claim, "look", away)
    monkeypatch.setattr("turnout_serve.server.journal.journal_writer.time.sleep", lambda _: None)
    writer.run()
    assert failed == [True, False, False]
    assert (writer.failure, writer.healthy) == (None, True)
    server.stop()


def answer_lost(monkeypatch, at):
    """Have the database write a group of entries, and its answer get lost, three times from the group `at` on."""
    commit, left = Store.commit, [at]

    def lost(store, *arguments):
        commit(store, *arguments)
        left[0] -= 1
        if -3 < left[0] <= 0:
            raise StoreUnavailable("the connection was lost")

    monkeypatch.setattr(Store, "commit", lost)


def patient(writer):
    """The flush of a writer that waits as its thread does."""
    flush = writer.flush

    def flushed():
        while True:
            try:
                return flush()
            except StoreUnavailable as error:
                writer.wait(error)

    return flushed


@pytest.mark.parametrize("at", [1, 2, 5, 9])
def test_commit_whose_answer_is_lost_counts_once(world, monkeypatch, undisturbed, at):
    """What was written is applied as it was written, and nothing is written twice."""
    deployed = world(RUN)
    monkeypatch.setattr("turnout_serve.server.journal.journal_writer.time.sleep", lambda _: None)
    answer_lost(monkeypatch, at)
    writer = deployed.host.service.writer
    monkeypatch.setattr(writer, "flush", patient(writer))
    deployed.run()
    assert torch.equal(deployed.host.driver.params, undisturbed)
    assert writer.healthy
    numbers = [entry.number for entry in deployed.host.store.entries()]
    assert numbers == list(range(1, deployed.host.driver.applied + 1))
    monkeypatch.undo()
    writer.checkpoint()
    assert replay(deployed.setting, deployed.folder).same is True


def test_stopping_server_applies_what_was_written(world, monkeypatch):
    deployed = world(RUN)
    writer = deployed.host.service.writer
    monkeypatch.setattr(UnwrittenVisits, "defer", lambda *_: False)
    with monkeypatch.context() as patched:
        answer_lost(patched, 1)
        done = writer.put(Event("join", 1))
        with pytest.raises(StoreUnavailable):
            writer.flush()
    writer.stop()
    assert (done.result(0), writer.failure, deployed.host.driver.present()) == (None, None, [1])


def test_entry_that_is_applied_in_part_ends_the_server(world, monkeypatch):
    """A disk fails in the middle of an entry while the server stops: no checkpoint has half of it, and the next start all."""
    deployed = at_work(world(RUN))
    writer, write_model = deployed.host.service.writer, files.Files.write_model
    writer.checkpoint()

    def full(*_):
        writer.stopping, writer._failures = True, 9
        deployed.host.store.until_done(lambda: files.sync(deployed.folder / "nothing"))

    for home in deployed.homes[:-1]:
        home.step(deployed.host)
    last = deployed.homes[-1].state
    report, path = last.pending, deployed.host.store.files.incoming / "last.part"
    path.write_bytes(report.body)
    with monkeypatch.context() as patched:
        patched.setattr(files.Files, "write_model", full)
        deployed.host.service.report(last.client, report.task.task, report.digest, path)
        writer.run()
    assert files.Files.write_model is write_model
    assert re.search(r"entry \d+ was applied in part: .*cannot be written", str(writer.failure))
    writer.stop()
    assert checkpoint.facts(deployed.folder)["version"] == 0
    deployed.restart()
    deployed.run()
    deployed.host.service.writer.checkpoint()
    assert replay(deployed.setting, deployed.folder).same is True


def test_start_of_a_run_reads_nothing_of_the_database(world, monkeypatch):
    """A database that fails between the write of an entry and a read would leave a run that never begins."""
    deployed = world(RUN)

    def gone(_):
        raise StoreUnavailable("the connection was lost")

    monkeypatch.setattr(Facts, "lost", gone)
    at_work(deployed)
    assert deployed.host.driver.run is not None


# Entries that raise.


def test_lost_report_drops_its_task_on_recovery(world):
    """The report is missing or damaged: each start continues without it."""
    deployed = world(RUN)
    for _ in range(3):
        deployed.round()
    assert deployed.host.driver.version == 2
    names = [entry.digest for entry in deployed.host.store.entries() if entry.kind == "report"]
    missing, damaged = (deployed.host.store.files.report(name) for name in (names[0], names[3]))
    body = missing.read_bytes()
    missing.unlink()
    damaged.write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="cannot be read"):
        replay(deployed.setting, deployed.folder)
    deployed.restart()
    driver = deployed.host.driver
    assert driver.ledger.dropped["unusable"] == 2
    assert deployed.host.store.outcomes.get(0, 0).outcome == "unusable"
    rounds = driver.ledger.history.participation["round"].to_pylist()
    assert (rounds.count(1), rounds.count(2)) == (2, 4)
    first = driver.params
    missing.write_bytes(body)  # found again, it would lead to another model than clients were given since
    deployed.restart()
    assert torch.equal(deployed.host.driver.params, first)
    deployed.run()
    deployed.host.service.writer.checkpoint()
    assert replay(deployed.setting, deployed.folder).same is True


@pytest.mark.parametrize(
    ("table", "column", "said"),
    [
        ("facts", "value", "the description of the run in .* is damaged"),
        ("journal", "data", r"entry \d+ of the journal is"),
    ],
)
def test_damaged_journal_is_refused(world, table, column, said):
    """SQLite notices pages that are gone, and not numbers and letters that have changed in them."""
    deployed = world(RUN)
    deployed.round()
    deployed.host.close()
    with contextlib.closing(sqlite3.connect(deployed.folder / "journal.sqlite")) as database, database:
        where = "where name = 'experiment'" if table == "facts" else "where data is not null"
        database.execute(f"update {table} set {column} = substr({column}, 2) {where}")
    with pytest.raises(CheckpointError, match=said):
        deployed.restart()


def test_malformed_journal_entries_are_refused(world):
    """An attacker has written rows of other types, which SQLite accepts, and overwritten pages."""
    deployed = world(RUN)
    deployed.round()
    deployed.host.close()
    path = deployed.folder / "journal.sqlite"
    for column, value in (
        ("client", "x"),
        ("client", -1),
        ("task", 2.5),
        ("time", "soon"),
        ("time", b"x"),
        ("kind", b"x"),
    ):
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            ((before,),) = database.execute(f"select {column} from journal where number = 5").fetchall()
            database.execute(f"update journal set {column} = ? where number = 5", (value,))
        with pytest.raises(CheckpointError, match=rf"entry 5 of the journal is damaged \({column} is"):
            replay(deployed.setting, deployed.folder)
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            database.execute(f"update journal set {column} = ? where number = 5", (before,))
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("insert into facts values ('begins', 'x')")
    with pytest.raises(CheckpointError, match="the database is damaged"):
        replay(deployed.setting, deployed.folder)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("pragma wal_checkpoint(truncate)")
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises((CheckpointError, ConfigurationError), match="the database"):
        replay(deployed.setting, deployed.folder)


def test_server_without_any_report_file_does_not_start(world):
    """A folder of reports that was not restored is not mistaken for lost reports."""
    deployed = world(RUN)
    deployed.round()
    deployed.round()
    for path in deployed.host.store.files.reports.iterdir():
        path.unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        deployed.restart()


@pytest.mark.parametrize("restarts", [False, True])
def test_report_that_cannot_be_read_drops_its_task(world, monkeypatch, restarts):
    """The step is taken without it, in the server and at each recovery."""
    deployed = at_work(world(RUN))
    read = reading.StreamingSum.add

    def strange(self, report):
        if report.client[0] == 3 and report.version[0] == 0:
            raise KeyError("strange")
        read(self, report)

    monkeypatch.setattr(reading.StreamingSum, "add", strange)
    for home in deployed.homes:
        home.step(deployed.host)
    if restarts:
        deployed.restart()
    driver = deployed.host.driver
    assert driver.version == 1
    assert driver.ledger.dropped == {"unusable": 1}
    assert deployed.host.service.state_of(3, 3).body == {"state": "dropped", "reason": "unusable"}


@pytest.mark.parametrize("restarts", [False, True])
def test_entry_that_raises_does_not_end_the_server(world, monkeypatch, restarts):
    """Its request is answered with the error, and later entries are applied."""
    deployed = world(RUN)
    writer, set_presence = deployed.host.service.writer, drivers.Roster.set_presence
    monkeypatch.setattr(UnwrittenVisits, "defer", lambda *_: False)

    def strange(self, client, present):
        if client == 2:
            raise LookupError("strange")
        set_presence(self, client, present)

    monkeypatch.setattr(drivers.Roster, "set_presence", strange)
    bad, good = writer.put(Event("join", 2)), writer.put(Event("join", 3))
    writer.flush()
    with pytest.raises(LookupError, match="strange"):
        bad.result(0)
    assert good.result(0) is None
    if restarts:
        deployed.restart()
    assert deployed.host.driver.present() == [3]
    assert deployed.host.driver.applied == 6


# The writer's queue, and reports that come late.


def test_unwritten_events_keep_their_order(world, monkeypatch):
    """Events that arrive during a failed write come after those that wait."""
    deployed = world(RUN)
    writer, commit = deployed.host.service.writer, Store.commit
    monkeypatch.setattr(UnwrittenVisits, "defer", lambda *_: False)

    def broken(*_, **__):
        writer.put(Event("leave", 1))
        raise StoreUnavailable("not now")

    writer.put(Event("join", 1))
    writer.put(Event("join", 2))
    with monkeypatch.context() as patched:
        patched.setattr(Store, "commit", broken)
        with pytest.raises(StoreUnavailable):
            writer.flush()
    assert Store.commit is commit
    writer.flush()
    kinds = [(entry.kind, entry.client) for entry in deployed.host.store.entries()]
    assert kinds[-3:] == [("join", 1), ("join", 2), ("leave", 1)]
    assert deployed.host.driver.present() == [2]


def test_late_report_is_not_taken_for_a_new_task(world):
    """The report was checked before its task ended, and written after the client got another task: the answer is 410."""
    deployed = at_work(world(Experiment(**{**vars(RUN), "pace": Rounds(deadline=30.0)})))
    host, late = deployed.host, deployed.homes[0]
    old, body = host.driver.task_of(0), waiting(late)
    path = host.store.files.incoming / f"0-{old.task}-late.part"
    path.write_bytes(body)
    for home in deployed.homes[1:]:
        home.step(host)
    deployed.clock.now += 31.0
    host.service.writer.handler.tick()  # the deadline is written first, and the report behind it, in one transaction
    done = host.service.report(0, old.task, late.state.pending.digest, path)
    host.service.writer.flush()
    new = host.driver.task_of(0)
    assert new is not None
    assert new.task != old.task
    assert done.result(0).status == 410
    assert host.service.state_of(0, old.task).body == {"state": "dropped", "reason": "late"}
    assert host.service.state_of(0, new.task).body == {"state": "open"}
    assert new.task not in host.driver.run.reports.bodies
    deployed.host.service.writer.checkpoint()
