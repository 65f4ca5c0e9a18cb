"""Models are tested once before training, by simulations and by servers."""

import pytest
import torch
from tests.served import World
from torch import nn

import turnout as to
from turnout.simulation import Simulation
from turnout_serve.client.computer import Computer
from turnout_serve.server.run.served_experiment import ServedExperiment

from ..tiny import Branch, classification

DATA = classification()


def experiment(model, algorithm=None, **options):
    algorithm = algorithm or to.fedavg(to.Sgd(steps=2))
    return to.Experiment(DATA, model, algorithm, rounds=2, evaluate_every=2, **options)


@pytest.mark.parametrize("drive", [Simulation, ServedExperiment.of])
def test_model_that_cannot_be_batched_trains_one_by_one(drive):
    with pytest.warns(RuntimeWarning, match="clients are computed one by one, because torch.func.vmap cannot batch"):
        assert drive(experiment(Branch())).objective.engine == "one_by_one"
    with pytest.raises(to.ConfigurationError, match=r"engine='vectorized': .* write engine='one_by_one'"):
        drive(experiment(Branch(), engine="vectorized"))


@pytest.mark.parametrize("algorithm", [None, to.folb(to.Sgd(steps=2), cohort_size=3)])
def test_simulations_and_servers_choose_the_same_engine(algorithm):
    """With the block size of full gradients, if clients measure them."""
    model = nn.Sequential(nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 200, 3), nn.Flatten(), nn.Linear(800, 4))
    chosen = [drive(experiment(model, algorithm)).objective.engine for drive in (Simulation, ServedExperiment.of)]
    assert chosen[0] == chosen[1]
    assert chosen[0] == ("vectorized" if algorithm is None else "one_by_one")


def test_server_trains_what_a_simulation_trains(tmp_path):
    branch = Branch()
    with pytest.warns(RuntimeWarning, match="one by one"):
        simulation = Simulation(experiment(branch))
    with pytest.warns(RuntimeWarning, match="one by one"):
        world = World(experiment(branch), tmp_path)
    model = simulation.state.params.clone()
    for _ in range(2):
        simulation.round()
    assert torch.equal(world.run().host.driver.params, simulation.state.params)
    assert not torch.equal(model, simulation.state.params)
    world.close()


@pytest.mark.parametrize("drive", [Simulation, ServedExperiment.of])
def test_labels_and_inputs_at_their_extremes_are_tested(drive):
    small = nn.Linear(16, 3)  # of four classes
    with pytest.raises(to.ConfigurationError, match="the model does not fit the data"):
        drive(experiment(small))


def test_client_uses_the_engine_of_its_server():
    assert Computer(experiment(Branch()), "one_by_one").objective.engine == "one_by_one"


class Counted(nn.Linear):
    """Operations whose shapes depend on the values of a minibatch."""

    def forward(self, input):
        counts = torch.bincount((input[:, 0] > 0).long())
        return super().forward(input) * counts.max()


def test_shapes_that_depend_on_values_train_one_by_one():
    with pytest.warns(RuntimeWarning, match="clients are computed one by one, because torch.func.vmap cannot batch"):
        result = experiment(Counted(16, 4)).run()
    assert result.rounds.num_rows


def test_whole_numbers_as_inputs_of_a_linear_layer_say_what_to_write():
    data = to.data.from_arrays(torch.zeros(40, 16, dtype=torch.uint8), DATA.train.y[:40]).split(
        to.partition.Iid(), num_clients=4
    )
    with pytest.raises(
        to.ConfigurationError, match=r"Inputs are whole numbers: write x.astype\('float32'\), and / 255"
    ):
        to.Experiment(data, nn.Linear(16, 4), to.fedavg(to.Sgd(steps=2)), rounds=2).run()
