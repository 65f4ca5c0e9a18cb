"""How clients are computed leaves no trace in what they report."""

import pytest
import torch
from torch import nn

from turnout import AdamW, Sgd, models
from turnout.engine.compile import compiled as replay
from turnout.engine.compile import torchscript
from turnout.pieces.local import UniformWork
from turnout.simulation import Simulation

from ..phases import train
from .recipes import (
    CLIENTS,
    DATA,
    DEVICE,
    LOCAL,
    RECIPES,
    SOME,
    assert_independent_of_lanes,
    assert_same_bits,
    baseline,
    covering,
    experiment,
    standard,
    trained,
)

LOCALS = {
    "steps": LOCAL,
    "one step of one example": Sgd(lr=0.3, steps=1, batch_size=1),
    "epochs": Sgd(lr=0.1, steps=None, epochs=2, batch_size=16),
    "momentum, fresh passes": Sgd(lr=0.1, steps=4, batch_size=16, momentum=0.8, weight_decay=0.1, sampling="fresh"),
    "with replacement": Sgd(lr=0.3, steps=3, batch_size=16, sampling="replacement"),
    "uniform work": Sgd(lr=0.1, steps=None, epochs=UniformWork(1, 3), batch_size=16),
}
ENGINES = ("vectorized", "one_by_one")
TRACED = covering("local", "corrections", "measurements", "selection", "personal")
"""Recipes with every way to make local steps and measurements, which is all that is traced."""
TRACED += [name for name, make in RECIPES.items() if name not in TRACED and "base" in make(LOCAL).aggregation.reads]
"""And those that change the frozen weights, which traces read."""


def relative(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("name", CLIENTS)
def test_vectorized_equals_one_by_one(name):
    one, other = baseline(name), trained(standard(name, engine="one_by_one"))
    assert relative(one.state.params, other.state.params) < 1e-5
    assert relative(one.state.params, one.objective.initial[: len(one.state.params)]) > 0.003  # it went somewhere


@pytest.mark.parametrize("local", LOCALS.values(), ids=LOCALS)
def test_vectorized_equals_one_by_one_for_every_local_rule(local):
    one, other = (trained(experiment("fedau", local=local, engine=engine)) for engine in ENGINES)
    assert relative(one.state.params, other.state.params) < 1e-5


@pytest.mark.parametrize("name", CLIENTS)
def test_number_of_lanes_changes_no_bit(name):
    """Lanes of three clients or, for recipes that together have every piece, of one client."""
    assert_independent_of_lanes(trained(standard(name), lanes=1 if name in SOME else 3), baseline(name))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("local", LOCALS.values(), ids=LOCALS)
def test_clients_trained_together_change_no_bit(local, engine):
    """Clients with short minibatches and few steps train beside others as they do alone."""
    run = experiment("fedavg", local=local, engine=engine, model=models.Mlp(hidden=(16,), dropout=0.3))
    together, ids = Simulation(run), torch.arange(8).numpy()
    reports = [train(together, ids), train(together, ids)]  # the second goes on in the middle of a pass
    for k in ids:
        alone = Simulation(run)
        for report in reports:
            own = train(alone, ids[k : k + 1])
            for mine, theirs in ((own.delta, report.delta), (own.seen["loss"], report.seen["loss"])):
                # On a GPU, the algorithm of a product depends on how many clients are computed together.
                assert torch.equal(mine[0], theirs[k]) if DEVICE == "cpu" else relative(mine[0], theirs[k]) < 1e-5
            assert own.num_steps[0] == report.num_steps[k]


def awkward(activation):
    """Layers whose sizes are no multiples of vector registers."""
    return nn.Sequential(nn.Linear(16, 13), activation(), nn.Dropout(0.4), nn.Linear(13, 16))


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU, nn.Sigmoid, nn.Softplus])
def test_number_of_lanes_changes_at_most_the_last_digit_of_any_model(activation):
    """torch computes what is left over of a tensor, after full vectors, by another formula of some functions."""
    module, local = awkward(activation), Sgd(lr=0.3, steps=3, batch_size=11)
    everyone, ones, threes = (
        trained(experiment("fedau", local=local, model=module, rounds=5), lanes) for lanes in (100, 1, 3)
    )
    assert relative(ones.state.params, everyone.state.params) < 1e-6
    assert relative(threes.state.params, everyone.state.params) < 1e-6


@pytest.mark.parametrize("model", [models.Mlp(hidden=(16,), dropout=0.3), awkward(nn.GELU), models.Logistic()])
@pytest.mark.parametrize("local", [LOCALS["steps"], LOCALS["epochs"]], ids=["steps", "epochs"])
def test_replayed_operations_give_the_same_bits(model, local, by_python, monkeypatch):
    """The number of calls before tracing depends on timing; the result must not."""
    run = experiment("fedau", local=local, model=model, rounds=3)
    never = by_python(trained, run)
    monkeypatch.setattr(replay, "_CALLS", 0)
    assert_same_bits(trained(run), never)


@pytest.mark.parametrize("name", TRACED)
def test_steps_of_every_recipe_are_traced_once_and_give_the_same_bits(name, by_python, monkeypatch):
    # In FedALA's first round there is nothing to mix; a trace is replayed with other frozen weights in the fourth.
    rounds = 4 if "base" in RECIPES[name](LOCAL).aggregation.reads else 3 if name == "fedala" else 2
    run = experiment(name, rounds=rounds, engine="vectorized")
    never = by_python(trained, run)
    monkeypatch.setattr(replay, "_CALLS", 0)
    always = Simulation(run)
    for _ in range(rounds - 1):
        always.round()
    kinds = set(always.objective._compiled)
    always.round()
    always.finish()
    assert set(always.objective._compiled) == kinds != set()
    assert_same_bits(always, never)


@pytest.mark.skipif(torchscript.lacking() is not None, reason="elsewhere traces go through Python")
def test_steps_of_adamw_are_replayed_without_python(monkeypatch):
    """TorchScript omits in-place operations on lists of tensors; the comparison of bits detects it."""
    monkeypatch.setattr(replay, "_CALLS", 0)
    run = trained(experiment("fedavg", local=AdamW(lr=0.01, steps=3), rounds=2, engine="vectorized", device="cpu"))
    used = [backend for compiled in run.objective._compiled.values() for backend in compiled.backends.values()]
    assert used
    assert set(used) <= {"torchscript", "shared"}


@pytest.mark.skipif(
    torchscript.lacking() is not None or DEVICE != "cpu", reason="only traces of TorchScript are shared"
)
@pytest.mark.parametrize("name", ["fedau", "scaffold", "ditto"])
def test_traces_of_an_earlier_run_change_no_bit(name, by_python, monkeypatch):
    run = experiment(name, rounds=3, engine="vectorized")
    never = by_python(trained, run)
    monkeypatch.setattr(replay, "_CALLS", 0)
    trained(experiment("fedavg" if name == "fedau" else name, rounds=3, engine="vectorized", seed=5))
    monkeypatch.setattr(replay, "_CALLS", 10**9)
    after = trained(run)
    assert any(replayed._traced for replayed in after.objective._compiled.values())
    assert_same_bits(after, never)


def test_memory_budget_determines_the_number_of_lanes_and_changes_no_bit():
    model, local = models.Mlp(hidden=(2048,)), Sgd(lr=0.1, steps=2)
    small = trained(experiment("fedau", model=model, local=local, rounds=2, memory_budget=1 << 21))
    large = trained(experiment("fedau", model=model, local=local, rounds=2))
    assert small.workspace.lanes < 3 < DATA.num_clients < large.workspace.lanes
    assert_independent_of_lanes(small, large)
    assert torch.equal(small.memory.state()["table.steps_done"], large.memory.state()["table.steps_done"])
