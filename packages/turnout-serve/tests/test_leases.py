"""How long a server waits for clients: leases, heartbeats and the deadline of a task."""

import pytest
from tests.laws.recipes import DATA

from turnout import Experiment, Population, fedau
from turnout.core.checks import ConfigurationError
from turnout.models import Mlp
from turnout.population.availability import Everyone
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.journal.timeouts import Presence
from turnout_serve.server.leases import Leases

from .world import LOCAL, Clock

RUN = Experiment(DATA, Mlp(hidden=(4,)), fedau(LOCAL), Population(Everyone()), rounds=3, evaluate_every=3)


def test_shorter_lease_ends_in_time():
    """A client that waits is believed in for 65 seconds; once it has a task, for 30."""
    clock = Clock()
    presence = Presence(clock)
    assert presence.start(0, 65.0)
    presence.renew(0, 30.0)
    assert presence.next_end() == 30.0
    clock.now = 29.9
    assert presence.expired() == []
    clock.now = 30.0
    assert presence.expired() == [0]
    clock.now = 65.0
    assert presence.expired() == []
    assert len(presence) == 0


def test_longer_lease_replaces_a_shorter_one():
    """Each sign of life puts the end off, and leaves one entry behind."""
    clock = Clock()
    presence = Presence(clock)
    presence.start(0, 30.0)
    for now in range(1, 200):
        clock.now = float(now)
        presence.renew(0, 65.0)
        presence.renew(0, 30.0)
        assert presence.expired() == []
    assert len(presence._ends) < 10
    clock.now = 228.0
    assert presence.expired() == []
    clock.now = 229.0
    assert presence.expired() == [0]


def test_client_that_left_can_return():
    """What is heard of a client that has left does not count it as present, or its return would go unnoticed."""
    clock = Clock()
    presence = Presence(clock)
    assert presence.start(0, 10.0)
    assert not presence.start(0, 10.0)
    assert presence.end(0)
    assert not presence.end(0)
    presence.renew(0, 30.0)
    presence.extend(0, 30.0)
    assert len(presence) == 0
    assert presence.start(0, 10.0)
    presence.extend(0, 5.0)
    clock.now = 9.9
    assert presence.expired() == []
    presence.extend(0, 5.0)
    clock.now = 10.0
    assert presence.expired() == []
    clock.now = 14.9
    assert presence.expired() == [0]


def test_invalid_leases_are_refused():
    with pytest.raises(ConfigurationError, match="task_deadline: got 0"):
        Leases(task_deadline=0.0)
    with pytest.raises(ConfigurationError, match="heartbeat: got -1"):
        Leases(heartbeat=-1.0)
    assert Leases(heartbeat=5.0, missed=4).at_work == 20.0


def started(world, **leases):
    """A federation whose clients all have a task and a report in hand."""
    options = {"heartbeat": 10.0, "missed": 3, "grace": 5.0, **leases}
    deployed = world(RUN, leases=Leases(**options))
    for home in deployed.homes:
        home.step(deployed.host)
    for home in deployed.homes:
        home.train(deployed.host)
    return deployed


def beat(deployed, home):
    """Send the heartbeat of a client's task."""
    task = home.state.pending.task.task
    headers = {"authorization": f"Bearer {home.state.token}"}
    return deployed.host.send("POST", f"/v1/tasks/{task}/heartbeat", b"{}", headers).table()


def test_heartbeats_extend_a_lease(world):
    """With one in time a client keeps its task; without, it loses it after three missed ones and not earlier."""
    deployed = started(world)
    steady, silent = deployed.homes[0], deployed.homes[1]
    driver = deployed.host.driver
    for _ in range(3):
        deployed.clock.now += 29.0 / 3
        deployed.host.pump()
        assert beat(deployed, steady)["state"] == "open"
    assert driver.task_of(silent.state.client) is not None
    deployed.clock.now += 1.1
    deployed.host.pump()
    assert driver.task_of(silent.state.client) is None
    assert driver.ledger.dropped == {"left": 7}
    deployed.clock.now += 28.0
    assert beat(deployed, steady)["state"] == "open"
    deployed.clock.now += 29.0
    deployed.host.pump()
    assert driver.task_of(steady.state.client) is not None
    assert beat(deployed, steady)["state"] == "open"
    deployed.clock.now += 30.1
    deployed.host.pump()
    assert driver.task_of(steady.state.client) is None


def test_task_of_a_silent_client_is_dropped_in_time(world):
    """The client dies during a long poll, and is given a task: 30 seconds later it is somebody else's."""
    deployed = world(RUN, leases=Leases(heartbeat=10.0, missed=3, grace=10.0))
    service, driver = deployed.host.service, deployed.host.driver
    for client in range(8):
        assert service.work_of(client, 55.0) is None
    deployed.host.pump()
    assert service.writer.figures.status["at_work"] == 8
    service.work_of(0, 0.0)  # the woken request is answered, and nobody reads the answer
    deployed.clock.now += 29.5
    deployed.host.pump()
    assert driver.task_of(0) is not None
    deployed.clock.now += 1.0
    deployed.host.pump()
    assert driver.task_of(0) is None
    assert service.writer.figures.status["at_work"] == 7


@pytest.mark.parametrize("restarts", [False, True])
def test_hung_client_does_not_stall_a_run(world, restarts):
    """Heartbeats do not put off the deadline of a task; whoever missed it is asked again once it has come back."""
    deployed = started(world, task_deadline=100.0)
    hung = deployed.homes[0]
    for home in deployed.homes[1:]:
        home.turn(deployed.host)
    for _ in range(9):
        deployed.clock.now += 11.0
        deployed.host.pump()
        assert beat(deployed, hung) == {"state": "open"}
        for home in deployed.homes[1:]:
            home.turn(deployed.host)
    assert deployed.host.driver.version == 0
    if restarts:  # the deadline begins anew
        deployed.restart()
        for _ in range(9):
            deployed.clock.now += 11.0
            deployed.host.pump()
            assert beat(deployed, hung) == {"state": "open"}
    deployed.clock.now += 1.5
    deployed.host.pump()
    assert deployed.host.driver.version == 1
    assert beat(deployed, hung) == {"state": "dropped", "reason": "late"}
    assert deployed.host.driver.ledger.dropped["late"] == 1
    assert deployed.host.driver.task_of(hung.state.client) is None
    assert hung.state.client not in deployed.host.driver.present()
    deployed.run()
    assert hung.state.client in deployed.host.driver.ledger.history.participation["client"].to_pylist()
    deployed.host.service.writer.checkpoint()
    assert replay(deployed.setting, deployed.folder).same is True
