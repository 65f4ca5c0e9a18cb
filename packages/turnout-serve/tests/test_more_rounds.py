"""A run that is over goes on where more rounds are planned: in every pace, without its checkpoint too, and in a replay."""

from dataclasses import replace

import pytest
import torch

import turnout as to
from turnout import Experiment, Population, fedau
from turnout.comparison.folders import load_record
from turnout.core.checks import CheckpointError, ConfigurationError
from turnout.models import Mlp
from turnout.pieces.aggregation import PrivateSum, SecureSum
from turnout.population.availability import Everyone
from turnout.protocol.pace import Buffered, Rounds
from turnout.record import storage
from turnout.record.describe import describe
from turnout.simulation import Simulation
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.leases import Leases
from turnout_serve.server.run.noise import RELEASES
from turnout_serve.server.run.served_experiment import ServedExperiment

from .world import DATA, LOCAL

RUN = Experiment(DATA, Mlp(hidden=(4,)), fedau(LOCAL), Population(Everyone()), rounds=1, evaluate_every=2)
COHORTS = to.fedavg(LOCAL, also=(to.selection.Uniform(2),))
RUNS = {
    "everyone": RUN,
    "cohorts": replace(RUN, algorithm=COHORTS),
    "deadline": replace(RUN, pace=Rounds(deadline=30.0, over_selection=1.5)),
    "buffered": replace(RUN, algorithm=to.fedstaleweight(LOCAL), pace=Buffered(3)),
    "buffered, few at work": replace(RUN, algorithm=to.fedbuff(LOCAL), pace=Buffered(2, concurrency=3, reselect=True)),
    "buffered, waiting": replace(RUN, algorithm=to.fedbuff(LOCAL), pace=Buffered(2, concurrency=3, waits="always")),
    "secure": replace(RUN, algorithm=fedau(LOCAL, also=(SecureSum(largest=64.0),))),
    "private": replace(RUN, algorithm=fedau(LOCAL, also=(PrivateSum(noise_multiplier=2.0),))),
    "personal": replace(RUN, algorithm=to.ditto(LOCAL, cohort_size=2)),
}
"""Runs of one round."""


def planned(deployed, rounds):
    """The server restarts with so many rounds, and clients that had gone home come again."""
    deployed.setting = ServedExperiment.of(replace(deployed.experiment, rounds=rounds)).setting
    deployed.restart()
    deployed.homes = [home.reborn() if home.over else home for home in deployed.homes]


def assert_equals_simulation(deployed, rounds):
    """The model is that of a simulation of so many rounds, bit for bit."""
    simulation = Simulation(replace(RUN, rounds=rounds))
    for _ in range(rounds):
        simulation.round()
    assert deployed.host.driver.version == rounds
    assert torch.equal(deployed.host.driver.params, simulation.state.params)


@pytest.mark.parametrize(
    ("name", "with_checkpoint"),
    [*((name, True) for name in RUNS), ("cohorts", False), ("private", False)],
)
def test_finished_run_continues_with_more_rounds(world, tmp_path, name, with_checkpoint):
    """Without a checkpoint the server begins as the replay at the end does, but for its noise: two runs suffice there."""
    deployed = world(RUNS[name], homes=tmp_path, checkpoint_every=0.0).run()
    assert deployed.host.driver.over == "the run is over"
    if not with_checkpoint:
        for path in deployed.folder.glob("checkpoint*"):
            path.unlink()
    planned(deployed, 2)
    assert deployed.host.driver.over is None
    status = deployed.host.service.writer.figures.status
    assert (status["at_work"], status["state"]) == (0, "waiting for clients")
    deployed.run()
    assert deployed.host.driver.version == 2
    deployed.host.service.writer.checkpoint()
    assert to.load(deployed.folder).history.last_round == 2
    again = replay(deployed.setting, deployed.folder)
    assert again.same is True
    assert torch.equal(again.driver.params, deployed.host.driver.params)


def test_clients_that_were_told_the_end_are_absent(world, tmp_path):
    """An evaluation that an administrator asks for afterwards does not wait for them."""
    deployed = world(RUN, homes=tmp_path).run()
    assert len(deployed.host.service.timeouts.presence) == 0


def test_continued_run_equals_one_planned_with_all_rounds(world, tmp_path):
    deployed = world(RUN, homes=tmp_path, min_clients=4).run()
    for rounds in (2, 3):
        planned(deployed, rounds)
        deployed.run()
    assert_equals_simulation(deployed, rounds=3)


def test_rounds_can_be_added_before_the_end(world, tmp_path):
    """The number of rounds is part of the journal: a replay ends and goes on where the server did."""
    deployed = world(replace(RUN, rounds=3), homes=tmp_path)
    while deployed.host.driver.version < 2:
        deployed.round()
    planned(deployed, 4)
    deployed.run()
    assert deployed.host.driver.version == 4
    deployed.host.close()
    assert replay(deployed.setting, deployed.folder).driver.version == 4


@pytest.mark.parametrize("name", ["everyone", "buffered"])
def test_continued_run_does_not_wait_for_absent_clients(world, tmp_path, name):
    """Half of the clients return; the others count as absent after their lease."""
    deployed = world(RUNS[name], homes=tmp_path, leases=Leases(heartbeat=1.0, grace=1.0, longest_wait=1.0)).run()
    deployed.options["min_clients"] = 2
    planned(deployed, 2)
    deployed.homes = deployed.homes[::2]
    deployed.run()
    assert deployed.host.driver.version == 2
    assert name == "buffered" or len(deployed.host.driver.present()) <= 2
    deployed.host.close()
    assert torch.equal(replay(deployed.setting, deployed.folder).driver.params, deployed.host.driver.params)


def test_run_with_a_spent_budget_stays_over(world, tmp_path):
    """Each start reports the reason, and more rounds than the budget allows are refused."""
    private = replace(RUN, algorithm=fedau(LOCAL, also=(PrivateSum(noise_multiplier=2.0, budget=4.0),)), rounds=3)
    deployed = world(private, homes=tmp_path)
    while deployed.host.driver.version < 1:
        deployed.round()
    (deployed.folder / RELEASES).unlink()  # so that the two rounds that are left count as spent
    for _ in range(2):
        planned(deployed, 3)
        assert deployed.host.driver.over.startswith("the privacy budget is spent: round 2 and 2 lost releases would")
        deployed.run()
        assert deployed.host.driver.version == 1
    with pytest.raises(ConfigurationError, match="budget: 4 rounds would spend"):
        planned(deployed, 4)
    deployed.host.close()
    assert replay(deployed.setting, deployed.folder).driver.over == deployed.host.driver.over


@pytest.mark.parametrize("name", [name for name in RUNS if name != "private"])
def test_run_ends_early_with_its_tables(world, tmp_path, name):
    """With the steps that it has taken, it is over at once; open tasks are dropped, and the tables are those of a run."""
    deployed = world(replace(RUNS[name], rounds=9), homes=tmp_path)
    while deployed.host.driver.version < 2:
        deployed.round()
    done = deployed.host.driver.version
    planned(deployed, done)
    assert deployed.host.driver.over == "the run is over"
    deployed.run()
    assert deployed.host.driver.version == done
    deployed.host.service.writer.checkpoint()
    described = describe(replace(deployed.experiment, rounds=done))
    storage.save(deployed.folder, {"config.json": storage.json_writer(described)})
    record = load_record(deployed.folder)
    assert (record.history.last_round, len(record.history.clients)) == (done, 4)
    assert replay(deployed.setting, deployed.folder).same is True


def test_run_with_fewer_rounds_goes_on_until_then(world, tmp_path):
    deployed = world(replace(RUN, rounds=9), homes=tmp_path)
    while deployed.host.driver.version < 1:
        deployed.round()
    planned(deployed, 3)
    deployed.run()
    assert_equals_simulation(deployed, rounds=3)


@pytest.mark.parametrize(
    ("name", "over", "message"),
    [
        ("everyone", True, "has taken 3 steps: write rounds=3 or more$"),
        ("everyone", False, "has taken 2 steps: write rounds=3 or more, or rounds=2 to end it now"),
        ("private", False, "write rounds=3 or more, because the noise is planned for all of them"),
    ],
)
def test_fewer_rounds_than_taken_are_refused(world, tmp_path, name, over, message):
    deployed = world(replace(RUNS[name], rounds=3), homes=tmp_path)
    while deployed.host.driver.version < (3 if over else 2):
        deployed.round()
    with pytest.raises(CheckpointError, match=rf"rounds: got 1, but the run in .* was planned with 3 .*{message}"):
        planned(deployed, 1)
