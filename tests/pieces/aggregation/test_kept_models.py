"""FedAWE and FedStale: refusals, and stored models."""

import numpy as np
import pytest
import torch
from tests.tiny import classification, federation

from turnout import ConfigurationError, Experiment, Population, Sgd, compose, fedawe, models
from turnout.pieces.aggregation import FedStale
from turnout.pieces.local import GradientNorm, Scaffold
from turnout.pieces.selection import WithReplacement
from turnout.pieces.weighting import DivideByClients, DivideByParticipants, Echo
from turnout.population.availability import Bernoulli
from turnout.population.speed import Speed
from turnout.protocol.pace import BoundRounds, Buffered, Rounds, Training
from turnout.simulation import Simulation
from turnout_serve.server.run.served_experiment import ServedExperiment

DATA = classification(features=4, classes=3)
COMING = Population(Bernoulli(mean=0.4))


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        (GradientNorm(), "losses and gradients at different models are not comparable"),
        (Scaffold(), r"their memory \(control\), which requires one model"),
        (WithReplacement(4), "WithReplacement draws a client twice"),
    ],
)
def test_pieces_that_need_one_model_per_cohort_are_refused(piece, message):
    with pytest.raises(ConfigurationError, match=message):
        fedawe(also=(piece,))


def test_buffered_pace_is_refused():
    with pytest.raises(ConfigurationError, match="with KeptModels they continue from the one that they kept"):
        Experiment(DATA, models.Logistic(), fedawe(), Population(speed=Speed()), Buffered(2))


def test_deployment_is_refused():
    with pytest.raises(ConfigurationError, match="KeptModels: clients continue from their stored models"):
        ServedExperiment.of(Experiment(DATA, models.Logistic(), fedawe()))


@pytest.mark.parametrize("beta", [-0.1, 1.5])
def test_echo_share_outside_0_to_1_is_refused(beta):
    with pytest.raises(ConfigurationError, match=f"beta: got {beta}, needed a probability"):
        FedStale(beta)


def test_fedstale_needs_weights_over_all_clients():
    with pytest.raises(
        ConfigurationError, match=r"the weighting is DivideByParticipants, but FedStale .* as fedstale does"
    ):
        compose(Sgd(), DivideByParticipants(), FedStale())


def test_echo_needs_a_step_size():
    with pytest.raises(ConfigurationError, match="lr: got 0, needed a finite number > 0"):
        Echo(0)


def kept_by(simulation):
    """Return the version that each client keeps."""
    pace = simulation.coordinator.scheduler.pace
    assert isinstance(pace, BoundRounds)
    assert pace.client_versions is not None
    return pace.client_versions


def test_only_models_in_use_by_clients_are_stored():
    run = Experiment(DATA, models.Logistic(), fedawe(), COMING, rounds=12)
    simulation = Simulation(run)
    for _ in range(run.rounds):
        simulation.round()
        kept = kept_by(simulation)
        assert set(simulation.server.models) == {*kept, simulation.state.version}
    assert 2 < len(simulation.server.models) <= DATA.num_clients + 1


def test_later_enrolled_client_starts_from_current_model():
    pace = Rounds().bind(2, Training(continues=True))
    pace.start(0.0)
    pace.chosen(0.0, [0])
    pace.all_reported(0.0)
    pace.grow(4)
    assert pace.client_versions == [1, 0, 1, 1]
    assert pace.versions() == {0, 1}


def test_late_clients_keep_their_model():
    slow = Population(Bernoulli(mean=0.6), speed=Speed(spread=1.0))
    run = Experiment(DATA, models.Logistic(), fedawe(), slow, Rounds(deadline=1.0), rounds=20)
    simulation = Simulation(run)
    late = 0
    for _ in range(run.rounds):
        before = list(kept_by(simulation))
        simulation.round()
        after = kept_by(simulation)
        moved = np.flatnonzero(np.array(before) != after)
        np.testing.assert_array_equal(moved, np.flatnonzero(np.array(after) == simulation.state.version))
        late += simulation.row["num_unused"]
    assert late


@pytest.mark.parametrize("shares", [(), (0.5, 0.6), (1.0, 0.0), (2.0, -1.0)])
def test_invalid_shares_are_refused(shares):
    with pytest.raises(
        ConfigurationError, match=r"shares: got .*, needed a positive number for each client, which sum to 1"
    ):
        FedStale(shares=shares)


def test_shares_cover_all_clients():
    with pytest.raises(ConfigurationError, match="shares has a number for 2 clients, but there are 8"):
        compose(DivideByClients(), FedStale(shares=(0.5, 0.5))).init(torch.zeros(3), federation(8, 3))
