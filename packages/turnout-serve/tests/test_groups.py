"""Sums of groups between machines: the bits of a simulation, drop-outs, and a server that starts again amid a sum."""

import numpy as np
import pytest
import torch
from tests.laws.recipes import DATA

import turnout as to
from turnout.pieces.aggregation import SecureSum
from turnout_serve.server.journal.checkpoints import save
from turnout_serve.server.journal.replay import replay

from .world import LOCAL, simulated_in_order

SECURE = SecureSum(largest=64.0, min_clients=2, threshold=0.51)
UNEQUAL = to.Population(speed=to.speed.Speed(compute=to.delay.Constant(1.0), spread=1.0, per="task"))
PACES = {
    "two of two": to.pace.BufferedGroups(buffer_size=2, group_size=2),
    "one of three": to.pace.BufferedGroups(buffer_size=1, group_size=3, concurrency=2),
    "all at once": to.pace.BufferedGroups(buffer_size=1, group_size=8),
    "fresh": to.pace.BufferedGroups(buffer_size=1, group_size=2, max_staleness=2),
}
RECIPES = {
    "fedbuff": to.fedbuff(LOCAL, discount="polynomial", also=(SECURE,)),
    "fedau": to.fedau(LOCAL, cutoff=3, also=(to.weighting.ByStaleness("hinge", grace=0), SECURE)),
    "plain": to.fedbuff(LOCAL, discount="polynomial"),
}


def run(algorithm, pace, rounds=5):
    return to.Experiment(DATA, to.models.Logistic(), algorithm, UNEQUAL, pace=pace, rounds=rounds, evaluate_every=2)


def answer(deployed, order):
    """Have clients answer in this order, whatever they are asked for."""
    for client in order:
        home = deployed.homes[client]
        home.train(deployed.host)
        assert home.has_report, client
        home.step(deployed.host)
        home.train(deployed.host)


def begin(deployed):
    """Have all clients come; the server begins with the last one."""
    for home in deployed.homes:
        home.step(deployed.host)


@pytest.mark.parametrize(
    ("recipe", "pace"), [*(("fedau", pace) for pace in PACES), ("fedbuff", "one of three"), ("plain", "two of two")]
)
def test_deployment_equals_simulation_bit_for_bit(world, monkeypatch, recipe, pace):
    experiment = run(RECIPES[recipe], PACES[pace], rounds={"all at once": 2, "fresh": 5}.get(pace, 3))
    simulation, order = simulated_in_order(experiment, monkeypatch)
    deployed = world(experiment)
    begin(deployed)
    answer(deployed, order)
    driver = deployed.host.driver
    assert driver.version == experiment.rounds
    assert torch.equal(driver.params, simulation.state.params)
    ours, theirs = driver.ledger.history, simulation.history
    assert ours.participation.equals(theirs.participation)
    for column in ("staleness_mean", "weight_sum", "update_norm"):
        np.testing.assert_array_equal(ours.column(column)[1], theirs.column(column)[1])
    deployed.host.close()
    assert torch.equal(replay(deployed.setting, deployed.folder).driver.params, driver.params)


@pytest.mark.parametrize("saved", [True, False])
def test_restart_during_sums_of_groups_continues(world, monkeypatch, saved):
    """The server restarts between any two reports of any phase, from checkpoints and from the journal alone."""
    experiment = run(RECIPES["fedau"], PACES["two of two"], rounds=2)
    simulation, order = simulated_in_order(experiment, monkeypatch)
    deployed = world(experiment, checkpoint_every=1e9)
    begin(deployed)
    phases = set()
    for number, client in enumerate(order):
        if number % 3 == 1:
            phases.add(deployed.host.driver.task_of(client).phase)
            if saved:
                save(deployed.host.driver)
            deployed.restart()
        answer(deployed, [client])
    assert phases == {"train", "share", "mask", "open"}
    assert torch.equal(deployed.host.driver.params, simulation.state.params)


def until_over(deployed, gone, phase, turns=60):
    """Let time pass; the process of one client ends when it is first asked for a phase."""
    for _ in range(turns):
        for home in deployed.homes:
            going = home.over is None
            while going:
                held = deployed.host.driver.task_of(home.state.client)
                if home is gone and held is not None and held.phase == phase:
                    home.over = "its process ended"
                    deployed.host.call(home.client.leave())
                going = home.step(deployed.host)
        deployed.clock.now += 1.0
        deployed.host.pump()


@pytest.mark.parametrize("phase", ["train", "share", "mask", "open"])
def test_group_continues_without_a_dropped_client(world, phase):
    """Three of a group of four are left, and a sum of three opens; the others are groups of their own."""
    experiment = run(RECIPES["fedbuff"], to.pace.BufferedGroups(buffer_size=2, group_size=4), rounds=1)
    deployed = world(experiment)
    until_over(deployed, deployed.homes[2], phase)
    driver = deployed.host.driver
    took_part = driver.ledger.history.participation["client"].to_pylist()
    assert driver.version == 1
    assert took_part == [c for c in range(8) if c != 2 or phase == "open"]
    deployed.host.close()
    assert torch.equal(replay(deployed.setting, deployed.folder).driver.params, driver.params)


def test_group_below_the_threshold_is_dissolved(world):
    """Of a group of two one is gone before it shared: no sum is opened of the other, who is in a later group."""
    experiment = run(RECIPES["fedbuff"], PACES["two of two"], rounds=3)
    deployed = world(experiment)
    until_over(deployed, deployed.homes[2], "share")
    history = deployed.host.driver.ledger.history.participation.to_pydict()
    steps = [[c for r, c in zip(history["round"], history["client"], strict=True) if r == k] for k in (1, 2, 3)]
    assert all(len(clients) == 4 for clients in steps)
    assert 2 not in steps[0] + steps[1] + steps[2]
    assert {*steps[0], *steps[1], *steps[2]} == {0, 1, 3, 4, 5, 6, 7}


def test_silent_client_drops_out_of_its_group(world):
    pace = to.pace.BufferedGroups(buffer_size=1, group_size=8, deadline=5.0)
    deployed = world(run(RECIPES["fedbuff"], pace, rounds=2))
    slow = deployed.homes[5]
    for _ in range(60):
        for home in deployed.homes:
            held = deployed.host.driver.task_of(home.state.client)
            silent = home is slow and held is not None and held.version == 0 and held.phase == "mask"
            if home.over is None and not silent:
                home.turn(deployed.host)
        deployed.clock.now += 1.0
        deployed.host.pump()
    history = deployed.host.driver.ledger.history.participation.to_pydict()
    assert deployed.host.driver.version == 2
    first = [c for r, c in zip(history["round"], history["client"], strict=True) if r == 1]
    assert first == [0, 1, 2, 3, 4, 6, 7]
    assert len(history["client"]) == 7 + 8
