"""Cohorts of user-defined selections are validated before clients receive tasks."""

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.laws.recipes import DATA, LOCAL
from tests.served import World

import turnout as to
from turnout.simulation import Simulation
from turnout_serve.server.run.blame import PieceFailed

N = DATA.num_clients
ONLY_FIVE = to.Population(to.availability.Trace(((5, 0, 9),)))


@dataclass(frozen=True)
class Chosen(to.pieces.Selection):
    """Always the same clients."""

    clients: tuple[int, ...]

    def select(self, candidates):
        del candidates
        return np.array(self.clients)


class Twice(Chosen):
    repeats = True


class Listed(Chosen):
    def select(self, candidates) -> Any:
        return [int(client) for client in super().select(candidates)]


class Words(Chosen):
    def select(self, candidates):
        del candidates
        return np.array(["a"])


def run(selection, population=None, pace=None):
    algorithm = to.fedavg(LOCAL, also=(selection,))
    population = population or to.Population()
    simulation = Simulation(
        to.Experiment(DATA, to.models.Logistic(), algorithm, population, pace or to.pace.Rounds(), rounds=2)
    )
    simulation.round()
    return simulation.history.participation["client"].to_pylist()


CASES = [
    (Chosen((0, N)), None, rf"Chosen.select returned client {N}: there are clients 0 to {N - 1}"),
    (Chosen((-1, 2)), None, r"Chosen.select returned client -1"),
    (Chosen((3, 1)), None, r"clients that do not ascend: return np.sort\(clients\)"),
    (Chosen((1, 1)), None, r"client 1 twice: .* write repeats = True"),
    (Words((1,)), None, r"Words.select returned array.*needed client numbers"),
    (Chosen((0, 1, 2)), ONLY_FIVE, r"client 0, who is not available in round 0: choose among"),
]


@pytest.mark.parametrize(("selection", "population", "message"), CASES)
def test_invalid_clients_are_refused(selection, population, message):
    with pytest.raises(to.ConfigurationError, match=message):
        run(selection, population)


def test_invalid_clients_are_refused_with_a_clock():
    clocked = to.Population(to.availability.Trace(((5, 0, 9),)), to.speed.Speed(), seconds_per_round=100.0)
    with pytest.raises(to.ConfigurationError, match="client 0, who is not available"):
        run(Chosen((0, 1)), clocked, to.pace.Rounds(deadline=50.0))


def test_valid_clients_participate():
    assert run(Chosen((1, 3))) == [1, 3]
    assert run(Listed((1, 3))) == [1, 3]
    assert run(Chosen((5,)), ONLY_FIVE) == [5]
    assert run(Twice((1, 1, 3))) == [1, 3]


def test_server_refuses_invalid_clients(tmp_path):
    experiment = to.Experiment(DATA, to.models.Logistic(), to.fedavg(LOCAL, also=(Chosen((0, N)),)), rounds=2)
    world = World(experiment, tmp_path)
    with contextlib.closing(world), pytest.raises(PieceFailed, match=rf"Chosen.select returned client {N}"):
        world.run()
