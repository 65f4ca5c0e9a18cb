"""Clients who come, go, fall silent and send twice, and servers that restart, in any order: the journal tells it all."""

import base64
import os

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.laws.recipes import DATA

from turnout import Population, fedstaleweight
from turnout.experiment import Experiment
from turnout.models import Mlp
from turnout.population.availability import Everyone
from turnout.protocol.pace import Buffered
from turnout_serve.client.calls import Call
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.leases import Leases
from turnout_serve.server.run.served_experiment import ServedExperiment

from .conftest import scratch
from .test_hostile import auth, put, task_of, waiting
from .world import LOCAL, World

RUN = Experiment(
    DATA, Mlp(hidden=(4,)), fedstaleweight(LOCAL), Population(Everyone()), pace=Buffered(3, max_staleness=2), rounds=30
)
ANYONE = st.integers(0, 7)


class Federation(RuleBasedStateMachine):
    """A server with a buffer and eight clients."""

    def __init__(self):
        super().__init__()
        self.folder = scratch()
        self.world = World(
            RUN, self.folder.__enter__(), min_clients=2, leases=Leases(heartbeat=5.0, missed=2, grace=5.0)
        )
        self.taken = {}

    def teardown(self):
        driver = self.world.host.driver
        again = replay(ServedExperiment.of(RUN).setting, self.world.folder)
        assert torch.equal(again.driver.params, driver.params)
        assert again.driver.version == driver.version
        for task, client in self.taken.items():
            assert self.world.host.service.state_of(client, task).body["state"] == "taken"
        self.world.close()
        self.folder.__exit__(None, None, None)

    @rule(client=ANYONE)
    def train(self, client):
        """Work until a report is in hand."""
        self.world.homes[client].train(self.world.host)

    @rule(client=ANYONE)
    def send(self, client):
        """Send the report that is in hand; if the server takes it, it stays taken."""
        home = self.world.homes[client]
        if home.has_report and home.over is None:
            task, done = home.state.pending.task.task, home.client.done
            home.step(self.world.host)
            if home.client.done > done:
                self.taken[task] = client

    @rule(client=ANYONE)
    def send_twice(self, client):
        """Send it twice, and then another one: one is taken."""
        home = self.world.homes[client]
        if not home.has_report or task_of_or_none(self.world, client) != home.state.pending.task.task:
            return
        task, body = home.state.pending.task.task, waiting(home)
        first = put(self.world, client, task, body).status
        assert first in (201, 410)
        if first == 201:
            self.taken[task] = client
            assert put(self.world, client, task, body).status == 200
            assert put(self.world, client, task, body[:-4] + b"\0\0\0\0").status == 409

    @rule(client=ANYONE, cut=st.floats(0, 1))
    def send_in_pieces(self, client, cut):
        """A connection that breaks: the rest of the report is enough."""
        home = self.world.homes[client]
        if not home.has_report or task_of_or_none(self.world, client) != home.state.pending.task.task:
            return
        assert isinstance(home.action, Call)
        task, body = home.state.pending.task.task, waiting(home)
        headers = {**auth(self.world, client), **digest_of(home), "upload-length": str(len(body))}
        length = int(cut * (len(body) - 1))
        broken = self.world.host.send("PUT", f"/v1/tasks/{task}/report", body, headers, cut=length)
        assert broken.status == 400
        told = self.world.host.send("GET", f"/v1/tasks/{task}", b"", auth(self.world, client)).table()
        assert told == {"state": "open", "offset": length}
        rest = {**headers, "upload-offset": str(length)}
        status = self.world.host.send("PUT", f"/v1/tasks/{task}/report", body[length:], rest).status
        assert status in (201, 410)
        if status == 201:
            self.taken[task] = client

    @rule(client=ANYONE)
    def leave(self, client):
        """Say goodbye."""
        self.world.host.send("POST", "/v1/leave", b"{}", auth(self.world, client))

    @rule(seconds=st.floats(0.1, 30.0))
    def pass_time(self, seconds):
        """Some may not be heard for too long."""
        self.world.clock.now += seconds
        self.world.host.pump()

    @rule(saves=st.booleans())
    def restart(self, saves):
        """Another server process, with a checkpoint or without a new one."""
        if saves:
            self.world.host.service.writer.checkpoint()
        self.world.restart()

    @invariant()
    def everyone_has_one_task_at_most(self):
        """Tasks of the pace and of the clients are the same."""
        driver = self.world.host.driver
        if driver.run is not None and driver.over is None:
            task_of = driver.run.coordinator.scheduler.pace.open.task_of
            held = {client: driver.task_of(client) for client in range(8)}
            assert task_of == {client: task.task for client, task in held.items() if task is not None}


def task_of_or_none(world, client):
    """The number of a client's open task."""
    return task_of(world, client) if world.host.driver.task_of(client) is not None else None


def digest_of(home):
    """The header that names a report."""
    return {"repr-digest": f"sha-256=:{base64.b64encode(bytes.fromhex(home.state.pending.digest)).decode()}:"}


Federation.TestCase.settings = settings(
    max_examples=int(os.environ.get("TURNOUT_STATES", "6")),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
test_any_order = Federation.TestCase
