"""Processes that die at any moment: nothing is lost, nothing counts twice, and the model is that of an undisturbed run."""

import os
import random
import signal
import threading
import time

import pytest
import torch
from tests.laws.recipes import DATA

from turnout import Population, compose
from turnout.experiment import Experiment
from turnout.models import Mlp
from turnout.pieces.local import Scaffold
from turnout.pieces.weighting import DivideByClients, Participation
from turnout.population.availability import Everyone
from turnout.record import checkpoint
from turnout.simulation import Simulation
from turnout_serve.client import state_folder
from turnout_serve.client.calls import Answer, Call, Sleep, Work
from turnout_serve.client.exchange import send
from turnout_serve.client.join import Connection
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.leases import Leases
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.server.store import files, store

from .world import LOCAL, Home, Killed

KILLS = int(os.environ.get("TURNOUT_KILLS", "10"))

ALGORITHM = compose(LOCAL, Scaffold(), Participation(3), DivideByClients())
RUN = Experiment(DATA, Mlp(hidden=(8,)), ALGORITHM, Population(Everyone()), rounds=max(6, KILLS // 2), evaluate_every=2)


def nothing(_):
    pass


class Reaper:
    """Kills the server or a client the n-th time that it does something to its disk, before or after that."""

    def __init__(self, seed):
        self.most = 20  # operations between two kills
        self.random, self.left, self.kills = random.Random(seed), None, {"server": 0, "client": 0}

    def arm(self):
        self.side = min(self.kills, key=lambda side: self.kills[side])
        self.left = self.random.randrange(1, self.most)

    def around(self, side, function):
        def called(*arguments, **options):
            before = self.random.random() < 0.5
            if before:
                self.strike(side)
            result = function(*arguments, **options)
            if not before:
                self.strike(side)
            return result

        return called

    def strike(self, side):
        if self.left is None or side != self.side:
            return
        self.left -= 1
        if self.left == 0:
            self.left = None
            self.kills[side] += 1
            raise Killed


@pytest.fixture
def reaper(monkeypatch):
    """Everything that a process does to its disk can be the last thing that it does."""
    found = Reaper(0)
    monkeypatch.setattr(files, "sync", found.around("server", nothing))
    monkeypatch.setattr(files, "move", found.around("server", os.replace))
    monkeypatch.setattr(store.Store, "commit", found.around("server", store.Store.commit))
    monkeypatch.setattr(checkpoint, "save", found.around("server", checkpoint.save))
    monkeypatch.setattr(state_folder, "sync", found.around("client", nothing))
    monkeypatch.setattr(state_folder, "move", found.around("client", os.replace))
    monkeypatch.setattr(state_folder, "_write", found.around("client", state_folder._write))
    return found


@pytest.fixture(scope="module")
def undisturbed():
    simulation = Simulation(RUN)
    for _ in range(RUN.rounds):
        simulation.round()
    return simulation


def check(driver, homes, undisturbed):
    """The law, and SCAFFOLD's invariant: the server's control is the mean of the clients' own."""
    assert torch.equal(driver.params, undisturbed.state.params)
    mean = torch.stack([home.state.memory["control"] for home in homes]).double().mean(dim=0)
    torch.testing.assert_close(driver.run.server.state.slots["controls"]["control"], mean, rtol=0, atol=1e-6)


def test_kill_at_any_write_loses_no_report(world, folder, reaper, undisturbed):
    """Server and clients are killed at every write, and continue from their folders."""
    deployed = world(RUN, folder=folder / "server", homes=folder / "homes", checkpoint_every=0.0)
    while not all(home.over for home in deployed.homes):
        live_all(deployed, reaper)
    assert min(reaper.kills.values()) >= KILLS
    reaper.left = None
    deployed.host.service.writer.checkpoint()
    check(deployed.host.driver, deployed.homes, undisturbed)
    assert replay(deployed.setting, deployed.folder).same is True
    participations = deployed.host.driver.ledger.history.participation
    assert participations.equals(undisturbed.history.participation)


def live(deployed, row):
    """One client's turn, in which either side may be killed."""
    for _ in range(40):
        home = deployed.homes[row]
        result, slept = None, isinstance(home.action, Sleep)
        if home.over is not None:
            return
        try:
            match home.action:
                case Call() as call:
                    result = deployed.host.call(call)
                case Work(function=function):
                    result = function()
        except Killed:
            revive(deployed)
            result = Answer(0)
        try:
            home.action = home.session.send(result)
        except StopIteration as over:
            home.over = over.value
        except Killed:
            deployed.homes[row] = home.reborn()
        if slept:
            return


def live_all(deployed, reaper):
    """Let all clients live, one after the other; the reaper is always armed."""
    for row in range(len(deployed.homes)):
        if reaper.left is None:
            reaper.arm()
        live(deployed, row)


def revive(deployed):
    """Start the server until it lives."""
    while True:
        try:
            deployed.restart()
            return
        except Killed:
            continue


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here, with which a server process is cheap")
def test_sigkill_of_the_server_loses_no_report(folder, undisturbed):
    """A server process is killed at random moments while clients talk to it."""
    chance, homes, port = random.Random(1), [], free_port()
    options = Options(port=port, min_clients=8, leases=Leases(heartbeat=600, grace=600), rate=0, linger=60)
    from turnout_serve.client.computer import Computer

    computer, pid = Computer(RUN, "vectorized"), started(folder, options)
    kills = wanted = KILLS if KILLS > 10 else 3
    with Connection(f"http://127.0.0.1:{port}").client() as http:
        homes = [Home(computer, row) for row in range(8)]
        for home in homes:
            while home.state.client is None:
                talk(home, http)
        end = time.monotonic() + 60 + 5 * wanted
        while not all(home.over for home in homes) and time.monotonic() < end:
            if kills and chance.random() < wanted / (5 * RUN.rounds):
                kills -= 1
                timer = threading.Timer(chance.uniform(0, 0.03), os.kill, (pid, signal.SIGKILL))
                timer.start()
                talk(chance.choice(homes), http)
                timer.join()
                os.waitpid(pid, 0)
                pid = started(folder, options)
            for home in homes:
                talk(home, http)
        os.kill(pid, signal.SIGTERM)
        assert os.waitpid(pid, 0)[1] == 0
    assert all(home.over for home in homes)
    assert kills == 0
    found = replay(server_setting(), folder)
    assert found.same is True
    check(found.driver, homes, undisturbed)


def talk(home, http):
    """One thing that a client does, at once."""
    if home.over is not None:
        return
    result = None
    match home.action:
        case Call() as call:
            result = send(http, call)
        case Work(function=function):
            result = function()
    try:
        home.action = home.session.send(result)
    except StopIteration as over:
        home.over = over.value


def started(folder, options, run=RUN):
    """Start a server in a process of its own, and wait until it answers."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            Server(run, folder, None, options).run(nothing)
            code = 0
        finally:
            os._exit(code)
    with Connection(f"http://127.0.0.1:{options.port}").client() as http:
        while send(http, Call("GET", "/v1/run")).status != 200:
            time.sleep(0.02)
    return pid


def server_setting():
    from turnout_serve.server.run.served_experiment import ServedExperiment

    return ServedExperiment.of(RUN).setting


def free_port():
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
