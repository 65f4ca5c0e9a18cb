"""Uploads of one report at once, in every order: what was checked is what is used."""

import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
import torch

from turnout.simulation import Simulation
from turnout_serve.server.http import uploads
from turnout_serve.server.http.app import Http
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.wire.format import digest, encode

from .test_hostile import RUN, auth, named, put, task_of, waiting
from .world import World

DTYPES = {"F32": torch.float32, "I64": torch.int64}


class Upload:
    """A request whose body comes when a test says so."""

    def __init__(self, host, client, token, task, body, name=None, offset=0):
        self.host, self.status, self.body, self.pieces = host, None, b"", asyncio.Queue()
        headers = {
            "authorization": f"Bearer {token}",
            "upload-offset": str(offset),
            "upload-length": str(len(body)),
            **named(name or digest(body)),
        }
        self.rest = body[offset:]
        scope = {
            "type": "http", "method": "PUT", "path": f"/v1/tasks/{task}/report", "root_path": "", "query_string": b"",
            "headers": [(k.encode(), v.encode()) for k, v in headers.items()], "client": ("test", client),
        }  # fmt: skip
        self.task = host.loop.create_task(host.app(scope, self.pieces.get, self._send))
        self.turn()

    async def _send(self, message):
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")

    def turn(self, turns=10):
        """Have the server do what it can, but for the journal's thread."""

        async def wait():
            for _ in range(turns):
                await asyncio.sleep(0)

        self.host.loop.run_until_complete(wait())

    def send(self, size, *, last=False):
        """Send the next bytes of the body."""
        piece, self.rest = self.rest[:size], self.rest[size:]
        self.pieces.put_nowait({"type": "http.request", "body": piece, "more_body": not last})
        self.turn()

    def cut(self):
        self.pieces.put_nowait({"type": "http.disconnect"})
        self.turn()


def answers(host, *requests):
    """Have the journal's thread work until everybody is answered."""
    for _ in range(100):
        host.pump()
        requests[0].turn()
        if all(request.task.done() for request in requests):
            return [request.status for request in requests]
    raise AssertionError([request.status for request in requests])


def at_reports(folder, **options):
    """A federation whose clients all have a report in hand."""
    world = World(RUN, folder, **options)
    for home in world.homes:
        home.step(world.host)
    for home in world.homes:
        home.train(world.host)
    return world


def upload(world, client, body=None, task=None, **options):
    token, body = world.homes[client].state.token, waiting(world.homes[client]) if body is None else body
    return Upload(world.host, client, token, task_of(world, client) if task is None else task, body, **options)


ORDERS = sorted(set(itertools.permutations("AABB")))


@pytest.mark.parametrize("at_once", [False, True])
def test_two_uploads_interleave_in_every_order(folder, at_once):
    """Both are answered that the report is taken, whichever piece comes first and however long the journal takes."""
    world, simulation = at_reports(folder), Simulation(RUN)
    try:
        for client, order in enumerate(ORDERS):
            half = len(waiting(world.homes[client])) // 2
            both = {name: upload(world, client) for name in "AB"}
            for step, name in enumerate(order):
                both[name].send(half if name not in order[:step] else 2 * half + 2)
                if not at_once:
                    world.host.pump()
            assert sorted(answers(world.host, *both.values())) == [200, 201]
        world.run()
        for _ in range(RUN.rounds):
            simulation.round()
        assert torch.equal(world.host.driver.params, simulation.state.params)
        world.host.service.writer.checkpoint()
        assert replay(world.setting, world.folder).same is True
        assert not list(world.host.store.files.incoming.iterdir())
    finally:
        world.close()


@pytest.mark.parametrize("order", ORDERS)
def test_concurrent_uploads_of_two_reports_take_one(folder, order):
    """Of two reports one is taken, and an upload that is damaged or empty does not touch what another one had checked."""
    world = at_reports(folder)
    try:
        body = waiting(world.homes[0])
        other = waiting(world.homes[1])  # valid for this task, too
        both = {"A": upload(world, 0), "B": upload(world, 0, other)}
        damaged = upload(world, 0, b"x" * len(body), name=digest(body))
        for step, name in enumerate(order):
            both[name].send(len(body) // 2 if name not in order[:step] else len(body))
            damaged.send(len(body) // 4 + 1)
        assert damaged.status == 409
        assert sorted(answers(world.host, *both.values())) == [201, 409]
        taken = world.host.service.state_of(0, 0).body["digest"]
        assert digest(world.host.store.files.report(taken).read_bytes()) == taken
        world.restart()
        assert world.host.service.state_of(0, 0).body == {"state": "taken", "digest": taken}
    finally:
        world.close()


def test_retry_during_the_journal_write_is_answered(folder):
    """An upload that begins, or ends as damaged, while a checked one is in the queue changes nothing of it."""
    world = at_reports(folder)
    try:
        body = waiting(world.homes[0])
        first = upload(world, 0)
        first.send(len(body))
        retry = upload(world, 0)
        retry.send(10)
        retry.cut()
        damaged = upload(world, 0, b"y" * len(body), name=digest(body))
        damaged.send(len(body))
        assert (retry.status, damaged.status) == (400, 409)
        assert answers(world.host, first) == [201]
        assert world.host.store.files.report(digest(body)).read_bytes() == body
    finally:
        world.close()


def test_upload_resumes_from_an_unfinished_attempt(folder):
    """A resumed upload copies what it goes on from, so that the earlier one may go on, too, or end."""
    world = at_reports(folder)
    try:
        body = waiting(world.homes[0])
        first = upload(world, 0)
        first.send(100)
        second = upload(world, 0, offset=60)
        first.send(len(body))
        second.send(len(body))
        assert sorted(answers(world.host, first, second)) == [200, 201]
        cut = upload(world, 1)
        cut.send(50)
        cut.cut()
        assert cut.status == 400
        world.restart()  # what had come of it is still there
        asked = world.host.send("GET", f"/v1/tasks/{task_of(world, 1)}", b"", auth(world, 1)).table()
        assert asked == {"state": "open", "offset": 50}
        assert upload(world, 1, offset=51).status == 409
        resumed = upload(world, 1, offset=50)
        resumed.send(len(body))
        assert answers(world.host, resumed) == [201]
        assert not list(world.host.store.files.incoming.iterdir())
    finally:
        world.close()


def test_concurrent_uploads_are_limited(folder):
    """A fifth upload of one client has to wait; uploads of others do not."""
    world = at_reports(folder)
    try:
        four = [upload(world, 0) for _ in range(4)]
        assert upload(world, 0).status == 429
        assert upload(world, 1).status is None
        for each in four:
            each.send(5)
            each.cut()
        assert len(list(world.host.store.files.incoming.glob("0-*"))) == 1
    finally:
        world.close()


def test_report_changed_before_its_commit_is_refused(folder):
    """The digest is verified once more: the report is not taken, its sender is told to send it again, and the run goes on."""
    world = at_reports(folder)
    try:
        changes = (lambda path: path.write_bytes(b"other"), lambda path: path.unlink())
        for honest, change in enumerate(changes, 1):
            sent, other = upload(world, 0), upload(world, honest)
            sent.send(10**6)
            other.send(10**6)
            (path,) = world.host.store.files.incoming.glob("0-*")
            change(path)
            assert answers(world.host, sent, other) == [409, 201]
            assert b'"offset":0' in sent.body
            assert not list(world.host.store.files.incoming.glob("0-*"))
        world.run()
        assert world.host.driver.version == RUN.rounds
    finally:
        world.close()


def slow(world, clock, **limits):
    """The same server with other limits, and a clock of the test's."""
    from turnout_serve.server.http.limits import Limits

    http = Http(world.host.service, {}, Options(rate=0, limits=Limits(**limits)))
    http._tasks._uploads = uploads.Uploads(world.host.service, http._options.limits, clock)
    world.host.http, world.host.app = http, http.app()


def test_slow_uploads_are_cut_and_keep_no_lease(folder):
    """A byte every five seconds, in one request or in many, ends as a silent client does; a slow but steady one does not."""
    from turnout_serve.server.leases import Leases

    world = at_reports(folder, leases=Leases(heartbeat=10.0, missed=3, grace=1.0))
    try:
        slow(world, world.clock, upload_rate=10.0, stall_seconds=20.0)
        for client in (0, 1):
            dripping, task = upload(world, client), task_of(world, client)
            for second in range(20):
                if task_of_or_none(world, client) != task:
                    break
                world.clock.now += 5.0
                for other in {*range(8)} - {client}:
                    path = f"/v1/tasks/{task_of_or_none(world, other) or 0}/heartbeat"
                    world.host.send("POST", path, b"", auth(world, other))
                if client and second % 2 and dripping.status is None:
                    dripping.cut()  # and another connection
                if dripping.status is not None:
                    dripping = upload(world, client, task=task)
                if dripping.status is None:
                    dripping.send(1)
                world.host.pump()
            assert world.host.service.state_of(client, task).body == {"state": "dropped", "reason": "left"}
            assert world.clock.now < 150
        steady = upload(world, 2)
        while steady.rest:
            world.clock.now += 5.0
            steady.send(60)
            world.host.pump()
        assert answers(world.host, steady) == [201]
    finally:
        world.close()


def test_time_after_the_last_byte_counts(folder):
    """A byte at once, then silence, and another connection: this extends no lease either."""
    from turnout_serve.server.leases import Leases

    world = at_reports(folder, leases=Leases(heartbeat=10.0, missed=3, grace=1.0))
    try:
        slow(world, world.clock, upload_rate=10.0, stall_seconds=20.0)
        task = task_of(world, 0)
        for _ in range(10):
            if task_of_or_none(world, 0) != task:
                break
            dripping = upload(world, 0, task=task)
            dripping.send(1)
            world.clock.now += 15.0
            dripping.cut()
            world.host.pump()
        assert world.host.service.state_of(0, task).body == {"state": "dropped", "reason": "left"}
    finally:
        world.close()


def test_missing_piece_ends_an_attempt(folder):
    """What came before it is not lost."""
    world = at_reports(folder)
    try:
        slow(world, world.clock, stall_seconds=0.01)
        silent = upload(world, 0)
        silent.send(100)
        world.host.loop.run_until_complete(asyncio.wait([silent.task], timeout=10))
        assert (silent.status, world.host.http._tasks._uploads.offset(0, 0)) == (408, 100)
        assert b'"reason":"the report comes too slowly: send what is missing later"' in silent.body
    finally:
        world.close()


def task_of_or_none(world, client):
    held = world.host.driver.task_of(client)
    return None if held is None else held.task


def test_duration_of_an_upload_is_limited(folder):
    """After it an upload is cut however fast it is, and goes on where it ended."""
    world = at_reports(folder)
    try:
        slow(world, world.clock, upload_seconds=30.0, stall_seconds=60.0)
        first = upload(world, 0)
        for _ in range(4):
            world.clock.now += 10.0
            if first.status is None:
                first.send(100)
        assert first.status == 408
        assert b'"reason":"the report comes too slowly: send what is missing later"' in first.body
        asked = world.host.send("GET", "/v1/tasks/0", b"", auth(world, 0)).table()
        assert asked["offset"] == 400
        rest = upload(world, 0, offset=400)
        rest.send(10**6)
        assert answers(world.host, rest) == [201]
        assert put(world, 0, 0, waiting(world.homes[0])).status == 200
    finally:
        world.close()


def test_retry_by_a_proxy_is_taken_once(folder):
    """Requests that are really sent at once, some of them cut: every one that ends is told that the report is taken."""
    server = Server(RUN, folder, None, Options(port=0, min_clients=1, rate=0))
    manifest = server.setting.reports["train"].manifest
    head = {"authorization": f"Bearer {'t' * 40}"}
    with server.listening() as url, httpx2.Client(base_url=url, headers=head) as http:
        assert http.post("/v1/enrol", json={"protocol": 2}).status_code == 201
        for step in range(RUN.rounds):
            task = http.post("/v1/checkin", json={"wait": 30}).json()["task"]["task"]
            filled = {
                name: torch.full(spec.shape, step + 1, dtype=DTYPES[spec.dtype]) for name, spec in manifest.items()
            } | {"num_steps": torch.ones(1, dtype=torch.int64)}
            body, at_once = encode(filled), threading.Barrier(4)

            def retry(cut, body=body, task=task, at_once=at_once):
                def pieces():
                    yield body[:100]
                    at_once.wait(timeout=10)
                    if cut:
                        raise ConnectionError
                    yield body[100:]

                length = {"content-length": str(len(body))}
                try:
                    return http.put(f"/v1/tasks/{task}/report", content=pieces(), headers=named(digest(body)) | length)
                except ConnectionError:
                    return None

            with ThreadPoolExecutor() as pool:
                answered = [each for each in pool.map(retry, (False, False, False, True)) if each is not None]
            assert sorted(each.status_code for each in answered) == [200, 200, 201]
    assert server.driver.version == RUN.rounds
    assert replay(server.setting, folder).same is True
