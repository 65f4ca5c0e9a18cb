"""Clients in processes of their own, killed at random moments while they talk to a server over a socket."""

import os
import random
import signal
import time
from contextlib import suppress

import numpy as np
import pytest
from torch.nn.functional import cross_entropy

from turnout import Experiment, Population, fedau
from turnout.models import Logistic
from turnout.pieces.aggregation import SecureSum
from turnout.population.availability import Everyone
from turnout_serve.client.calls import Call
from turnout_serve.client.computer import Computer
from turnout_serve.client.exchange import send
from turnout_serve.client.join import Connection, Joined
from turnout_serve.client.newcomer import Manners, Newcomer
from turnout_serve.client.session import Client
from turnout_serve.client.state_folder import StateFolder
from turnout_serve.client.worker import Worker
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.leases import Leases
from turnout_serve.server.options import Options
from turnout_serve.server.run.served_experiment import ServedExperiment
from turnout_serve.wire.administrator import server_token

from .test_crashes import KILLS, RUN, check, free_port, server_setting, started, undisturbed
from .test_evaluate import held_out
from .world import LOCAL

__all__ = ["undisturbed"]
N = 8


class Kept:
    """What a client's folder holds when its process is gone."""

    def __init__(self, folder):
        self.state = StateFolder(folder)
        self.state.close()


def joined(computer, row, folder, url):
    """Start a client in a process of its own."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            client = Client(
                Newcomer(StateFolder(folder), manners=Manners(wait=5.0, backoff=0.02)), Worker(computer, row)
            )
            Joined(client, Connection(url)).run()
            code = 0
        finally:
            os._exit(code)
    return pid


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here, with which a client process is cheap")
def test_killed_clients_lose_no_report_and_no_memory(folder, undisturbed):
    """A restarted client continues from its folder: model and memory equal those of an undisturbed run."""
    chance, port = random.Random(2), free_port()
    leases = Leases(heartbeat=600, grace=600)
    options = Options(port=port, min_clients=N, leases=leases, rate=0, linger=60, public_status=True)
    computer, url = Computer(RUN, "vectorized"), f"http://127.0.0.1:{port}"
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


PHASES = ("query", "evaluate")


class Processes:
    """A server and its clients, each in a process of its own, and an administrator who waits for a server that starts."""

    def __init__(self, run, folder):
        leases, port = Leases(heartbeat=600, grace=600, task_deadline=600), free_port()
        # Nobody trains, because one client is missing.
        self.options = Options(port=port, min_clients=N + 1, leases=leases, rate=0, linger=60, public_status=True)
        self.run, self.folder, self.url = run, folder, f"http://127.0.0.1:{port}"
        self.computer, self.pids, self.end = (
            Computer(run, "vectorized"),
            dict[int, int](),
            time.monotonic() + 60 + 9 * KILLS,
        )
        self.start(N)
        self.token = {"authorization": f"Bearer {server_token(folder / 'server')}"}

    def start(self, row):
        """Start a client, or the server."""
        if row == N:
            self.pids[row] = started(self.folder / "server", self.options, self.run)
        else:
            self.pids[row] = joined(self.computer, row, self.folder / str(row), self.url)

    def kill(self, row):
        os.kill(self.pids[row], signal.SIGKILL)
        os.waitpid(self.pids.pop(row), 0)

    def asked(self, http, method, path, body=None):
        """What the server answers to its administrator."""
        while time.monotonic() < self.end:
            answer = send(http, Call(method, f"/v1/admin/{path}", body, headers=self.token))
            if 0 < answer.status < 300:
                return answer.table()
            time.sleep(0.01)
        raise AssertionError(f"no answer to {path}")

    def wait_for_clients(self, http, number):
        """Wait until so many are there, and wait for work."""
        while time.monotonic() < self.end and send(http, Call("GET", "/v1/status")).table().get("waiting") != number:
            time.sleep(0.005)


def asks_amid_kills(processes, wanted, within):
    """Ask one thing after the other, kill a process each time, and return the numbers of the surveys."""
    chance, kills, numbers = random.Random(3), 0, []
    with Connection(processes.url).client() as http:
        for row in range(N):  # one after the other, so that the server numbers them as the data do
            processes.start(row)
            processes.wait_for_clients(http, row + 1)
        while kills < 2 * wanted:
            phase = PHASES[(kills + kills // 2) % 2]  # either side dies in either phase
            body = {"phase": phase, **({"question": {"kind": "label_histogram"}} if phase == "query" else {})}
            numbers.append(processes.asked(http, "POST", "surveys", body)["survey"])
            time.sleep(chance.uniform(0.0, within))
            row = chance.randrange(N) if kills % 2 else N
            processes.kill(row)
            processes.start(row)
            kills += 1
            while processes.asked(http, "GET", f"surveys/{numbers[-1]}")["state"] == "open":
                time.sleep(0.005)
            processes.wait_for_clients(http, N)
    os.kill(processes.pids[N], signal.SIGTERM)
    assert os.waitpid(processes.pids.pop(N), 0)[1] == 0
    return numbers


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here, with which a process is cheap")
@pytest.mark.parametrize(
    "masked", [pytest.param(False, marks=pytest.mark.skipif(KILLS <= 10, reason="TURNOUT_KILLS=100 does")), True]
)
def test_killed_processes_lose_no_answer(folder, masked):
    """Server and clients are killed during evaluations and queries; only a killed client is left out of a masked sum."""
    pieces = (SecureSum(largest=64.0),) if masked else ()
    run = Experiment(held_out(), Logistic(), fedau(LOCAL, also=pieces), Population(Everyone()), rounds=1)
    processes = Processes(run, folder)
    try:
        # Answers under masks take four messages of each client.
        numbers = asks_amid_kills(processes, KILLS if KILLS > 10 else 1, 0.15 if masked else 0.03)
    finally:
        for row in list(processes.pids):
            processes.kill(row)
    found = replay(ServedExperiment.of(run).setting, folder / "server")
    assert [closed.survey.request.number for closed in found.surveys] == numbers
    assert found.driver.barred == {}
    expected, opened = sums_of_each(run), set()
    for closed in found.surveys:
        answered, phase = list(closed.survey.answers), closed.survey.request.phase
        assert len(answered) >= (0 if masked else N)
        total = (
            closed.opened.total if closed.opened else {name: value.sum(axis=0) for name, value in closed.sums.items()}
        )
        assert (total is None) == (not answered)
        if total is None:
            continue
        opened.add(phase)
        for name, of_each in expected[phase].items():
            np.testing.assert_allclose(total[name], of_each[answered].sum(axis=0), atol=0.01, err_msg=name)
    assert opened == set(PHASES)
    assert sum(len(closed.survey.answers) for closed in found.surveys) > 4 * len(numbers)


def sums_of_each(run):
    """What each client has to say to the first model of a run and on its labels, by phase and name, ``[N, ...]``."""
    tests = [run.data.client_test.client(row) for row in range(N)]
    outputs = [run.build_model()(x) for x, _ in tests]
    judged = {
        "num_examples": [len(y) for _, y in tests],
        "loss": [cross_entropy(out, y, reduction="sum").item() for out, (_, y) in zip(outputs, tests, strict=True)],
        "score": [(out.argmax(dim=1) == y).sum().item() for out, (_, y) in zip(outputs, tests, strict=True)],
    }
    labels = [np.bincount(run.data.train.client(row)[1].numpy(), minlength=4)[None] for row in range(N)]
    by_phase = {"query": {"counts": labels}, "evaluate": judged}
    return {phase: {name: np.array(rows) for name, rows in sums.items()} for phase, sums in by_phase.items()}
