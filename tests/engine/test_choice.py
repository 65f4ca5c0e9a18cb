"""Choice between the vectorized engine and one by one."""

import numpy as np
import pytest
import torch
from torch import nn

import turnout as to
from turnout.engine import choice, network, validate
from turnout.engine import objective as objective_module
from turnout.engine.choice import Choice, expected
from turnout.engine.compile import compiled
from turnout.engine.objective import Objective
from turnout.models import MODELS, CharLstm
from turnout.simulation import Simulation, running
from turnout.workbench.speed.workloads import WORKLOADS

from ..phases import train

X = torch.randn(5, 6)


def convolution(channels, size=8):
    return nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), nn.Flatten(), nn.Linear(channels * size * size, 3))


def test_multiplications_of_a_minibatch_are_counted():
    objective = Objective(convolution(2))
    assert validate.products(objective.network, torch.randn(5, 1, 8, 8)) == 5 * (64 * 9 * 2 + 128 * 3)


@pytest.mark.parametrize(("channels", "engine"), [(2, "vectorized"), (512, "one_by_one")])
def test_small_convolutions_are_vectorized_and_large_ones_are_not(channels, engine):
    objective = Objective(convolution(channels))
    assert objective.engine == "one_by_one"
    assert objective.choose(torch.randn(5, 1, 8, 8)).engine == engine == objective.engine


def test_minibatch_size_affects_the_choice():
    assert Objective(convolution(16)).choose(torch.randn(2, 1, 8, 8)).engine == "vectorized"
    assert Objective(convolution(16)).choose(torch.randn(256, 1, 8, 8)).engine == "one_by_one"


def test_models_without_convolutions_are_vectorized_at_any_size():
    assert Objective(nn.Linear(6, 1000)).choose(torch.randn(64, 6)).engine == "vectorized"


@pytest.mark.parametrize("name", ["W1", "W2", "W3", "W4"])
def test_workloads_use_the_engine_measured_as_faster(name):
    """Medians of rounds: the convolutions of W1 and the cell of W4 are faster one by one."""
    workload = WORKLOADS[name]
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in workload.model.items()}
    module = MODELS[str(options.pop("name"))](**options).build(workload.shape, workload.num_classes)
    few = torch.zeros(workload.local["batch_size"], *workload.shape)
    x = few.long() if workload.centers is None else few
    assert Objective(module).choose(x).engine == ("one_by_one" if name in ("W1", "W4") else "vectorized")


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_requested_engine_is_used(engine):
    objective = Objective(convolution(2), engine=engine)
    assert objective.choose(torch.randn(5, 1, 8, 8)) == Choice(engine, "as asked for")


def test_only_possible_engine_is_used():
    assert expected(nn.GRU(2, 3), "auto", torch.device("cpu")).settled
    assert Objective(nn.GRU(6, 3)).choose(X).engine == "one_by_one"


def test_choice_does_not_depend_on_a_clock(monkeypatch):
    """Neither the engine nor the start of a trace: the same command on a busy machine gives the same bits."""

    def forbidden():
        raise AssertionError("a clock was read")

    for module in (choice, compiled, objective_module, validate):
        assert not hasattr(module, "time")
    data = to.data.digits().split(to.partition.Dirichlet(alpha=0.5), num_clients=6)
    simulation = Simulation(to.Experiment(data=data, model=to.models.Mlp(hidden=(4,)), rounds=2))
    monkeypatch.setattr("time.perf_counter", forbidden)
    simulation.objective.choose(simulation.workspace.data.train.x[:16])
    train(simulation, np.arange(3))


def experiment(rounds):
    data = to.data.digits().split(to.partition.Dirichlet(alpha=0.5), num_clients=6)
    algorithm = to.average_participating(to.Sgd(lr=0.1, steps=3), also=(to.selection.Uniform(4),))
    return to.Experiment(data=data, model=to.models.Logistic(), algorithm=algorithm, rounds=rounds)


def test_resumed_run_keeps_its_engine(tmp_path):
    begun = Simulation(experiment(4))
    begun.objective.use(Choice("one_by_one", "an older version's"))
    for _ in range(2):
        begun.round()
    running.save_simulation(begun, tmp_path)
    later = Simulation(experiment(4))
    assert later.objective.engine == "vectorized"
    running.restore(later, tmp_path)
    assert later.objective.choice == Choice("one_by_one", "as this run began")
    for _ in range(2):
        begun.round()
        later.round()
    assert torch.equal(begun.state.params, later.state.params)


def test_switching_engines_copies_the_model_once_each(monkeypatch):
    copied, deepcopy = [], network.copy.deepcopy
    objective = Objective(CharLstm(hidden=4).build((5,), 6))
    monkeypatch.setattr(network.copy, "deepcopy", lambda *given: copied.append(1) or deepcopy(*given))
    x, y, found = torch.randint(0, 6, (2, 3, 5)), torch.randint(0, 6, (2, 3)), []
    for engine in ("vectorized", "one_by_one") * 3:
        objective.use(Choice(engine, "in turns"))
        params, keys = objective.initial.expand(2, -1).contiguous(), torch.arange(2)
        found.append(objective.gradient(params, x, y, None, keys, replay=False)[1])
    assert len(copied) == 2
    for gradient in found:
        torch.testing.assert_close(gradient, found[0])
