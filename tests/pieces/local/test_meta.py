"""Per-FedAvg's local steps: limits, minibatches and refusals. `tests/oracles` compares the rule itself."""

import pytest
import torch
from tests.tiny import classification

from turnout import ConfigurationError, Experiment, Sgd, average_participating, models
from turnout.base.tuning import tuning_rule
from turnout.core.schedule import Halving
from turnout.engine.compile import compiled as replay
from turnout.engine.compile import torchscript
from turnout.pieces.local import Meta
from turnout.simulation import Simulation

from ...phases import train

LOCAL = Sgd(lr=0.3, steps=2, batch_size=8)
DATA = classification()


def trained(local, **options):
    run = Experiment(DATA, models.Mlp(hidden=(8,)), average_participating(local), **options)
    return Simulation(run)


def everyone(simulation):
    return train(simulation, torch.arange(8).numpy())


def test_options_equal_those_of_sgd():
    local = Sgd(lr=Halving(0.3, 1, 1), steps=None, epochs=2, batch_size=7, momentum=0.5, weight_decay=0.1)
    meta = Meta.of(local, alpha=0.2, hessian="difference", delta=0.01)
    assert (meta.alpha, meta.hessian, meta.delta) == (0.2, "difference", 0.01)
    for name in ("lr", "steps", "epochs", "batch_size", "momentum", "weight_decay", "sampling", "drop_last"):
        assert getattr(meta, name) == getattr(local, name)


def test_minibatches_of_a_step_are_disjoint_and_count_as_one_step():
    for meta, per_step in ((Meta.of(LOCAL, 0.1, "none"), 2), (Meta.of(LOCAL, 0.1, "difference"), 3)):
        simulation = trained(meta)
        report = everyone(simulation)
        assert report.num_steps.tolist() == [2] * 8
        assert simulation.memory.state()["table.steps_done"].tolist() == [2 * per_step] * 8


def test_zero_alpha_is_sgd_on_every_other_minibatch():
    """alpha -> 0: the gradient at the model itself on D', so plain steps if one minibatch has all data."""
    whole = Sgd(lr=0.3, steps=3, batch_size=64)
    plain, meta = everyone(trained(whole)), everyone(trained(Meta.of(whole, 1e-12, "none")))
    torch.testing.assert_close(meta.delta, plain.delta, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(meta.seen["loss"], plain.seen["loss"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("hessian", ["none", "difference"])
def test_supports_momentum_and_dropout(hessian):
    rough = Sgd(lr=0.1, steps=3, batch_size=8, momentum=0.9, weight_decay=0.1)
    model = models.Mlp(hidden=(8,), dropout=0.3)
    algorithm = average_participating(Meta.of(rough, 0.1, hessian))
    one, other = (
        everyone(Simulation(Experiment(DATA, model, algorithm, engine=engine)))
        for engine in ("vectorized", "one_by_one")
    )
    assert torch.isfinite(one.updates.gathered()).all()
    torch.testing.assert_close(other.delta, one.delta, rtol=1e-3, atol=1e-5)


@pytest.mark.skipif(torchscript.lacking() is not None, reason="only traces of TorchScript are shared")
@pytest.mark.parametrize("other", [{}, {"alpha": 0.2}])
def test_runs_with_equal_options_share_traces(other, monkeypatch):
    traced, trace = [], replay.trace
    monkeypatch.setattr(replay, "trace", lambda *given: traced.append(given) or trace(*given))
    local, options = Sgd(lr=0.3, steps=4, batch_size=8), {"alpha": 0.1, "hessian": "none"}
    monkeypatch.setattr(replay, "_CALLS", 0)
    everyone(trained(Meta.of(local, **options)))
    of_first = len(traced)
    monkeypatch.setattr(replay, "_CALLS", 1)  # a step too late, so that what is known comes first
    everyone(trained(Meta.of(local, **options | other)))
    assert of_first
    assert (len(traced) > of_first) == bool(other)


def test_personal_models_train_plainly_and_received_models_adapt():
    meta = Meta.of(LOCAL, 0.05, "none")
    assert meta.alone(9) == Sgd(lr=0.3, steps=9, batch_size=8, sampling="fresh")
    assert meta.tuning(9) == Sgd(lr=0.05, steps=9, batch_size=8, sampling="fresh")
    assert tuning_rule(meta, 9) == meta.tuning(9)
    assert tuning_rule(LOCAL, 9) == LOCAL.alone(9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.0}, r"alpha: got 0\.0, needed a finite number > 0"),
        ({"delta": -1.0}, r"delta: got -1\.0, needed a finite number > 0"),
        ({"hessian": "exact"}, "unknown value of hessian 'exact'"),
        ({"momentum": 1.0}, r"momentum: got 1\.0"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Meta(**options)
