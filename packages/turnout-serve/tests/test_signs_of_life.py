"""Clients send heartbeats from when they have a task until their report is answered, whatever takes so long."""

import asyncio
import threading

import pytest
from tests.tiny import classification

from turnout import Experiment, Population, fedau
from turnout.models import Logistic
from turnout.pieces.local import Sgd
from turnout.population.availability import Everyone
from turnout_serve.client.computer import Computer
from turnout_serve.client.join import Connection, Joined
from turnout_serve.client.newcomer import Newcomer
from turnout_serve.client.session import Client
from turnout_serve.client.state import ClientState
from turnout_serve.client.swarm import Swarm
from turnout_serve.client.worker import Worker
from turnout_serve.server.http import downloads, task_routes
from turnout_serve.server.leases import Leases
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server

from .test_javascript import finished, spawn

RUN = Experiment(classification(sizes=(20,)), Logistic(), fedau(Sgd(lr=0.1, steps=1)), Population(Everyone()), rounds=1)


def joined(url, _):
    """A process of `turnout join`, as a thread."""
    client = Client(Newcomer(ClientState()), Worker(Computer(RUN)))
    thread = threading.Thread(target=Joined(client, Connection(url)).run, daemon=True)
    thread.start()
    return lambda: thread.join(60)


def swarm(url, _):
    thread = threading.Thread(target=Swarm(Computer(RUN), Connection(url), 1).run, args=(60.0,), daemon=True)
    thread.start()
    return lambda: thread.join(60)


def javascript(url, folder):
    process = spawn(url, folder, 0, RUN)
    return lambda: finished(process)


@pytest.mark.parametrize("client", [joined, swarm, javascript])
@pytest.mark.parametrize("slow", ["download", "upload"])
def test_slow_transfers_lose_no_task(folder, monkeypatch, client, slow):
    """A model that comes slowly, and a report that waits for its check, outlast a lease of three heartbeats."""
    server = Server(
        RUN, folder / "run", {"name": "tiny"}, Options(port=0, rate=0, leases=Leases(heartbeat=0.1, missed=600))
    )
    beats, renew = [], server.service.heartbeat
    monkeypatch.setattr(server.service, "heartbeat", lambda *task: beats.append(task) or renew(*task))
    pieces, check = downloads._pieces, task_routes.check

    async def heard():
        for _ in range(3000):
            if len(beats) >= 4:
                return
            await asyncio.sleep(0.01)

    async def slow_pieces(*range_):
        await heard()
        async for piece in pieces(*range_):
            yield piece

    async def slow_check(*report):
        await heard()
        return await check(*report)

    target = (downloads, "_pieces", slow_pieces) if slow == "download" else (task_routes, "check", slow_check)
    monkeypatch.setattr(*target)
    with server.listening() as url:
        client(url, folder)()
    assert len(beats) >= 4
    assert server.driver.ledger is not None
    assert (server.driver.version, server.driver.ledger.dropped) == (1, {})
