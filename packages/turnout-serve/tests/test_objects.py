"""Models and reports in an object store: the same bits as in files, and nothing is lost or believed that should not be."""

import errno
import itertools
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from pathlib import Path

import httpx2
import pytest
import torch

from turnout.core.checks import ConfigurationError
from turnout_serve.client import session
from turnout_serve.client.calls import Answer, Call, Transfer
from turnout_serve.client.computer import Computer
from turnout_serve.client.exchange import WatchedClient
from turnout_serve.client.join import Connection, Joined
from turnout_serve.client.newcomer import Manners, Newcomer
from turnout_serve.client.session import Client, links
from turnout_serve.client.state import ClientState
from turnout_serve.client.worker import Worker
from turnout_serve.server.http import task_routes
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.leases import Leases
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.server.store.store import Store
from turnout_serve.wire.administrator import JOURNAL_FILE
from turnout_serve.wire.format import digest

from .test_crashes import Reaper, free_port
from .test_failures import RUN, at_work, undisturbed  # noqa: F401 - a fixture
from .test_hostile import put, waiting
from .world import Host, Killed

obstore = pytest.importorskip("obstore", reason="obstore is missing: pip install 'turnout-serve[store]'")
from obstore.exceptions import GenericError  # noqa: E402
from obstore.store import MemoryStore  # noqa: E402

from turnout_serve.server.store import objects  # noqa: E402

URL = "s3://bucket/prefix"


class Remote:
    """A store in memory behind the functions of obstore, and its HTTP side; `before` is called with every operation."""

    def __init__(self):
        self.store, self.before, self.count = MemoryStore(), lambda _: None, 0

    def __getattr__(self, name):
        def operation(*args, **options):
            self.strike(name)
            return getattr(obstore, name)(*args, **options)

        return operation

    def strike(self, name):
        self.count += 1
        self.before(name)

    def sign(self, store, method, name, lifetime):
        del store, lifetime
        return f"https://memory/{method}/{name}"

    def names(self, folder):
        return sorted(item["path"].rpartition("/")[2] for page in obstore.list(self.store, folder) for item in page)

    def http(self, call):
        """What a store answers to a client."""
        method, _, name = call.path.removeprefix("https://memory/").partition("/")
        assert "authorization" not in call.headers
        try:
            self.strike(f"client {call.method}")
        except GenericError:
            return Answer(503)
        if method != call.method:
            return Answer(403)
        if method == "PUT":
            obstore.put(self.store, name, call.body)
            return Answer(200)
        try:
            return Answer(200, bytes(obstore.get(self.store, name).bytes()))
        except FileNotFoundError:
            return Answer(404)


@pytest.fixture
def remote(monkeypatch):
    """An object store for everything, however small."""
    made = Remote()
    monkeypatch.setattr(objects, "obstore", made)
    monkeypatch.setattr(objects, "from_url", lambda _: made.store)
    monkeypatch.setattr(objects, "DIRECT", 0)
    monkeypatch.setattr(Host, "transfer", lambda _, call: made.http(call))
    return made


def test_object_store_gives_the_same_bits_as_files(world, remote, undisturbed, monkeypatch):  # noqa: F811
    bodies, sent = [], Host.send

    def counted(self, method, path, body=b"", headers=None, cut=None):
        answer = sent(self, method, path, body, headers, cut)
        bodies.append(len(body) if method == "PUT" else 0)
        assert not path.startswith("/v1/models/")
        return answer

    monkeypatch.setattr(Host, "send", counted)
    deployed = world(RUN, store=URL).run()
    assert torch.equal(deployed.host.driver.params, undisturbed)
    assert not any(bodies)
    reports = [entry.digest for entry in deployed.host.store.entries() if entry.kind == "report"]
    assert remote.names("reports") == sorted(f"{name}.safetensors" for name in set(reports))
    assert remote.names("incoming") == remote.names("checking") == []
    assert remote.names("models") == [f"{deployed.host.driver.publication.digest}.safetensors"]
    assert not list(deployed.host.store.files.reports.iterdir())  # copies last as long as they are needed
    deployed.host.service.writer.checkpoint()
    assert replay(deployed.setting, deployed.folder, store=URL).same is True
    asked = remote.count
    with pytest.raises(
        ConfigurationError, match="with your credentials: write --store s3://bucket/prefix if you trust"
    ):
        replay(deployed.setting, deployed.folder)
    assert remote.count == asked


@pytest.mark.parametrize("at_work_then", [False, True])
def test_loss_of_the_disk_loses_no_report(world, remote, undisturbed, at_work_then):  # noqa: F811
    """The database is elsewhere, here in the only file that is left: the journal and the store lead to the same model."""
    deployed = world(RUN, store=URL, checkpoint_every=0.0)
    for _ in range(3):
        deployed.round()
    if at_work_then:  # a report of the present step was taken, and is only in the store
        for home in deployed.homes[:2]:
            home.turn(deployed.host)
    assert 0 < deployed.host.driver.version < RUN.rounds
    assert remote.names("reports")
    deployed.host.close()
    for path in deployed.folder.iterdir():
        if not path.name.startswith(JOURNAL_FILE):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    deployed.restart()
    deployed.run()
    assert torch.equal(deployed.host.driver.params, undisturbed)
    assert deployed.host.driver.ledger.dropped == {}
    deployed.host.service.writer.checkpoint()
    assert replay(deployed.setting, deployed.folder, store=URL).same is True


def test_clients_that_trust_no_store_send_to_the_server(world, remote, undisturbed, monkeypatch):  # noqa: F811
    monkeypatch.setattr(session, "links", lambda *_: {})
    deployed = world(RUN, store=URL).run()
    assert torch.equal(deployed.host.driver.params, undisturbed)
    assert len(remote.names("reports")) == RUN.rounds * len(deployed.homes)


def test_small_bodies_have_no_links(world, remote, monkeypatch):
    monkeypatch.setattr(objects, "DIRECT", 1 << 30)
    deployed = at_work(world(RUN, store=URL))
    assert deployed.homes[0].client._links == {}
    assert remote.names("incoming") == []


def test_failing_store_loses_no_report(world, remote, undisturbed):  # noqa: F811
    def fail(_):
        if remote.count % 20 == 0:
            raise GenericError("503 Slow Down")

    deployed = world(RUN, store=URL)
    remote.before = fail
    deployed.run()
    assert torch.equal(deployed.host.driver.params, undisturbed)
    assert {entry.kind for entry in deployed.host.store.entries()} <= {"enrol", "join", "leave", "start", "report"}
    remote.before = lambda _: None
    deployed.host.service.writer.checkpoint()
    assert replay(deployed.setting, deployed.folder, store=URL).same is True


@pytest.mark.parametrize("first", [1, 4])
def test_kill_between_any_two_writes_loses_no_report(world, remote, undisturbed, monkeypatch, first):  # noqa: F811
    """Disk, journal and store: whatever was the last operation, no report is lost and none counts twice."""
    reaper = Reaper(first)
    monkeypatch.setattr(Store, "commit", reaper.around("server", Store.commit))
    remote.before = lambda name: None if name.startswith("client") else reaper.strike("server")
    deployed = world(RUN, store=URL, checkpoint_every=0.0)
    kills, homes = 0, deployed.homes
    for turn in range(2000):
        if all(home.over for home in homes):
            break
        reaper.side, reaper.left = "server", reaper.left or (first + turn % 5 if kills < 15 else None)
        try:
            for home in homes:
                if not home.over:
                    home.turn(deployed.host)
        except Killed:
            kills, reaper.left = kills + 1, None
            deployed.restart()
        deployed.clock.now += 1.0
    assert kills == 15
    assert torch.equal(deployed.host.driver.params, undisturbed)


def hostile(world):
    """Clients at work on links; returns the federation, and the links of the first client."""
    deployed = at_work(world(RUN, store=URL))
    first = deployed.homes[0]
    assert isinstance(first.action, Transfer)
    return deployed, first.client._links["report"], waiting(first)


def announce(deployed, client, task, body, **headers):
    """Say that a report is in the store."""
    size = str(len(body))
    return put(deployed, client, task, b"", digest(body), **{"upload-length": size, "upload-offset": size, **headers})


@pytest.mark.usefixtures("remote")
def test_copies_on_a_read_only_disk_are_left_there(world, monkeypatch):
    """They only take space: the entry whose step has used them is applied."""
    deployed = hostile(world)[0]
    files = deployed.host.store.files
    files.report("0" * 64).write_bytes(b"copy")

    def read_only(path, **_):
        raise OSError(30, "Read-only file system", str(path))

    with monkeypatch.context() as mounted:
        mounted.setattr(Path, "unlink", read_only)
        files.release(["0" * 64])
    files.release(["0" * 64])
    assert not files.report("0" * 64).exists()


def test_upload_that_is_too_large_ends_the_task(world, remote):
    deployed, _, body = hostile(world)
    task, length, read = deployed.host.driver.task_of(0).task, str(1 << 40), []
    remote.before = read.append
    headers = {"upload-length": length, "upload-offset": length}
    assert [announce(deployed, 0, task, body, **headers).status for _ in range(2)] == [413, 410]
    assert read == []


def test_invalid_uploads_are_refused(world, remote, undisturbed):  # noqa: F811
    deployed, link, body = hostile(world)
    task, read = deployed.host.driver.task_of(0).task, []
    remote.before = read.append
    assert announce(deployed, 0, task, body).table() == {"reason": "there is no upload of this report", "offset": 0}
    remote.http(Call("PUT", link, body=body + b"x"))
    answer = announce(deployed, 0, task, body)
    assert (answer.status, answer.table()["reason"]) == (
        409,
        f"the upload has {len(body) + 1:,} bytes, and {len(body):,} were announced",
    )
    assert "get" not in read  # its size alone was looked at
    remote.http(Call("PUT", link, body=body[:-1] + bytes([body[-1] ^ 1])))
    assert announce(deployed, 0, task, body).table()["reason"] == "the report was damaged on its way"
    assert remote.names("checking") == remote.names("reports") == []
    assert not list(deployed.host.store.files.incoming.iterdir())
    deployed.run()
    assert torch.equal(deployed.host.driver.params, undisturbed)


def test_upload_of_another_client_cannot_be_reported(world, remote):
    deployed, link, body = hostile(world)
    remote.http(Call("PUT", link, body=body))
    second = deployed.host.driver.task_of(1).task
    assert announce(deployed, 1, second, body).status == 409  # of its own upload, there is none
    first = deployed.host.driver.task_of(0).task
    assert announce(deployed, 1, first, body).status == 404  # no task of its own
    assert announce(deployed, 0, first, body).status == 201


def test_upload_changed_during_its_check_is_refused(world, remote, undisturbed, monkeypatch):  # noqa: F811
    """The link still works; what is behind it is read no more."""
    deployed, link, body = hostile(world)
    checked = task_routes.check

    async def changing(*args):
        remote.http(Call("PUT", link, body=b"something else"))
        await checked(*args)

    monkeypatch.setattr(task_routes, "check", changing)
    remote.http(Call("PUT", link, body=body))
    task = deployed.host.driver.task_of(0).task
    assert announce(deployed, 0, task, body).status == 201
    assert bytes(obstore.get(remote.store, f"reports/{digest(body)}.safetensors").bytes()) == body
    remote.http(Call("PUT", link, body=b"later"))  # the lease has ended, and the link has not
    assert announce(deployed, 0, task, b"later").status == 409
    assert announce(deployed, 0, task, body).status == 200
    deployed.run()
    assert torch.equal(deployed.host.driver.params, undisturbed)
    deployed.restart()
    assert remote.names("incoming") == []


def test_client_occupies_one_object(world, remote):
    """It takes a task, sends what it likes to the link, gives the task up, and takes the next one; old links still work."""
    deployed, _, body = hostile(world)
    home, links = deployed.homes[0], set()
    token, read = {"authorization": f"Bearer {home.state.token}"}, []
    remote.before = read.append
    for size in range(1, 20):
        task = deployed.host.driver.task_of(0)
        found = deployed.host.send("GET", f"/v1/tasks/{task.task}", headers=token).table()["store"]["report"]
        links.add(found)
        for link in links:
            remote.http(Call("PUT", link, body=bytes(len(body) + size)))
        assert announce(deployed, 0, task.task, body).status == 409
        assert deployed.host.send("POST", f"/v1/tasks/{task.task}/fail", b"{}", token).status == 200
        deployed.host.send("POST", "/v1/checkin", b"{}", token)
        if deployed.host.driver.task_of(0) is None:
            break
    assert remote.names("incoming") == ["0"]
    assert remote.names("checking") == []
    assert not {"copy", "get"} & set(read)  # of what is too large
    deployed.restart()
    assert remote.names("incoming") == (["0"] if deployed.host.driver.task_of(0) else [])


@pytest.mark.usefixtures("remote")
def test_full_disk_during_a_copy_is_waited_for(world, undisturbed, monkeypatch):  # noqa: F811
    """Of every third object half is written: the client sends again, a step waits, and nothing is left or lost."""
    read, calls = objects.Objects._read, itertools.count()

    def full(self, name, path):
        if next(calls) % 3:
            return read(self, name, path)
        path.write_bytes(bytes(100))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(objects.Objects, "_read", full)
    release = objects.Objects.release
    monkeypatch.setattr(
        objects.Objects,
        "bring",
        lambda self, arrived: objects.Files.bring(self, arrived) or release(self, [name for _, name in arrived]),
    )  # so that steps copy reports from the store, too
    deployed = world(RUN, store=URL)
    deployed.host.store.wait = lambda _: None
    deployed.run()
    assert next(calls) > 2 * RUN.rounds * len(deployed.homes)
    assert torch.equal(deployed.host.driver.params, undisturbed)
    assert {entry.kind for entry in deployed.host.store.entries()} <= {"enrol", "join", "leave", "start", "report"}
    assert not list(deployed.folder.rglob("*.part"))


def test_refused_report_leaves_no_object(world, remote):
    deployed, link, _ = hostile(world)
    remote.http(Call("PUT", link, body=b"no safetensors"))
    assert announce(deployed, 0, deployed.host.driver.task_of(0).task, b"no safetensors").status == 422
    assert remote.names("incoming") == remote.names("checking") == remote.names("reports") == []


def test_reads_of_one_upload_are_limited(world, remote):
    deployed, link, body = hostile(world)
    remote.http(Call("PUT", link, body=b"x" * len(body)))
    task = deployed.host.driver.task_of(0).task
    statuses = {announce(deployed, 0, task, body).status for _ in range(33)}
    assert statuses == {409, 429}


def test_killed_client_asks_for_its_link(world, remote, folder):
    deployed = at_work(world(RUN, store=URL, folder=folder / "run", homes=folder / "homes"))
    deployed.homes[0] = reborn = deployed.homes[0].reborn()
    reborn.turn(deployed.host)
    assert reborn.client.done == 1
    assert len(remote.names("reports")) == 1


def test_expired_and_dead_links_fall_back_to_the_server(world, remote, undisturbed, monkeypatch):  # noqa: F811
    """A client asks for another link, and after five goes past the store."""
    deployed, _, _ = hostile(world)
    answers = {"client PUT": 0}

    def forbidden(call):
        answers["client PUT"] += call.method == "PUT"
        return Answer(403)

    monkeypatch.setattr(Host, "transfer", lambda _, call: forbidden(call))
    deployed.homes[0].turn(deployed.host)
    while not deployed.homes[0].client.done:
        deployed.homes[0].turn(deployed.host)
    assert answers["client PUT"] == 5
    monkeypatch.setattr(Host, "transfer", lambda _, call: remote.http(call))
    deployed.run()
    assert torch.equal(deployed.host.driver.params, undisturbed)


def test_malformed_and_untrusted_links_are_ignored():
    """Whatever a server says, a client sends requests to hosts alone that its owner has named."""
    hosts = {"a", "[::1]"}
    assert links({}, hosts) == links({"store": []}, hosts) == {}
    given = {
        "model": 3, "report": "file:///etc/passwd", "x": "https://a/ b", "y": "https://a:9000/b?c", "z": "http://169.254.169.254/a",
        "userinfo": "https://a@evil/b", "backslash": "https://evil\\@a/b", "no path": "https://a", "suffix": "https://a.evil/b",
    }  # fmt: skip
    assert links({"store": given}, hosts) == {"y": "https://a:9000/b?c"}
    assert links({"store": given}, frozenset()) == {}


def test_client_with_tls_uploads_only_with_tls():
    joined = Joined(Client(Newcomer(ClientState()), None), Connection("https://server"))  # type: ignore[arg-type]
    beat = Call("POST", "/v1/tasks/0/heartbeat", {})
    assert (
        joined._transfer(WatchedClient(), Transfer("PUT", "http://store/a", body=b"x", heartbeat=(beat, 1.0))).status
        == 0
    )


@pytest.mark.usefixtures("remote")
def test_store_of_a_run_cannot_change(folder):
    Store(folder / "files").close()
    with pytest.raises(
        ConfigurationError, match=r"store: got s3://bucket/prefix, but this run has its models and reports in"
    ):
        Store(folder / "files", objects=URL)
    Store(folder / "objects", objects=URL).close()
    again = Store(folder / "objects", objects=URL)
    assert again.files.takes_uploads
    again.close()
    with pytest.raises(ConfigurationError, match=r"store: got s3://other, but the models .* are in s3://bucket/prefix"):
        Store(folder / "objects", objects="s3://other")


@pytest.mark.parametrize("url", [URL, "s3://evil\x1b[2J", "s3://a; rm -rf ~"])
def test_store_named_only_by_the_folder_is_not_reached(remote, folder, url):
    """The attack: a folder that somebody sent names a store, or a line for the shell, and the user serves it."""
    store = Store(folder)
    store.close()
    with sqlite3.connect(folder / JOURNAL_FILE) as database:
        database.execute("update facts set value = ? where name = 'objects'", [url])
    database.close()
    with pytest.raises(ConfigurationError, match=r"your credentials: write --store '?s3.* if you trust it") as error:
        Store(folder)
    shown = str(error.value).replace("\N{REPLACEMENT CHARACTER}", "\x1b")
    assert "\x1b" not in str(error.value)
    assert f"--store {shlex.quote(url)} if" in shown
    assert not remote.count


@pytest.mark.parametrize("url", ["s4://bucket", "memory:///", "nothing"])
def test_unusable_stores_are_refused(folder, url):
    with pytest.raises(ConfigurationError, match=f"store: {url} cannot be used"):
        Store(folder, objects=url)


@pytest.fixture
def bucket(monkeypatch):
    """A bucket of moto's server, which speaks S3."""
    if (moto := shutil.which("moto_server")) is None:
        pytest.skip("moto_server is missing: pip install 'moto[server]'")
    port = free_port()
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.Popen([moto, "-p", str(port)], stdout=-3, stderr=-3, env=clean)
    settings = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1",
    }  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    for _ in range(200):
        try:
            httpx2.put(f"http://127.0.0.1:{port}/bucket").raise_for_status()
            break
        except httpx2.HTTPError:
            time.sleep(0.05)
    yield URL
    process.send_signal(signal.SIGTERM)
    process.wait()


def test_clients_over_http_with_a_bucket(bucket, folder, undisturbed, monkeypatch):  # noqa: F811
    """Processes' own code on both sides, and presigned links of S3."""
    monkeypatch.setattr(objects, "DIRECT", 0)
    n = RUN.data.num_clients
    options = Options(port=0, rate=0, min_clients=n, leases=Leases(heartbeat=60.0), store=bucket)
    server = Server(RUN, folder / "run", {}, options)
    computer = Computer(RUN, server.served.objective.engine)
    with server.listening() as url:
        manners = Manners(backoff=0.01, stores=frozenset({"127.0.0.1"}))
        clients = [Client(Newcomer(ClientState(), manners=manners), Worker(computer, row)) for row in range(n)]
        with httpx2.Client(base_url=url) as http:  # numbered as the data are
            for client in clients:
                body = {"authorization": f"Bearer {client.state.token}"}
                http.post("/v1/enrol", json={"protocol": 2}, headers=body).raise_for_status()
        threads = [threading.Thread(target=Joined(client, Connection(url)).run) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.http.counts.get(206, 0) == 0
    assert torch.equal(server.driver.params, undisturbed)
    assert all(client.done == RUN.rounds for client in clients)
    assert not list((folder / "run" / "reports").iterdir())
    assert replay(server.setting, folder / "run", store=bucket).same is True
