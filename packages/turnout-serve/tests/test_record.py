"""What a served run records: the rows of a simulation, in a log while it goes on and in tables once it is over."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.laws.recipes import DATA, experiment

from turnout import Experiment, Population, fedau, fedavg, models
from turnout.population.availability import Everyone
from turnout.record.query import History
from turnout.simulation import Simulation
from turnout.workbench.advise.advice import Participation, present_in

from .world import LOCAL

TIMES = {"seconds", "simulated_seconds"}
RUN = Experiment(DATA, models.Mlp(hidden=(4,)), fedau(LOCAL), Population(Everyone()), rounds=4, evaluate_every=3)


@pytest.mark.parametrize("name", ["fedau", "scaffold_p", "folb", "maxfl of secure sums with a personal head"])
def test_common_columns_equal_those_of_the_simulation(world, name):
    run = replace(experiment(name, rounds=2, population=Population(Everyone())), evaluate_every=1, record_weights=True)
    served, simulation = world(run).run().host.driver.ledger.history, Simulation(run)
    for _ in range(run.rounds):
        simulation.round()
    simulated = simulation.history
    assert served.participation.equals(simulated.participation), "weights included"
    shared = set(served.column_names).intersection(simulated.column_names) - TIMES
    assert {"local_loss", "weight_mean", "bytes_up", "bytes_down", "server_bytes"} <= shared
    for column in shared:
        rounds, values = simulated.column(column)
        if column.startswith("train_"):
            assert not len(served.column(column)[0]), "the server has no training examples"
            continue
        np.testing.assert_array_equal(served.column(column)[0], rounds, column)
        np.testing.assert_allclose(served.column(column)[1], values, rtol=1e-6, err_msg=column)


def test_checkpoints_append_to_the_log_until_the_end(world):
    deployed = world(RUN, checkpoint_every=0.0)
    path, beginnings, whole = deployed.folder / "history.journal", [], b""
    for _ in range(200):
        deployed.round()
        if deployed.host.driver.over is not None:
            break
        if path.exists():
            whole = path.read_bytes()
            beginnings.append((len(whole), hashlib.sha256(whole).hexdigest()))
            assert not (deployed.folder / "rounds.parquet").exists()
            version = deployed.host.driver.version
            assert History.load(deployed.folder).last_round == version
    assert len(set(beginnings)) > 1
    for length, digest in beginnings:
        assert hashlib.sha256(whole[:length]).hexdigest() == digest, "what was appended stays as it is"
    deployed.run()
    deployed.host.service.writer.checkpoint()
    history = History.load(deployed.folder)
    assert (history.last_round, len(history.clients)) == (RUN.rounds, DATA.num_clients)
    assert history.clients["participations"].to_pylist() == [RUN.rounds] * DATA.num_clients
    assert not path.exists()


def test_restarts_do_not_change_the_tables(world, folder):
    whole = world(RUN, folder=folder / "whole").run().host.driver.ledger.history
    deployed = world(RUN, folder=folder / "restarted", checkpoint_every=0.0)
    for _ in range(50):
        deployed.round()
        deployed.restart()
        if deployed.host.driver.over is not None:
            break
    history = deployed.host.driver.ledger.history
    assert history.participation.equals(whole.participation)
    for column in ("local_loss", "test_loss", "bytes_up"):
        np.testing.assert_array_equal(history.column(column)[1], whole.column(column)[1])
    assert torch.isfinite(deployed.host.driver.params).all()


def test_advice_measures_the_participation_in_a_run_that_is_going_on(world):
    deployed = world(replace(RUN, algorithm=fedavg(LOCAL, cohort_size=2)), checkpoint_every=0.0)
    while deployed.host.driver.version < 3:
        deployed.round()
    deployed.host.service.writer.checkpoint()
    clients = deployed.host.driver.ledger.history.participation["client"].to_pylist()
    present = present_in(deployed.folder)
    assert present.sum(axis=1).tolist() == [clients.count(client) for client in sorted(set(clients))]
    assert Participation.of(present).rate == pytest.approx(2 / len(set(clients)))
