"""Requirements of pieces on drivers are declared by the piece and checked in one place."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from tests.served import World

import turnout as to
from turnout.base import Correction, Guard, Outcome, Weighting
from turnout.core.checks import ConfigurationError
from turnout.protocol.fits import check_machines, check_pace
from turnout.simulation import Simulation
from turnout_serve.server.run.served_experiment import ServedExperiment

from ..laws.recipes import DATA, LOCAL

BUFFER = to.pace.Buffered(3)
MIXED = to.Population(to.availability.Everyone(), speed=to.speed.Speed(compute=to.delay.Uniform(1, 4)))


def run_of(*pieces, pace: Any = BUFFER, **options):
    algorithm = to.compose(LOCAL, *pieces)
    return to.Experiment(DATA, to.models.Logistic(), algorithm, MIXED, pace, rounds=9, evaluate_every=9, **options)


@dataclass(frozen=True)
class OfOneVersion(Weighting):
    """A weighting of a user that means nothing with late reports."""

    needs_rounds = "it compares the losses of one version"

    def factors(self, report, version, state, federation):
        return torch.ones(len(report), dtype=torch.float64)


@dataclass(frozen=True)
class AtHome(Guard):
    """A guard of a user that names itself and the pace in its reasons."""

    needs_rounds = "{pace} has no rounds, of which {piece} counts the days"
    needs_simulation = "it reads a clock that real clients do not have"

    def apply(self, report, task, memory, clients):
        return report


def test_user_piece_is_refused_with_its_own_reason():
    with pytest.raises(
        ConfigurationError,
        match=r"^OfOneVersion: it compares the losses of one version: write a pace with rounds, such as Rounds\(\)$",
    ):
        run_of(OfOneVersion(), to.weighting.DivideBySum())
    with pytest.raises(
        ConfigurationError, match=r"^Buffered has no rounds, of which AtHome counts the days: write a pace"
    ):
        run_of(AtHome())
    assert Simulation(run_of(OfOneVersion(), to.weighting.DivideBySum(), pace=to.pace.Rounds()))


def test_piece_that_needs_a_simulation_is_refused_only_by_a_server():
    run = run_of(AtHome(), pace=to.pace.Rounds())
    Simulation(run)
    with pytest.raises(
        ConfigurationError, match=r"^AtHome: it reads a clock that real clients do not have: simulate it$"
    ):
        ServedExperiment.of(run)
    with pytest.raises(ConfigurationError, match=r"^NoiseShare: the noise of a client is a function of the run's seed"):
        check_machines(
            to.average_participating(
                also=(to.aggregation.PrivateSum(cohort=4, noise_shares=4), to.guard.NoiseShare(shares=4))
            )
        )


@pytest.mark.parametrize("seconds", [None, 5.0])
def test_rounds_with_a_deadline_count_as_rounds(seconds):
    check_pace(to.pace.Rounds(deadline=seconds), to.scaffold(LOCAL))
    with pytest.raises(ConfigurationError, match=r"\(control\) minus the client's own; .* Buffered may mix several"):
        check_pace(BUFFER, to.scaffold(LOCAL, also=(to.selection.AllAvailable(),)))


@dataclass(frozen=True)
class Traveled(Correction):
    """Remember how far a client has traveled in all, and pull its steps back by a share of it."""

    pull: float = 0.05

    def memory(self, num_params, dtype):
        return {"traveled": ((num_params,), dtype)}

    def correct(self, gradient, params, start):
        return gradient

    def begin(self, task, memory, clients, lanes):
        return Pulled(self.pull, lanes.of(memory["traveled"]))


@dataclass(frozen=True)
class Pulled(Correction):
    pull: float
    traveled: torch.Tensor

    def correct(self, gradient, params, start):
        return gradient + self.pull * self.traveled

    def outcome(self, delta):
        return Outcome(remembered={"traveled": self.traveled + delta})


@pytest.mark.parametrize(("pace", "drops"), [(BUFFER, False), (to.pace.Buffered(3, max_staleness=1), True)])
def test_client_memory_is_updated_by_reports_used_in_a_buffer(pace, drops):
    """A step is the mean of three reports, so the model has moved by a third of the remembered sum."""
    simulation = Simulation(run_of(Traveled(), pace=pace))
    start = simulation.state.params.clone()
    for _ in range(9):
        simulation.round()
    moved = (simulation.state.params - start).double()
    remembered = simulation.memory.gather(np.arange(DATA.num_clients))["traveled"].double()
    torch.testing.assert_close(moved, remembered.sum(dim=0) / 3, rtol=1e-4, atol=1e-6)
    assert (sum(row["num_unused"] for row in simulation.history.rounds.to_pylist()) > 0) is drops
    times = np.bincount(simulation.history.participation["client"].to_numpy(), minlength=DATA.num_clients)
    assert times.max() > 1


def test_client_memory_is_updated_by_reports_accepted_by_a_server(tmp_path):
    deployed = World(run_of(Traveled()), tmp_path)
    try:
        start = deployed.host.driver.params.double().clone()
        deployed.run()
        moved = deployed.host.driver.params.double() - start
        remembered = torch.stack(
            [home.state.memory["traveled"].double() for home in deployed.homes if home.state.memory]
        )
        torch.testing.assert_close(moved, remembered.sum(dim=0) / 3, rtol=1e-4, atol=1e-6)
    finally:
        deployed.close()
