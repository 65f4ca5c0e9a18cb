"""Local steps in bfloat16: close to those in float32, as reproducible, and refused where they mean nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from turnout import Experiment, Sgd, fedavg, fedbn, models, perfedavg
from turnout.core.checks import ConfigurationError
from turnout.data import Iid, digits
from turnout.engine import validate
from turnout.engine.compile import compiled as replay
from turnout.engine.compile.backends import usable
from turnout.engine.objective import Objective
from turnout.simulation import Simulation

from .recipes import DATA, DEVICE, LOCAL, assert_same_bits, experiment, standard, trained

ENGINES = ("vectorized", "one_by_one")


def relative(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


class OwnTensors(nn.Module):
    """Makes a tensor of its own in float32, as users' modules do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 4), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        return self.last(torch.cat([hidden, torch.ones(len(x), 4)], dim=1))


GRADIENTS = {
    "logistic": (models.Logistic().build((6,), 3), (6,), 0.01),
    "mlp": (models.Mlp(hidden=(8,)).build((6,), 3), (6,), 0.05),
    "convolutions": (models.Cnn(hidden=(), channels=4).build((1, 8, 8), 3), (1, 8, 8), 0.05),
    "tensors of its own": (OwnTensors(), (6,), 0.01),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_float32_and_close_to_those_in_float32(name, engine):
    """bfloat16 rounds by at most 2**-9 relative; products of layers and the kink of ReLU add to it."""
    module, shape, tolerance = GRADIENTS[name]
    torch.manual_seed(0)
    x, y, keys = torch.randn(5, 16, *shape), torch.randint(3, (5, 16)), torch.arange(5)
    full, low = (Objective(module, engine=engine, precision=precision) for precision in ("full", "bf16"))
    params = full.initial.expand(5, -1).contiguous()
    (loss, gradient), (near_loss, near) = (each.gradient(params, x, y, None, keys) for each in (full, low))
    assert near.dtype == near_loss.dtype == torch.float32
    assert 2.0**-12 < relative(near, gradient) < tolerance
    assert relative(near_loss, loss) < 0.01
    evaluated = [each.gradient(params, x, y, None, keys, training=False)[1] for each in (full, low)]
    assert torch.equal(*evaluated)  # measurements are in full precision


@pytest.mark.parametrize("name", ["fedavg", "fedau", "scaffold", "folb", "fedprox", "ditto", "fedadam"])
def test_results_in_bfloat16_are_close_to_float32(name):
    full, low = (trained(standard(name, precision=precision)) for precision in ("full", "bf16"))
    moved = full.state.params - full.objective.initial[: len(full.state.params)]
    assert low.state.params.dtype == torch.float32
    assert 0 < float((low.state.params - full.state.params).norm() / moved.norm()) < 0.1


def test_accuracy_in_bfloat16_matches_float32():
    run = Experiment(digits().split(Iid(), num_clients=20), models.Logistic(), fedavg(Sgd(lr=0.3, steps=10)), rounds=20)
    full, low = (replace(run, precision=precision).run().summary()["test_accuracy"] for precision in ("full", "bf16"))
    assert full > 0.85
    assert abs(full - low) < 0.03


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("lanes", [1, 3])
def test_number_of_lanes_changes_no_bit(engine, lanes):
    run = experiment("fedau", precision="bf16", engine=engine, rounds=3)
    assert_same_bits(trained(run, lanes=lanes), trained(run))


@pytest.mark.parametrize("engine", ENGINES)
def test_replayed_steps_have_the_same_bits(engine, by_python, monkeypatch):
    """A trace records each cast as an operation; a cast outside the trace would freeze the weights of that moment."""
    run = experiment("fedau", precision="bf16", engine=engine, rounds=4)
    never = by_python(trained, run)
    monkeypatch.setattr(replay, "_CALLS", 0)
    always = trained(run)
    assert_same_bits(always, never)
    assert usable({DEVICE})[0].name in always.objective.backends


def test_traces_in_bfloat16_are_not_used_in_float32(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)
    before = trained(experiment("fedau", rounds=3, engine="vectorized"))
    trained(experiment("fedau", rounds=3, engine="vectorized", precision="bf16"))
    assert_same_bits(trained(experiment("fedau", rounds=3, engine="vectorized")), before)


def test_a_resumed_run_has_the_same_bits(tmp_path):
    run = experiment("fedau", precision="bf16", rounds=6)
    replace(run, rounds=3).run(tmp_path)
    resumed, whole = run.run(tmp_path, resume=True), run.run()
    first, other = (result.model.state_dict() for result in (resumed, whole))
    assert all(torch.equal(first[name], other[name]) for name in first)


def test_resuming_in_another_precision_is_refused(tmp_path):
    run = experiment("fedau", rounds=2)
    run.run(tmp_path)
    with pytest.raises(Exception, match="precision: 'full' and 'bf16'"):
        replace(run, rounds=4, precision="bf16").run(tmp_path, resume=True)


def test_running_statistics_are_accumulated_in_float32():
    """bfloat16 cannot represent a change of one percent of a statistic."""
    run = Experiment(DATA, models.Mlp(hidden=(8,), batch_norm=True), fedbn(LOCAL), rounds=3)
    full, low = (Simulation(replace(run, precision=precision)) for precision in ("full", "bf16"))
    everyone = np.arange(DATA.num_clients)
    for each in (full, low):
        each.round()
    start = full.objective.layout.statistics.start - full.objective.layout.num_shared
    one, other = (each.memory.gather(everyone)["personal"][:, start:] for each in (full, low))
    assert relative(other, one) < 0.01


def test_bfloat16_is_refused_where_it_has_no_effect():
    with pytest.raises(ConfigurationError, match="which bfloat16 rounds to the same: leave precision out"):
        Experiment(DATA, models.Logistic(), perfedavg(LOCAL, hessian="difference"), precision="bf16")
    Experiment(DATA, models.Logistic(), perfedavg(LOCAL, hessian="none"), precision="bf16")
    with pytest.raises(
        ConfigurationError, match=r"precision='bf16' needs float32 parameters .* those of Linear are float64"
    ):
        Objective(nn.Linear(3, 2).double(), precision="bf16")
    with pytest.raises(ConfigurationError, match="unknown value of precision 'fp8': known: bf16, full"):
        experiment("fedavg", precision="fp8")


def test_a_model_that_fails_in_bfloat16_is_refused_with_its_reason():
    class Picky(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            outputs = super().forward(input)
            if outputs.dtype == torch.bfloat16:
                raise RuntimeError("no kernel for bfloat16")
            return outputs

    objective = Objective(Picky(3, 2), precision="bf16")
    with pytest.raises(
        ConfigurationError, match="precision='bf16': the model failed in bfloat16 on cpu with: no kernel"
    ):
        validate.check(objective.network, objective.loss, torch.randn(4, 3), torch.zeros(4, dtype=torch.int64))
