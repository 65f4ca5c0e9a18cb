"""A deployment is the simulation, bit for bit; and its journal alone leads to the same model."""

import os

import numpy as np
import pytest
import torch
from tests.laws.recipes import DATA, LOCAL, RECIPES, experiment

from turnout import Population, ace, area, fedau, fedbuff, fedstaleweight, models
from turnout.experiment import Experiment
from turnout.population import RecordedSpeed, Speed, Trace, delay
from turnout.population.availability import Everyone
from turnout.population.requirement import WarmUp
from turnout.protocol.pace import Buffered
from turnout.simulation import Simulation
from turnout_serve.client.calls import Answer, Call, Sleep, Work
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.journal.trace import write_trace

from .world import LOCAL as ONE_STEP
from .world import simulated_in_order

SOME = (
    "fedau", "folb_two_set", "fednu", "scaffold_p", "ditto", "mw_fed", "mifa", "scaffold, drawn twice, noisy",
    "maxfl of secure sums with a personal head", "fedex_lora with fedau's weights, clipped", "flora",
)  # fmt: skip
"""One recipe for each thing that a server sends or asks: training alone, measurements after and before the choice, control
variates, a second model, messages to one client, a table of clients, one client twice, masks, and two kinds of adapters.
Recipes that differ in what a client or a step computes, and not in messages, are held against each other by tests/laws."""

PUBLIC = [name for name in RECIPES if RECIPES[name](LOCAL).privacy is None]  # a server draws noise that no seed tells
NAMES = PUBLIC if os.environ.get("TURNOUT_ALL_RECIPES") else SOME


@pytest.mark.parametrize("name", NAMES)
def test_deployment_equals_simulation(world, name):
    """Models, what clients remember and who took part, after two rounds of eight clients over HTTP."""
    population = Population(Everyone(), requirement=WarmUp(steps=2))
    run = experiment(name, rounds=2, population=population, local=ONE_STEP)
    deployed = world(run).run()
    simulation = Simulation(run)
    for _ in range(run.rounds):
        simulation.round()
    assert torch.equal(deployed.host.driver.params, simulation.state.params)
    memory = simulation.memory.state()
    for row, client in enumerate(memory["clients"].tolist() if memory else []):
        kept = deployed.homes[client].state.memory
        for part, value in kept.items():
            assert torch.equal(value, memory[f"table.{part}"][row]), part
    ours, theirs = deployed.host.driver.ledger.history, simulation.history
    assert ours.participation.equals(theirs.participation)
    for column in ("weight_sum", "update_norm", "bytes_up", "bytes_down"):
        np.testing.assert_array_equal(ours.column(column)[1], theirs.column(column)[1])


def buffered(algorithm, **pace):
    return Experiment(
        DATA,
        models.Mlp(hidden=(8,)),
        algorithm(LOCAL),
        Population(speed=Speed(compute=delay.Uniform(1, 4))),
        pace=Buffered(**pace),
        rounds=4,
        evaluate_every=2,
    )


@pytest.mark.parametrize(
    ("algorithm", "pace"),
    [
        (fedstaleweight, {"buffer_size": 3}),
        (fedbuff, {"buffer_size": 2, "concurrency": 4}),
        (area, {"buffer_size": 2}),
        (ace, {"buffer_size": 1, "starts_with_all": True}),
        (fedau, {"buffer_size": 3, "concurrency": 5, "reselect": True, "max_staleness": 1}),
    ],
)
def test_buffered_deployment_equals_simulation(world, monkeypatch, algorithm, pace):
    """With the order of arrival of the simulation, the deployment has its model."""
    run = buffered(algorithm, **pace)
    simulation, order = simulated_in_order(run, monkeypatch)
    deployed = world(run)
    for home in deployed.homes:  # all are there; the last one to come has the server begin
        home.step(deployed.host)
    for client in order:
        home = deployed.homes[client]
        home.train(deployed.host)
        assert home.has_report
        home.step(deployed.host)
        home.train(deployed.host)
    assert torch.equal(deployed.host.driver.params, simulation.state.params)
    staleness = deployed.host.driver.ledger.history.column("staleness_mean")[1]
    np.testing.assert_array_equal(staleness, simulation.history.column("staleness_mean")[1])
    assert staleness.max() > 0


def test_client_pauses_where_its_model_is_gone(world):
    """The server gives the same task again: a client that asked at once would ask without an end."""
    deployed = world(experiment("fedau", rounds=1, population=Population(Everyone())))
    home, done = deployed.homes[0], list[str]()
    for other in deployed.homes:
        other.step(deployed.host)
    while not (isinstance(home.action, Call) and home.action.path.startswith("/v1/models/")):
        home.step(deployed.host)
    for path in deployed.host.store.files.models.iterdir():
        path.unlink()
    for _ in range(6):
        done.append(home.action.path.split("/")[2] if isinstance(home.action, Call) else "pause")
        home.step(deployed.host)
    assert done == ["models", "pause", "checkin"] * 2


def test_interrupted_download_is_resumed(world):
    """Only the missing bytes are requested, and the client trains from the whole model."""
    deployed = world(experiment("fedau", rounds=1, population=Population(Everyone())))
    home = deployed.homes[0]
    for other in deployed.homes:
        other.step(deployed.host)
    while not (isinstance(home.action, Call) and home.action.path.startswith("/v1/models/")):
        home.step(deployed.host)
    whole = deployed.host.call(home.action).body
    assert isinstance(home.session.send(Answer(200, whole[:100])), Sleep)
    rest = home.session.send(None)
    assert rest.headers["range"] == "bytes=100-"
    assert isinstance(home.session.send(Answer(206, whole[100:150])), Sleep)
    home.action = home.session.send(None)
    assert home.action.headers["range"] == "bytes=150-"
    home.train(deployed.host)
    assert home.has_report


def test_replay_gives_the_deployed_model(world):
    """The journal leads to the model of the run, and the folder is unchanged."""
    deployed = world(experiment("fedau", rounds=3, population=Population(Everyone()))).run()
    deployed.host.service.writer.checkpoint()
    before = sorted((path, path.stat().st_mtime) for path in deployed.folder.rglob("*.safetensors"))
    again = replay(deployed.setting, deployed.folder)
    assert again.same is True
    assert torch.equal(again.driver.params, deployed.host.driver.params)
    assert sorted((path, path.stat().st_mtime) for path in deployed.folder.rglob("*.safetensors")) == before


def test_replay_exports_a_trace(world, tmp_path):
    """A simulation takes what a deployment recorded: who was there in which round, and how long tasks took."""
    run = experiment("fedau", rounds=3, population=Population(Everyone()))
    deployed = world(run)
    deployed.round()
    deployed.host.service.leave(7)
    deployed.homes[7].over = "gone"
    deployed.run()
    (trace, speed), settings = write_trace(replay(deployed.setting, deployed.folder), tmp_path)
    assert settings["availability"] == {"name": "trace", "table": str(trace), "repeat": False}
    there = Trace(str(trace), repeat=False).bind(8)
    assert there.available(np.arange(7), 2).all()
    assert not there.available(np.array([7]), 2)[0]
    again = Experiment(
        DATA, run.model, run.algorithm, Population(Trace(str(trace)), RecordedSpeed(str(speed))), rounds=3
    )
    assert again.run().history.last_round == 3


def test_simulation_of_a_trace_has_the_same_participants(world, tmp_path):
    """A client that leaves at work was there, but took no part; one that reported before it left did."""
    run = experiment("fedau", rounds=4, population=Population(Everyone()))
    deployed = world(run)
    deployed.round()
    for home in deployed.homes[:2]:
        while not isinstance(home.action, Work):
            home.step(deployed.host)
    deployed.host.service.leave(1)
    deployed.round()
    deployed.run()
    (trace, _), _ = write_trace(replay(deployed.setting, deployed.folder), tmp_path)
    again = Experiment(DATA, run.model, run.algorithm, Population(Trace(str(trace), repeat=False)), rounds=4).run()
    participation = deployed.host.driver.ledger.history.participation
    assert again.history.participation.equals(participation)
    assert participation.num_rows < 4 * 8
