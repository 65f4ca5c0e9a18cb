"""A server and its clients in one thread, without sockets: requests go straight to the ASGI application."""

import asyncio
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.laws.recipes import LOCAL as SEVERAL_STEPS
from tests.tiny import SIZES, classification

from turnout.simulation import Simulation
from turnout_serve.client.calls import Answer, Call, Sleep, Transfer, Work
from turnout_serve.client.computer import Computer
from turnout_serve.client.newcomer import Manners, Newcomer
from turnout_serve.client.session import Client
from turnout_serve.client.state import ClientState
from turnout_serve.client.state_folder import StateFolder
from turnout_serve.client.worker import Worker
from turnout_serve.server.enrollment import hashed
from turnout_serve.server.http import endpoints
from turnout_serve.server.http.app import Http
from turnout_serve.server.http.limits import Limits
from turnout_serve.server.journal.driver import Driver
from turnout_serve.server.journal.recovery import recover
from turnout_serve.server.leases import Leases
from turnout_serve.server.options import Options
from turnout_serve.server.run.ledger import Ledger
from turnout_serve.server.run.served_experiment import ServedExperiment
from turnout_serve.server.service import Service
from turnout_serve.server.store.store import Store

from . import agreement

ANNOUNCEMENT = {
    "protocol": 2, "run": "r", "algorithm": "a", "engine": None, "settings": None, "describes": {}, "num_classes": None,
    "input_shape": [1], "enrolment": "open", "sees": [], "training": {"reason": "nobody asks"},
}  # fmt: skip

DATA = classification(SIZES[:4], features=16, classes=16)
"""Of few clients, because each of them sends its own requests."""

FIVE = classification(SIZES[:5], features=16, classes=16)
"""Of whom some can drop out of a secure sum."""

LOCAL = replace(SEVERAL_STEPS, steps=1)
"""One local step: what clients compute is for tests/laws, and it would take most of the time of these tests."""

ADMINISTRATOR = "administrator-" + "x" * 30


PATIENT = Limits(body_seconds=1e6, stall_seconds=1e6, upload_seconds=1e6)
"""Limits of a server without a clock of the test's: however slow a machine is, no request of a `World` takes too long."""

endpoints._PATIENCE = (
    1e6  # seconds for which a request waits for the journal, which a `World` writes in the same thread
)

STORES = frozenset({"memory"})
"""Hosts of object stores that clients know."""


class Killed(BaseException):
    """The process ended here and now; nothing catches it but the test."""


class Clock:
    """Time that passes when a test says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Host:
    """A server on a folder. It dies of `Killed` wherever that is raised, and another one goes on in its place."""

    peer = "test"  # address of whoever sends a request

    def __init__(self, setting, folder, clock=None, first=1, **options):
        self.first = first  # clients with which the run begins, where that is more than must be there later
        self.setting, self.folder, self.clock = setting, Path(folder), clock or Clock()
        self.store = Store(self.folder, options.pop("database", None), options.pop("store", None))
        self.loop = asyncio.new_event_loop()
        try:
            self.driver = Driver(setting, self.store, Ledger(self.folder, setting))
            last = recover(self.driver, self.store, self.folder, options.get("min_clients", 1))
            self.clock.now = max(self.clock.now, last.time if last else 0.0)
            self.service = Service(self.driver, last, Options(rate=0, **options), self.clock)
        except BaseException:
            self.close()
            raise
        open_to_all = Options(rate=0, enrollments_per_address=0, public_status=True, limits=PATIENT)
        self.http = Http(self.service, ANNOUNCEMENT, open_to_all, hashed(ADMINISTRATOR))
        self.app = self.http.app()

    def close(self):
        if self.loop.is_closed():
            return
        self.store.close()
        unfinished = asyncio.all_tasks(self.loop)
        for task in unfinished:
            task.cancel()
        if unfinished:
            self.loop.run_until_complete(asyncio.wait(unfinished))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def pump(self):
        """Do what the server's thread does."""
        self._tick()
        while self.service.writer.flush():
            self._tick()

    def _tick(self):
        """Begin the run no sooner than so many clients are there."""
        begins = self.driver.run is not None or len(self.service.timeouts.presence) >= self.first
        self.service.writer.handler.tick() if begins else self.service.timeouts.expire()

    def send(self, method, path, body=b"", headers=None, cut=None):
        """One request; `cut` closes the connection behind so many bytes of its body."""
        return self.loop.run_until_complete(self._send(method, path, body, headers or {}, cut))

    async def _send(self, method, path, body, headers, cut):
        path, _, query = path.partition("?")
        length = {} if any(name.lower() == "content-length" for name in headers) else {"content-length": str(len(body))}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in {**length, **headers}.items()],
            "client": (self.peer, 1), "server": ("test", 80),
        }  # fmt: skip
        pieces = [body] if cut is None else [body[:cut], None]
        got = {"status": 0, "headers": {}, "body": b""}

        async def receive():
            piece = pieces.pop(0) if pieces else None
            if piece is None:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

        async def send(message):
            if message["type"] == "http.response.start":
                got["status"] = message["status"]
                got["headers"] = {k.decode(): v.decode() for k, v in message["headers"]}
            else:
                got["body"] += message.get("body", b"")

        task = asyncio.ensure_future(self.app(scope, receive, send))
        try:
            while not task.done():
                self.pump()
                await asyncio.sleep(0)
        except Killed:
            task.cancel()
            raise
        await task
        agreement.check(path, got["status"], got["headers"], got["body"])
        return Answer(got["status"], got["body"], got["headers"])

    def administer(self, method, path, token=ADMINISTRATOR, **body):
        """One request of an administrator."""
        return self.send(method, f"/v1/admin/{path}", json.dumps(body).encode(), {"authorization": f"Bearer {token}"})

    def transfer(self, call: Call):
        """A request to an object store, where a test has one."""
        raise AssertionError(call.path)

    def call(self, call: Call):
        content, headers = call.content
        return self.send(call.method, call.path, content, headers)


ALLOWS = ("evaluations", "queries")
"""What clients answer, each question once."""

REPEATS = (*ALLOWS, "repeats")
"""What clients answer whose owners allow more than one answer to a question."""


class Home:
    """A client's process; with a folder, it can be killed and started again."""

    def __init__(self, computer, row, folder=None, shape=None, allows=ALLOWS):
        self.computer, self.row, self.folder, self.shape, self.allows = computer, row, folder, shape, allows
        self.state: Any = ClientState() if folder is None else StateFolder(folder)
        worker = Worker(computer, row, allows=allows)
        manners = Manners(wait=0.0, stores=STORES)
        self.client = Client(Newcomer(self.state, data=shape, manners=manners, jitter=random.Random(row)), worker)
        self.session, self.over = self.client.session(), None
        self.action = next(self.session)

    def reborn(self):
        """The same client after its process was killed."""
        self.state.close()
        return Home(self.computer, self.row, self.folder, self.shape, self.allows)

    def step(self, host):
        """Do one thing; False if that was to sleep, or everything is done."""
        if self.over is not None:
            return False
        result, slept = None, isinstance(self.action, Sleep)
        match self.action:
            case Transfer() as call:
                result = host.transfer(call)
            case Call() as call:
                result = host.call(call)
            case Work(function=function):
                result = function()
        try:
            self.action = self.session.send(result)
        except StopIteration as over:
            self.over = over.value
        return not slept and self.over is None

    def turn(self, host):
        """Go on until there is nothing to do."""
        while self.step(host):
            pass

    def train(self, host):
        """Go on until a report is ready, or there is nothing to do."""
        if isinstance(self.action, Sleep):
            self.step(host)
        while not self.has_report and self.step(host):
            pass

    @property
    def has_report(self):
        """Whether a report is to be sent next."""
        return isinstance(self.action, Call) and self.action.method == "PUT"


class World:
    """A federation in a folder; its clients take turns.

    `served` is the server's experiment, where it has another one; `shape` is what clients tell of their examples, and
    `allows` is what they answer.
    """

    def __init__(self, experiment, folder, *, homes=None, served=None, shape=None, allows=ALLOWS, **options):
        self.experiment, self.folder = experiment, Path(folder)
        deadline = options["leases"].task_deadline if "leases" in options else None
        whole = ServedExperiment.of(
            served or experiment, task_deadline=deadline, min_answers=options.get("min_answers", 3)
        )
        self.setting = whole.setting
        self.computer = Computer(experiment, whole.objective.engine)
        n = experiment.data.num_clients
        self.options = {
            "first": 1 if "min_clients" in options else n,
            "leases": Leases(heartbeat=1e6, grace=1e6),
            **options,
        }
        self.clock = Clock()
        self.host = Host(self.setting, self.folder, self.clock, **self.options)
        folders = [None if homes is None else homes / str(row) for row in range(n)]
        self.homes = [Home(self.computer, row, folders[row], shape, allows) for row in range(n)]
        for home in self.homes:  # one after the other, so that the server numbers them as the data do
            while home.state.client is None:
                home.step(self.host)

    def close(self):
        self.host.close()

    def restart(self):
        """Another server process on the same folder."""
        self.host.close()
        self.host = Host(self.setting, self.folder, self.clock, **self.options)

    def round(self):
        """Everyone has a turn, and a second passes."""
        for home in self.homes:
            if home.over is None:
                home.turn(self.host)
        self.clock.now += 1.0
        self.host.pump()

    def run(self, turns=200):
        """Let everyone have turns until the run is over."""
        for _ in range(turns):
            self.round()
            if all(home.over for home in self.homes):
                return self
        raise AssertionError(f"not over after {turns} turns: version {self.host.driver.version}")


def simulated_in_order(experiment, monkeypatch):
    """A finished simulation, and the clients whose reports arrived in it, of all phases, in their order."""
    simulation, order = Simulation(experiment), []
    scheduler = simulation.coordinator.scheduler
    reported = scheduler.reported

    def noted(time, client, task, version):
        order.append(client)
        reported(time, client, task, version)

    monkeypatch.setattr(scheduler, "reported", noted)
    for _ in range(experiment.rounds):
        simulation.round()
    return simulation, order


def turn_without(deployed, gone, phase):
    """Let a second pass; the processes of some clients end when they are asked for a phase."""
    for home in deployed.homes:
        held = deployed.host.driver.task_of(home.state.client)
        if home in gone and home.over is None and held is not None and held.phase == phase:
            home.over = "its process ended"
            deployed.host.call(home.client.leave())
        elif home.over is None:
            home.turn(deployed.host)
    deployed.clock.now += 1.0
    deployed.host.pump()
