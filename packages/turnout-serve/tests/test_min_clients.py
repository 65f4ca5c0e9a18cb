"""No step begins without the minimum of clients: at the first start, after any stop, and after a run that was over."""

import logging
import random
from dataclasses import replace

import pytest
import torch

import turnout as to
from turnout import Experiment, Population, fedau
from turnout.models import Mlp
from turnout.population.availability import Everyone
from turnout.protocol.pace import Buffered
from turnout_serve.server.journal.events import Event
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.leases import Leases
from turnout_serve.server.run.served_experiment import ServedExperiment

from .world import DATA, LOCAL

RUN = Experiment(DATA, Mlp(hidden=(4,)), fedau(LOCAL), Population(Everyone()), rounds=3, evaluate_every=3)
SHORT = Leases(heartbeat=1.0, missed=1, grace=1.0, longest_wait=1.0)
WARNING = "a step has fewer clients than --min-clients"


def participants(deployed):
    """The number of clients of each step."""
    return deployed.host.driver.ledger.history.rounds["num_participants"].to_pylist()


def again(deployed, rounds):
    """The server starts again with so many rounds, long after the leases of its clients have ended."""
    deployed.clock.now += 1e6
    deployed.setting = ServedExperiment.of(replace(deployed.experiment, rounds=rounds)).setting
    deployed.restart()
    deployed.homes = [home.reborn() if home.over else home for home in deployed.homes]


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_run_that_goes_on_waits_for_the_minimum_of_clients(world, tmp_path, with_checkpoint):
    """The first client to return is not asked alone, whatever the journal says of the others."""
    deployed = world(RUN, homes=tmp_path, min_clients=3, checkpoint_every=0.0).run()
    if not with_checkpoint:
        deployed.host.service.writer.checkpoint()
        for path in deployed.folder.glob("checkpoint*"):
            path.unlink()
    again(deployed, 6)
    first, second, *others = deployed.homes
    deployed.homes = [first, second]
    for _ in range(20):
        deployed.round()
    assert deployed.host.driver.version == 3
    assert deployed.host.service.writer.figures.status["state"] == "waiting for clients"
    deployed.homes += others
    deployed.run()
    assert min(participants(deployed)) >= 3
    deployed.host.close()
    assert torch.equal(replay(deployed.setting, deployed.folder).driver.params, deployed.host.driver.params)


PACES = {
    "rounds": RUN,
    "cohorts": replace(RUN, algorithm=to.fedavg(LOCAL, also=(to.selection.Uniform(3),))),
    "buffered": replace(RUN, algorithm=to.fedbuff(LOCAL), pace=Buffered(3)),
}


@pytest.mark.parametrize("name", PACES)
def test_stop_that_outlasts_the_leases_leaves_no_client_alone(world, tmp_path, name, caplog):
    """Of clients that are gone, tasks are dropped; the next step waits until there are enough again."""
    deployed = world(replace(PACES[name], rounds=9), homes=tmp_path, min_clients=3, leases=SHORT)
    while deployed.host.driver.version < 2:
        for home in deployed.homes:
            home.step(deployed.host)
        deployed.host.pump()
        deployed.clock.now += 0.01
    version = deployed.host.driver.version
    again(deployed, 9)
    alone, rest = deployed.homes[0], deployed.homes[1:]
    deployed.homes = [alone]
    for _ in range(30):
        deployed.round()
    held = deployed.host.driver.version
    assert list(deployed.host.driver.tasks.training()) == []
    # The round that was under way may have ended without the others. A buffer takes all reports of whoever is there, until
    # the leases of the others end, which is told.
    assert held <= version + 1 < 9 or (name == "buffered" and WARNING in caplog.messages)
    deployed.homes += rest
    deployed.run()
    assert deployed.host.driver.version == 9
    assert name == "buffered" or min(participants(deployed)[held:]) >= 3


@pytest.mark.parametrize("seed", range(6))
def test_no_step_has_fewer_clients_than_the_minimum_unless_the_operator_is_told(world, tmp_path, seed, caplog):
    """Law: clients come and go, the server stops and starts at random; steps of fewer clients are in the log."""
    chance = random.Random(seed)
    deployed = world(replace(RUN, rounds=12), homes=tmp_path, min_clients=3, leases=SHORT, checkpoint_every=0.0)
    everyone = deployed.homes
    with caplog.at_level(logging.WARNING, "turnout.server"):
        for _ in range(300):
            if deployed.host.driver.over:
                break
            deployed.homes = [home for home in everyone if chance.random() < 0.7]
            deployed.round()
            if chance.random() < 0.2:
                if chance.random() < 0.5:
                    deployed.host.service.writer.checkpoint()
                deployed.clock.now += chance.choice([0.5, 100.0])
                deployed.restart()
    assert deployed.host.driver.over
    few = {step for step, number in enumerate(participants(deployed), start=1) if number < 3}
    told = {record.step for record in caplog.records if record.getMessage() == WARNING}
    assert few == told


def test_smaller_minimum_lets_waiting_clients_begin(world, tmp_path):
    deployed = world(RUN, homes=tmp_path, min_clients=4, leases=SHORT)
    deployed.round()
    gone, deployed.homes = deployed.homes[3], deployed.homes[:3]
    deployed.host.call(gone.client.leave())
    for _ in range(10):
        deployed.round()
    version = deployed.host.driver.version
    assert version < 3
    deployed.options["min_clients"] = 3
    deployed.restart()
    deployed.run()
    assert deployed.host.driver.version == 3


def test_minimum_can_be_lowered_while_the_server_runs(world):
    """An adapter whose clients fail without coming back asks for the minimum only before the first task."""
    deployed = world(RUN, min_clients=4, leases=SHORT)
    deployed.round()
    gone, deployed.homes = deployed.homes[3], deployed.homes[:3]
    deployed.host.call(gone.client.leave())
    for _ in range(10):
        deployed.round()
    assert deployed.host.driver.version < 3
    deployed.host.service.writer.put(Event("restart", data={"min_clients": 1}))
    deployed.run()
    assert deployed.host.driver.version == 3
    deployed.host.service.writer.stop()
    deployed.host.close()
    assert torch.equal(replay(deployed.setting, deployed.folder).driver.params, deployed.host.driver.params)
