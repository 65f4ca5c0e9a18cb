"""What happens to a server from outside: growth, restarts, disks and databases that fail, clocks that jump."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.laws.recipes import DATA, RECIPES

from turnout import Population, Sgd, compose, fedau
from turnout.core.checks import CheckpointError, ConfigurationError
from turnout.evaluation.appeal import AppealMetrics
from turnout.evaluation.gradients import GradientMetrics
from turnout.experiment import Experiment
from turnout.models import Mlp
from turnout.pieces.local import AppealGap, TimeBudget
from turnout.pieces.weighting import Appeal, DivideBySumPlus
from turnout.population import GivenRequirement, WarmUp
from turnout.population.availability import Everyone
from turnout.population.behavior import Opting
from turnout.protocol.pace import Buffered
from turnout.record import checkpoint
from turnout_serve.server.http.gate import RateLimit
from turnout_serve.server.http.uvicorn_server import PlainUvicorn
from turnout_serve.server.journal import checkpoints
from turnout_serve.server.journal.entries import Entry, Outcome
from turnout_serve.server.journal.events import Event
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.leases import Leases, RunClock
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.server.run import setting as settings_of
from turnout_serve.server.run.served_experiment import ServedExperiment
from turnout_serve.server.store import store as stores
from turnout_serve.server.store.database import StoreUnavailable, transaction
from turnout_serve.server.store.store import Store
from turnout_serve.server.verdicts import Refused
from turnout_serve.wire.administrator import JOURNAL_FILE
from turnout_serve.wire.privacy import excess, visible

from .test_crashes import free_port
from .test_failures import at_work, patient
from .world import LOCAL, Home, World

RUN = Experiment(DATA, Mlp(hidden=(4,)), fedau(LOCAL), Population(Everyone()), rounds=4, evaluate_every=2)


@pytest.mark.parametrize("saves", [False, True])
def test_client_enrolls_during_a_run(world, folder, saves):
    """N grows, the newcomer takes part, and a server that restarts before it has its rows goes on alike."""
    models = []
    for restarts in (False, True):
        deployed = world(RUN, folder=folder / str(restarts), min_clients=7)
        late = deployed.homes.pop()  # enrolled, and there only later
        deployed.round()
        newcomer = Home(deployed.computer, 3)
        while newcomer.state.client is None:
            newcomer.step(deployed.host)
        assert newcomer.state.client == 8
        if restarts:
            if saves:
                deployed.host.service.writer.checkpoint()
            deployed.restart()
        deployed.homes += [late, newcomer]
        deployed.run()
        assert deployed.host.driver.run.server.federation.num_clients == 9
        assert 8 in deployed.host.driver.ledger.history.participation["client"].to_pylist()
        models.append(deployed.host.driver.params)
    assert torch.equal(*models)


def test_jumping_clocks_have_no_effect(world, monkeypatch):
    """The clock on the wall may be put back by a year: leases and deadlines go by another one."""
    deployed = world(RUN)
    deployed.round()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    deployed.run()
    walls = [entry.wall for entry in deployed.host.store.entries()]
    times = [entry.time for entry in deployed.host.store.entries()]
    assert min(walls) == 0.0
    assert times == sorted(times)
    assert deployed.host.driver.version == 4


def test_clock_that_jumps_changes_no_limit_and_no_age(world, monkeypatch):
    """Forward by a day, back by an hour: requests are limited as before, and the list says how long a client is away."""
    deployed, wall = world(RUN, leases=Leases(heartbeat=10.0, grace=5.0, task_deadline=60.0)), [1e9]
    limit, begun = RateLimit(0.001, 1.0), RunClock()
    monkeypatch.setattr(time, "time", lambda: wall[0])
    task, token = at_work(deployed).host.driver.task_of(0), {"authorization": f"Bearer {deployed.homes[0].state.token}"}
    for jump in (86_400.0, -3600.0, -90_000.0, 86_400.0):
        wall[0] += jump
        deployed.host.send("POST", f"/v1/tasks/{task.task}/heartbeat", b"{}", token)
        wall[0] += jump
        deployed.clock.now += 5.0
        deployed.host.pump()
        assert deployed.host.driver.task_of(0) is task
        assert deployed.host.administer("GET", "clients").table()["clients"][0]["seen"] == 5.0
        limit.wait("a peer")
        assert limit.wait("a peer") > 900.0
        assert 0.0 <= begun() < 60.0


def test_client_returns_after_a_month(world):
    """Its report is for a version long gone: it is told so, and takes part again."""
    deployed = world(RUN, leases=Leases(heartbeat=5.0, missed=2, grace=5.0))
    away = deployed.homes.pop()
    away.train(deployed.host)
    for home in deployed.homes:
        home.train(deployed.host)
    away.train(deployed.host)
    deployed.clock.now += 30 * 86400.0
    for _ in range(2):
        deployed.round()
    assert away.has_report
    away.turn(deployed.host)
    assert away.client.done < 4
    assert away.state.pending is None
    deployed.homes.append(away)
    deployed.run()


def test_full_disk_loses_no_report(world, monkeypatch):
    """A report that cannot be written is not taken: 503, nothing is left, and later it is taken."""
    deployed = world(RUN)
    for home in deployed.homes:
        home.step(deployed.host)
    home = deployed.homes[0]
    home.train(deployed.host)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "write", full)
        answer = deployed.host.call(home.action)
        assert (answer.status, answer.headers["retry-after"]) == (503, "2")
        assert "No space" not in answer.table()["reason"]
    deployed.run()
    assert deployed.host.driver.version == 4


def test_locked_database_loses_no_report(folder):
    """While somebody else writes to the database nothing is taken; what waits is written afterwards, once."""
    import sqlite3

    world = World(RUN, folder)
    try:
        service = world.host.service
        other = sqlite3.connect(folder / JOURNAL_FILE, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for connection in [world.host.store.engine.raw_connection()]:
            connection.execute("PRAGMA busy_timeout=20")
            connection.close()
        done = service.writer.put(Event("fail", 0, 7))
        with pytest.raises(StoreUnavailable, match="locked"):
            service.writer.flush()
        assert not service.writer.healthy
        assert not done.done()
        other.execute("ROLLBACK")
        other.close()
        service.writer.flush()
        assert done.done()
        assert service.writer.healthy
        assert [entry.kind for entry in world.host.store.entries()].count("fail") == 1
    finally:
        world.close()


def test_recovery_without_checkpoint_gives_the_same_state(world, folder):
    """Without any whole checkpoint, the journal leads to the same state; a journal that lacks something is refused."""
    deployed = world(RUN)
    deployed.round()
    deployed.host.service.writer.checkpoint()
    before = deployed.host.driver.params
    for path in folder.glob("checkpoint*"):
        path.write_bytes(b"damaged")
    deployed.restart()
    assert torch.equal(deployed.host.driver.params, before)
    deployed.host.service.writer.checkpoint()
    with deployed.host.store.engine.begin() as connection:
        connection.execute(stores.db.JOURNAL.delete().where(stores.db.JOURNAL.c.number > 3))
    with pytest.raises(CheckpointError, match="is behind its checkpoint"):
        deployed.restart()
    for path in folder.glob("checkpoint*"):
        path.unlink()
    for path in folder.glob("journal*"):
        path.unlink()
    deployed.restart()


def resaved(folder, change):
    """Change tensors and facts of the last checkpoint, whose file is intact afterwards."""
    tensors, facts = checkpoint.load(folder)
    change(tensors, facts)
    checkpoint.save(folder, tensors, facts)


def delete_checkpoints(folder):
    for file in (checkpoint.FILE, checkpoint.PREVIOUS):
        (folder / file).unlink()


@pytest.mark.parametrize("name", ["presence", "coordinator/version", "model/params", "journal", "noise", "ledger"])
def test_checkpoint_with_invalid_values_is_reported_and_journal_recovers(world, name):
    """The attack: each digest is right, but a value is missing or has another form."""
    deployed = world(RUN)
    while deployed.host.driver.version < 2:
        deployed.round()
    deployed.host.service.writer.checkpoint()
    before, last = deployed.host.driver.params, deployed.host.driver.applied
    for value in (None, "x"):

        def change(tensors, facts, value=value):
            values, other = (tensors, torch.ones(2, 3)) if name in tensors else (facts, value)
            values.pop(name)
            values.update({} if value is None else {name: other})

        resaved(deployed.folder, change)
        with pytest.raises(
            CheckpointError,
            match=r"checkpoint.safetensors is damaged \(the run: .*\): delete it and checkpoint.previous.safetensors, "
            r"and the server restores the same state from its journal",
        ):
            deployed.restart()
        delete_checkpoints(deployed.folder)
        deployed.restart()
        assert torch.equal(deployed.host.driver.params, before)
        assert deployed.host.driver.applied == last
        deployed.host.service.writer.checkpoint()


@pytest.mark.parametrize("damage", ["cut", "flipped", "removed"])
def test_damaged_tables_are_computed_again_from_the_journal(world, damage, caplog):
    """Nothing is lost with them, so that no flipped bit keeps a server from going on."""
    deployed = world(RUN, checkpoint_every=0.0)
    while deployed.host.driver.version < 3:
        deployed.round()
    deployed.host.service.writer.checkpoint()
    path = deployed.folder / "history.journal"
    before, norms = path.read_bytes(), deployed.host.driver.ledger.history.column("update_norm")[1].tolist()
    if damage == "removed":
        path.unlink()
    else:
        half = len(before) // 2
        path.write_bytes(before[:half] + (b"" if damage == "cut" else bytes([before[half] ^ 1]) + before[half + 1 :]))
    deployed.restart()
    assert "tables damaged" in caplog.text
    assert "no complete checkpoint: the whole journal is applied" in caplog.text
    assert deployed.host.driver.version == 3
    assert deployed.host.driver.ledger.history.column("update_norm")[1].tolist() == norms
    deployed.run()
    assert replay(deployed.setting, deployed.folder).same is True


def test_checkpoint_of_another_run_is_refused(world):
    deployed = world(RUN).run()
    deployed.host.service.writer.checkpoint()
    before = deployed.host.driver.params
    resaved(deployed.folder, lambda _, facts: facts.update(run="another"))
    with pytest.raises(
        CheckpointError,
        match=r"another run than its journal: restore both from a copy, or delete checkpoint.safetensors and "
        r"checkpoint.previous.safetensors to go on with the run of the journal",
    ):
        deployed.restart()
    delete_checkpoints(deployed.folder)
    deployed.restart()
    assert torch.equal(deployed.host.driver.params, before)


def test_checkpoint_with_nan_is_ignored(world):
    deployed = world(RUN)
    while deployed.host.driver.version < 2:
        deployed.round()
    deployed.host.service.writer.checkpoint()
    before = deployed.host.driver.params
    resaved(deployed.folder, lambda tensors, _: tensors["model/params"][:1].fill_(float("nan")))
    deployed.restart()
    assert torch.equal(deployed.host.driver.params, before)
    checkpoints.check_progress(deployed.host.driver, 0)


def test_read_only_folder_is_replayed(world, monkeypatch):
    """Such as one on a read-only disk, where SQLite opens no database with a log. Nothing is written beside it."""
    deployed = world(RUN).run()
    deployed.host.service.writer.checkpoint()
    deployed.close()
    monkeypatch.setattr(os, "access", lambda *_: False)
    store = Store(deployed.folder, read_only=True)
    assert sum(entry.kind == "report" for entry in store.entries()) == 8 * RUN.rounds
    assert [path.name for path in deployed.folder.glob("journal*")] == [JOURNAL_FILE]
    store.close()
    assert replay(deployed.setting, deployed.folder).same is True


def test_another_experiment_is_refused(world):
    """A folder goes on with its own run alone."""
    deployed = world(RUN)
    deployed.setting = ServedExperiment.of(replace(RUN, seed=1)).setting
    with pytest.raises(CheckpointError, match=r"holds another experiment .there, and here.: .*seed: 0 and 1"):
        deployed.restart()
    deployed.setting = ServedExperiment.of(RUN).setting
    deployed.restart()


def test_second_server_on_a_folder_is_refused(folder):
    """The second one is refused, and the first is none the wiser."""
    first = Server(RUN, folder, None, Options(min_clients=1))
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            Server(RUN, folder)
        except CheckpointError as error:
            code = 0 if "in use by another run" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    first.stop()


REFUSALS = {
    "time budget": (
        {"algorithm": fedau(Sgd(steps=TimeBudget(10.0)))},
        "a time budget counts steps by the simulated speed",
    ),
    "buffered selection": (
        {"algorithm": RECIPES["folb"](LOCAL), "pace": Buffered(3)},
        "the order of arrival decides who is in a step",
    ),
    "buffered controls": (
        {"algorithm": RECIPES["scaffold"](LOCAL), "pace": Buffered(3)},
        "order of arrival|may mix several",
    ),
    "label groups": (
        {"label_groups": ((0, 1), (2, 3))},
        "label_groups: this looks at the data of all clients, and theirs stay with them: leave it out",
    ),
    "appeal": ({"appeal": AppealMetrics()}, "appeal: this looks at the data of all clients"),
    "gradients": ({"gradients": GradientMetrics()}, "gradients: this looks at the data of all clients"),
    "test examples": (
        {"population": Population(opting=Opting(split="test"))},
        "clients at home judge by their training examples",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_undeployable_experiments_are_refused(what):
    """Refused at the start, with the reason."""
    changes, reason = REFUSALS[what]
    with pytest.raises(ConfigurationError, match=reason):
        ServedExperiment.of(replace(RUN, **changes))


def test_clients_beyond_memory_are_refused(monkeypatch):
    """MIFA keeps N x P on the server: so many clients as fit, and no more; rates given for each are for so many."""
    mifa = ServedExperiment.of(replace(RUN, algorithm=RECIPES["mifa"](LOCAL))).setting
    assert mifa.check_clients(8, None) == 100_000
    monkeypatch.setattr(settings_of, "memory_bytes", lambda: 1 << 20)
    with pytest.raises(
        ConfigurationError, match=r"mifa keeps 592 bytes of every client .* write --max-clients \d+ or less"
    ):
        mifa.check_clients(8, None)
    assert mifa.check_clients(8, 100) == 100
    known = ServedExperiment.of(replace(RUN, algorithm=RECIPES["known_statistics"](LOCAL))).setting
    assert known.check_clients(8, None) == 8
    with pytest.raises(ConfigurationError, match="max_clients: got 9, but 8 participation rates were given for 9"):
        known.check_clients(8, 9)
    with pytest.raises(ConfigurationError, match="at least min_clients, 8"):
        mifa.check_clients(8, 5)


def test_visible_data_are_listed():
    """By kind and piece; a client may allow less, and then says no."""
    folb = RECIPES["folb"](LOCAL)
    assert {each.kind for each in visible(folb)} == {"participation", "scalars", "updates", "gradients"}
    assert [each.what for each in excess(folb, ["participation", "scalars", "updates"])] == ["start_gradient"]
    assert not excess(fedau(LOCAL), ["participation", "scalars", "updates"])
    assert {each.kind for each in visible(RECIPES["scaffold"](LOCAL))} >= {"sums"}
    with pytest.raises(ConfigurationError, match=r"unknown kind of what is shared 'update'.*did you mean 'updates'"):
        excess(folb, ["update"])


def test_clients_opt_out_at_home(world):
    """With requirements that the model does not meet, clients leave, and the server learns only that."""
    algorithm = compose(LOCAL, AppealGap(), Appeal(), DivideBySumPlus(0.1))
    content = Population(requirement=GivenRequirement((9.0,) * 4 + (1e-6,) * 4), opting=Opting(mandatory_rounds=1))
    deployed = world(replace(RUN, algorithm=algorithm, population=content, rounds=3))
    for _ in range(40):
        deployed.round()
        if deployed.host.driver.over:
            break
    history = deployed.host.driver.ledger.history.participation
    by_round = [set(history["client"].to_numpy()[history["round"].to_numpy() == r].tolist()) for r in (1, 2, 3)]
    assert by_round == [set(range(8)), {0, 1, 2, 3}, {0, 1, 2, 3}]
    assert deployed.host.driver.ledger.dropped["left"] >= 4


def test_requirements_equal_those_of_the_simulation():
    """A client that trains a model of its own at home requires what it would in a simulation."""
    from turnout.simulation import Simulation
    from turnout_serve.client.computer import Computer
    from turnout_serve.client.opting import ClientRequirement

    run = replace(RUN, algorithm=RECIPES["maxfl"](LOCAL), population=Population(requirement=WarmUp(steps=5)))
    bound = Simulation(run).opt_in.requirement
    assert bound is not None
    required = bound.train
    computer = Computer(run, "vectorized")
    for row in (0, 5):
        found = ClientRequirement(computer, row).bound(row)
        assert found is not None
        assert found.train[row] == required[row]


def test_server_that_cannot_continue_ends_with_the_reason(folder, monkeypatch):
    """What should never happen ends the server with a word, and nothing of its broken state is saved."""
    server = Server(RUN, folder, None, Options(port=0, min_clients=1))

    def broken(*_):
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(server.driver, "apply", broken)
    server.service.enroll("t" * 40)
    with pytest.raises(CheckpointError, match=r"could not go on: ZeroDivisionError\('a mistake'\)"):
        server.run(lambda _: None)
    assert not (folder / "checkpoint.safetensors").exists()


def test_status_and_metrics_have_the_figures(world):
    """Status, Prometheus text and the page; the tables are those of a run, so that a report can be made of them."""
    from turnout.comparison.folders import load_record

    deployed = world(RUN)
    deployed.round()
    deployed.round()
    figures = deployed.host.send("GET", "/v1/status").table()
    assert (figures["version"] >= 1, figures["enrolled"], figures["there"], figures["state"]) == (
        True,
        8,
        8,
        "training",
    )
    assert len(figures["curves"]["local_loss"]) == figures["version"]
    text = deployed.host.send("GET", "/metrics").body.decode()
    assert f"turnout_steps_total {figures['version']}\n" in text
    assert 'turnout_clients{state="enrolled"} 8\n' in text
    assert "# TYPE turnout_tasks_dropped_total counter" in text
    page = deployed.host.send("GET", "/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert b"v1/status" in page.body
    deployed.run()
    deployed.host.service.writer.checkpoint()
    from turnout.record import storage
    from turnout.record.describe import describe

    storage.save(deployed.folder, {"config.json": storage.json_writer(describe(RUN))})
    assert load_record(deployed.folder).history.last_round == 4


def postgres():
    """A PostgreSQL server of our own for a moment, or why there is none."""
    found = shutil.which("initdb"), shutil.which("pg_ctl")
    if None in found:
        pytest.skip("there is no PostgreSQL here: apt-get install postgresql")
    return [str(program) for program in found]


@pytest.fixture(scope="module")
def database():
    """The URL of an empty PostgreSQL database."""
    initdb, pg_ctl = postgres()
    with tempfile.TemporaryDirectory(prefix="turnout-postgres-") as name:
        folder, port, user = Path(name), free_port(), []
        if os.geteuid() == 0:
            if subprocess.run(["id", "postgres"], capture_output=True).returncode or shutil.which("runuser") is None:
                pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
            user = ["runuser", "-u", "postgres", "--"]
            shutil.chown(folder, "postgres")

        def run(*command):
            done = subprocess.run([*user, *command], capture_output=True, text=True, cwd=folder)
            assert done.returncode == 0, done.stderr

        data, log = str(folder / "data"), str(folder / "log")
        run(initdb, "-D", data, "-A", "trust", "-U", "turnout", "--no-sync")
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        run(pg_ctl, "-D", data, "-l", log, "-o", options, "-w", "start")
        yield f"postgresql://turnout@127.0.0.1:{port}/postgres"
        run(pg_ctl, "-D", data, "-m", "immediate", "stop")


def test_run_on_postgresql_equals_sqlite(world, folder, database):
    """The same journal in PostgreSQL: a run with a restart in the middle; a second server is refused."""
    deployed = world(RUN, database=database)
    deployed.round()
    deployed.options = {**deployed.options, "database": database}
    deployed.restart()
    deployed.run()
    assert deployed.host.driver.version == 4
    store = deployed.host.store
    assert sorted(store.clients().values()) == list(range(8))
    assert store.outcomes.get(0, 0).outcome == "taken"
    store.claim()
    second = Store(folder / "second", database)
    with closing(second), pytest.raises(CheckpointError, match="another server is at work on this database"):
        second.claim()


def test_postgresql_connections_that_die_lose_nothing(world, folder, database, monkeypatch):
    """All connections of the server are ended before each group of entries; a second server is refused afterwards, too."""
    import psycopg

    with psycopg.connect(database, autocommit=True) as administrator:
        administrator.execute("create database dies")
        url = database.replace("/postgres", "/dies")
        deployed = world(RUN, database=url)
        deployed.host.store.claim()
        writer, commit = deployed.host.service.writer, Store.commit
        monkeypatch.setattr("turnout_serve.server.journal.journal_writer.time.sleep", lambda _: None)

        def ending(store, *arguments):
            administrator.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = 'dies'")
            commit(store, *arguments)

        monkeypatch.setattr(Store, "commit", ending)
        monkeypatch.setattr(writer, "flush", patient(writer))
        deployed.run()
        monkeypatch.undo()
        assert deployed.host.driver.version == RUN.rounds
        assert writer.healthy
        second = Store(folder / "second", url)
        with closing(second), pytest.raises(CheckpointError, match="another server is at work on this database"):
            second.claim()


def test_postgresql_that_is_read_only_for_a_while_loses_nothing(world, database, monkeypatch):
    """As after a failover: connections to what has become a copy stay read-only, and new ones can write."""
    import psycopg

    with psycopg.connect(database, autocommit=True) as administrator:
        administrator.execute("create database copied")
        deployed = world(RUN, database=database.replace("/postgres", "/copied"))
        deployed.host.store.claim()
        deployed.round()
        waits = []

        def wait(_):
            waits.append(deployed.host.service.writer.healthy)
            if len(waits) == 2:
                administrator.execute("alter database copied set default_transaction_read_only = off")

        writer = deployed.host.service.writer
        monkeypatch.setattr("turnout_serve.server.journal.journal_writer.time.sleep", wait)
        monkeypatch.setattr(writer, "flush", patient(writer))
        administrator.execute("alter database copied set default_transaction_read_only = on")
        administrator.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = 'copied'")
        deployed.run()
        assert waits[:2] == [False, False]
        assert (deployed.host.driver.version, writer.failure, writer.healthy) == (RUN.rounds, None, True)


def test_invalid_database_urls_are_refused(folder):
    """What is no database says so."""
    for url, message in {
        "nonsense": "needed postgresql://",
        "mysql://x@y/z": "database: got mysql",
        "postgresql://nobody@127.0.0.1:1/none": "the database cannot be used",
    }.items():
        with pytest.raises(ConfigurationError, match=message):
            Store(folder, url)


def test_missing_package_of_a_database_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(
        ConfigurationError, match=r"PostgreSQL needs psycopg: pip install 'turnout-serve\[postgresql\]'"
    ):
        Store(folder, "postgresql://nobody@127.0.0.1:1/none")


def test_store_returns_what_was_committed(folder):
    """Entries, outcomes (the last one counts) and codes."""
    store = Store(folder)
    entries = [Entry(1, 0.5, 1.0, "enrol", 0, digest="t", data={"name": "n"}), Entry(2, 0.6, 1.0, "report", 0, 3, "d")]
    for group, outcome in ((entries, Outcome(3, 0, "stale")), ([], Outcome(3, 0, "taken", "d"))):
        store.outcomes.add([outcome])
        store.commit(group)
    assert list(store.entries()) == entries
    assert list(store.entries(1)) == entries[1:]
    assert store.outcomes.get(0, 3) == Outcome(3, 0, "taken", "d")
    for client, task in ((0, 4), (1, 3)):
        with pytest.raises(Refused, match=f"client {client} has no task {task}"):
            store.outcomes.get(client, task)
    assert store.clients() == {"t": 0}
    run = store.facts.run
    store.close()
    store = Store(folder)
    assert store.facts.run == run
    assert store.outcomes.get(0, 3) == Outcome(3, 0, "taken", "d")
    store.close()


def test_incompatible_options_are_refused(tmp_path):
    """Certificates come with keys, and are files."""
    file = tmp_path / "cert.pem"
    file.write_text("")
    for options, message in [
        ({"certificate": file}, "certificate and key go together"),
        ({"client_ca": file}, "certificates of clients need TLS"),
        ({"certificate": tmp_path / "no", "key": file}, "there is no file"),
    ]:
        with pytest.raises(ConfigurationError, match=message):
            Options(**options)


def test_tasks_are_plain_values():
    """A task is JSON, to the last bit."""
    from turnout_serve.wire.assignment import Assignment, plain_row
    from turnout_serve.wire.format import WireError

    state = {"x": torch.tensor([0.1, 1 / 3], dtype=torch.float64), "n": torch.tensor([3, 2**60])}
    task = Assignment(1, 2, "train", 0, "0" * 64, 10, 1.0, plain_row(state, 1))
    again = Assignment.read(json.loads(json.dumps(task.json())))
    assert again.tensors()["x"].item() == np.float64(1 / 3)
    assert again.tensors()["n"].item() == 2**60
    with pytest.raises(WireError, match="is no task: version is missing"):
        Assignment.read({"task": 1})


def test_run_of_an_earlier_version_continues(world):
    """An option that its description lacks had its default; with another value it is another experiment."""
    deployed = world(RUN)
    known = json.loads(deployed.host.store.facts.get("experiment"))
    del known["precision"]
    with transaction(deployed.host.store.engine) as connection:
        connection.execute(
            stores.db.FACTS.update().where(stores.db.FACTS.c.name == "experiment").values(value=json.dumps(known))
        )
    deployed.restart()
    deployed.run()
    deployed.setting = ServedExperiment.of(replace(RUN, precision="bf16")).setting
    with pytest.raises(CheckpointError, match=r"holds another experiment .*precision: 'full' and 'bf16'"):
        deployed.restart()


def test_server_stopped_while_it_starts_ends_without_an_error(folder, monkeypatch):
    """SIGTERM may come between the start of the listener and the note of its address, when its socket is closed again."""
    startup = PlainUvicorn.startup

    async def stopped(self, sockets=None):
        await startup(self, sockets)
        self.should_exit = True

    monkeypatch.setattr(PlainUvicorn, "startup", stopped)
    assert Server(RUN, folder, None, Options(port=0)).run(lambda _: None) == "stopped"
