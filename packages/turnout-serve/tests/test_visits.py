"""Clients that come and go without a report: the journal stays small, and leads to the same model."""

from dataclasses import replace

import pytest
import torch
from tests.laws.recipes import DATA

import turnout as to
from turnout import Experiment, Population, fedau
from turnout.models import Mlp
from turnout.population.availability import Everyone
from turnout.protocol.pace import Buffered
from turnout.protocol.survey import FIRST_TASK
from turnout.simulation import Simulation
from turnout_serve.server.journal.entries import Outcome
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.journal.timeouts import LostTasks
from turnout_serve.server.leases import Leases

from .test_hostile import auth
from .world import LOCAL, Clock

RUN = Experiment(DATA, Mlp(hidden=(4,)), fedau(LOCAL), Population(Everyone()), rounds=3, evaluate_every=3)
BUFFERED = replace(RUN, algorithm=to.fedbuff(LOCAL), pace=Buffered(3), rounds=3)
LEASES = Leases(heartbeat=10.0, grace=10.0)


def size(deployed):
    """Bytes of the journal on the disk, and rows."""
    files = sum(path.stat().st_size for path in deployed.folder.glob("journal.sqlite*"))
    return files, sum(1 for _ in deployed.host.store.entries())


def visit(deployed, client):
    """Ask for work, and leave."""
    work = deployed.host.send("POST", "/v1/checkin", b"", auth(deployed, client)).table()
    deployed.host.send("POST", "/v1/leave", b"", auth(deployed, client))
    return work


@pytest.mark.parametrize("run", [RUN, BUFFERED], ids=["rounds", "buffer"])
def test_the_journal_stays_small_over_10_000_visits_without_a_report(world, run):
    """Five clients come and go all the time, those with a task drop it; the others train then, and a replay is exact."""
    deployed = world(run, leases=LEASES, max_empty_steps=0)
    for home in deployed.homes:
        home.step(deployed.host)
    deployed.host.pump()
    service, (_, rows) = deployed.host.service, size(deployed)
    for number in range(10_000):
        service.work_of(number % 5)
        service.leave(number % 5)
        deployed.host.pump()
    files, more = size(deployed)
    assert more - rows <= 5 * 2 * 20
    assert files < 6e6  # the write-ahead log of SQLite, which begins anew at 4 MB
    deployed.clock.now += 3600.0
    deployed.run(400)
    service.writer.checkpoint()
    assert replay(deployed.setting, deployed.folder).same is True


def test_visits_without_effect_leave_no_row(world):
    """While a round is running, and of those who are back; who is away when it ends is written with its last report."""
    deployed = world(RUN, leases=LEASES)
    for home in deployed.homes:
        home.step(deployed.host)
    deployed.host.pump()
    for home in (*deployed.homes[:6], *deployed.homes[:6]):
        home.turn(deployed.host)  # asleep, and then at work: they have reported, and are idle
    _, rows = size(deployed)
    for client in range(6):
        visit(deployed, client)
    deployed.host.send("POST", "/v1/checkin", b"", auth(deployed, 0))  # back again: nothing has happened
    assert size(deployed)[1] == rows
    assert len(deployed.host.service.timeouts.presence) == 3
    for _ in range(2):
        deployed.homes[6].turn(deployed.host)
    found = [(entry.kind, entry.client) for entry in deployed.host.store.entries(rows)]
    assert found == [("leave", client) for client in (1, 2, 3, 4, 5)] + [("report", 6)]
    assert deployed.host.driver.present() == [0, 6, 7]


def test_absence_is_known_after_a_restart(world):
    """A server that stops writes who is there; one that is killed believes in them for a while."""
    deployed = world(RUN, leases=LEASES)
    for home in deployed.homes:
        home.turn(deployed.host)
    deployed.host.service.leave(3)
    deployed.host.pump()
    deployed.host.service.writer.stop()
    deployed.restart()
    assert 3 not in deployed.host.driver.present()


def test_deferred_visits_do_not_change_the_model(world):
    simulation = Simulation(RUN)
    for _ in range(RUN.rounds):
        simulation.round()
    deployed = world(RUN, leases=LEASES)
    for home in deployed.homes:
        home.step(deployed.host)
    deployed.host.pump()
    for _ in range(3):
        for home in deployed.homes:
            home.turn(deployed.host)
            if deployed.host.driver.task_of(home.state.client) is None:
                visit(deployed, home.state.client)
                deployed.host.send("POST", "/v1/checkin", b"", auth(deployed, home.state.client))
        deployed.clock.now += 1.0
        deployed.host.pump()
    deployed.run()
    assert torch.equal(deployed.host.driver.params, simulation.state.params)
    deployed.host.service.writer.checkpoint()
    assert replay(deployed.setting, deployed.folder).same is True


def test_client_that_loses_tasks_is_suspended_for_longer():
    clock = Clock()
    lost = LostTasks(clock)

    def loses(task, reason="left"):
        return lost.note([Outcome(task, 4, reason)])

    assert not any(loses(task) for task in range(15))
    assert lost.wait(4) == 0.0
    waits = []
    for task in range(15, 40):
        assert loses(task, ["left", "died"][task % 2]) == [4]
        waits.append(lost.wait(4))
        clock.now += waits[-1]
        assert lost.wait(4) == 0.0
    assert waits == [min(3600.0, 2.0**n) for n in range(13)] + [3600.0] * 12
    assert not loses(40, "late")  # which the pace has ended
    assert not loses(FIRST_TASK, "left")  # of an evaluation
    assert lost.wait(3) == 0.0
    loses(41)
    assert not loses(42, "taken")
    assert lost.wait(4) == 0.0
    assert not loses(43)


def test_suspended_client_is_told_when_to_return(world):
    deployed = world(BUFFERED, leases=LEASES, max_empty_steps=0)
    for home in deployed.homes:
        home.step(deployed.host)
    for _ in range(17):
        visit(deployed, 2)
    assert visit(deployed, 2)["come_back"] == [1.0, 2.5]
    assert 2 not in deployed.host.driver.present()
    deployed.clock.now += 1.0
    assert visit(deployed, 2)["come_back"] == [0.0, 1.0]  # it gets a task, and drops it
    assert visit(deployed, 2)["come_back"][0] == 2.0
    deployed.clock.now += 2.0
    deployed.run()  # its report is welcome
    assert deployed.host.service.timeouts.suspension(2) == 0.0
