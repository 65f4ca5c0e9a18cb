"""Clients in processes of their own, killed at random moments while they talk to a server over a socket."""

import os
import random
import signal
import time
from contextlib import suppress

import pytest

from turnout.deployment.client.exchange import send
from turnout.deployment.client.join import Connection, Joined
from turnout.deployment.client.session import Call, Client, Manners
from turnout.deployment.client.state import ClientFolder
from turnout.deployment.client.worker import Computer, Worker
from turnout.deployment.server.leases import Leases
from turnout.deployment.server.process import Options
from turnout.deployment.server.replay import replay

from .test_crashes import KILLS, RUN, check, free_port, server_setting, started, undisturbed

__all__ = ["undisturbed"]
N = 8


class Kept:
    """What a client's folder holds when its process is gone."""

    def __init__(self, folder):
        self.state = ClientFolder(folder)
        self.state.close()


def joined(computer, row, folder, url):
    """Start a client in a process of its own."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            client = Client(ClientFolder(folder), Worker(computer, row), manners=Manners(wait=5.0, backoff=0.02))
            Joined(client, Connection(url)).run()
            code = 0
        finally:
            os._exit(code)
    return pid


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here, with which a client process is cheap")
def test_clients_are_killed(folder, undisturbed):
    """Whoever is started again goes on from its folder: the same model and memory, nothing lost and nothing twice."""
    chance, port = random.Random(2), free_port()
    options = Options(port=port, min_clients=N, leases=Leases(heartbeat=600, grace=600), rate=0, linger=60)
    computer, url = Computer(RUN, "vectorised"), f"http://127.0.0.1:{port}"
    server = started(folder / "server", options)
    folders, alive = [folder / str(row) for row in range(N)], dict[int, int]()
    kills, wanted, end = 0, KILLS if KILLS > 10 else 4, time.monotonic() + 60 + 2 * KILLS
    try:
        with Connection(url).client() as http:
            for row in range(N):  # one after the other, so that the server numbers them as the data do
                alive[row] = joined(computer, row, folders[row], url)
                while send(http, Call("GET", "/v1/status")).table()["enrolled"] <= row:
                    time.sleep(0.005)
            while alive and time.monotonic() < end:
                if kills < wanted:
                    time.sleep(chance.uniform(0.0, 0.05))
                    row = chance.choice(list(alive))
                    os.kill(alive[row], signal.SIGKILL)
                    kills += os.waitpid(alive[row], 0)[1] == signal.SIGKILL
                    alive[row] = joined(computer, row, folders[row], url)
                    continue
                row, pid = next(iter(alive.items()))
                assert os.waitpid(pid, 0)[1] == 0
                del alive[row]
        os.kill(server, signal.SIGTERM)
        assert os.waitpid(server, 0)[1] == 0
        server = 0
    finally:
        for pid in (*alive.values(), *([server] if server else [])):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    assert kills == wanted
    found = replay(server_setting(), folder / "server")
    assert found.same is True
    check(found.driver, [Kept(each) for each in folders], undisturbed)
    assert len(found.visits.tasks) == N * RUN.rounds
