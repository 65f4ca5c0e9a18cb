"""Layers that are replaced compute what the user's layers compute; others stay, or are refused."""

from typing import Any

import pytest
import torch
from torch import nn

import turnout as to
from turnout.core.checks import ConfigurationError
from turnout.engine.dropout import KeyedDropout
from turnout.engine.network import Network
from turnout.engine.plain_layers import is_plain
from turnout.models import group_norm

from ..tiny import classification

DATA = classification(sizes=(20, 20, 20), classes=4)


class Activated(nn.BatchNorm1d):
    def forward(self, input):
        return super().forward(input).relu()


class Mixed:
    def forward(self, input):
        return 2 * super().forward(input)  # type: ignore[misc]


class Doubled(Mixed, nn.BatchNorm1d):
    pass


class Renamed(nn.BatchNorm1d):
    """A subclass that computes the same."""

    def __init__(self, width):
        super().__init__(width, eps=1e-3)


class Always(nn.Dropout):
    def forward(self, input):
        return nn.functional.dropout(input, self.p, training=True)


class Scaled(nn.Dropout):
    def forward(self, input):
        return input * 3


def hooked():
    layer = nn.BatchNorm1d(6)
    layer.register_forward_hook(lambda *values: values[-1].relu())
    return layer


def patched():
    layer = nn.BatchNorm1d(6)
    layer.forward = lambda x: x * 2  # type: ignore[method-assign]
    return layer


def net(*layers):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 6), *layers, nn.Linear(6, 4))


@pytest.mark.parametrize(
    ("layer", "what"),
    [
        (Activated(6), r"\(Activated\) is a subclass of BatchNorm1d with methods of its own"),
        (Doubled(6), r"\(Doubled\) is a subclass of BatchNorm1d with methods of its own"),
        (hooked(), r"\(BatchNorm1d\) has hooks or a forward of its own"),
        (patched(), r"\(BatchNorm1d\) has hooks or a forward of its own"),
    ],
)
def test_layers_that_compute_something_else_are_refused(layer, what):
    options: dict[str, Any]
    for options in ({"algorithm": to.fedbn()}, {"algorithm": to.fedavg(), "statistics": "average"}):
        with pytest.raises(ConfigurationError, match=f"layer '1' {what}, .*write what it adds as a layer behind it"):
            to.Experiment(DATA, net(layer), rounds=1, **options).run()
    with pytest.raises(ConfigurationError, match=f"layer '1' {what}, .*because GroupNorm takes its place"):
        group_norm(net(layer), tell=False)


def test_subclasses_that_compute_the_same_are_replaced():
    local, plain = to.Sgd(lr=0.1, steps=3), nn.BatchNorm1d(6, eps=1e-3)
    one, other = (to.Experiment(DATA, net(layer), to.fedbn(local), rounds=3).run() for layer in (Renamed(6), plain))
    x = torch.randn(5, 16)
    assert isinstance(one.personal_model(1).get_submodule("1"), Renamed)
    assert torch.equal(one.personal_model(1)(x), other.personal_model(1)(x))
    assert isinstance(group_norm(net(Renamed(6)), tell=False).get_submodule("1"), nn.GroupNorm)


def test_dropout_that_computes_something_else_stays():
    network = Network(net(Scaled(0.5)), torch.device("cpu"), ())
    x = torch.randn(5, 16)
    assert torch.equal(network.outputs(network.initial, x), net(Scaled(0.5))(x))
    with pytest.raises(ConfigurationError, match="draws random numbers in forward"):
        to.Experiment(DATA, net(Always(0.5)), to.fedavg(), rounds=1).run()


def test_a_layer_with_two_names_is_replaced_under_both():
    class Twice(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.first, self.one, self.other, self.last = nn.Linear(16, 6), layer, layer, nn.Linear(6, 4)

        def forward(self, x):
            return self.last(self.other(self.first(x)) + self.first(x))

    for layer, kind in ((nn.Dropout(0.5), KeyedDropout), (nn.BatchNorm1d(6), nn.Module)):
        module = Network(Twice(layer), torch.device("cpu"), ("first.bias",)).module
        assert module.one is module.other
        assert isinstance(module.one, kind)
        assert type(module.one) is not type(layer)
    changed = group_norm(Twice(nn.BatchNorm1d(6)), tell=False)
    assert isinstance(changed.one, nn.GroupNorm)
    assert changed.one is changed.other
    to.Experiment(DATA, Twice(nn.Dropout(0.5)), to.fedavg(), rounds=1).run()


class Frozen(nn.BatchNorm1d):
    """A layer that stays in evaluation mode by itself."""

    def train(self, mode=True):
        return super().train(False)


class Around(nn.Sequential):
    """A model whose layer of BatchNorm stays in evaluation mode."""

    def train(self, mode=True):
        super().train(mode)
        self[1].eval()
        return self


def pretrained(layer):
    with torch.no_grad():
        layer.running_mean.copy_(torch.arange(6.0))
        layer.running_var.copy_(torch.arange(6.0) + 0.5)
    return layer


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
@pytest.mark.parametrize("around", [False, True])
def test_batch_norm_in_evaluation_mode_is_a_constant(around, engine):
    """One step on all examples equals a step of torch with the layer in evaluation mode."""
    layer = pretrained((nn.BatchNorm1d if around else Frozen)(6))
    module = Around(*net(layer)) if around else net(layer)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    data = classification(sizes=(20,), classes=4)
    local = to.Sgd(lr=0.5, steps=1, batch_size=20)
    result = to.Experiment(data, module, to.fedavg(local), rounds=1, engine=engine).run()
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    module.train()
    nn.functional.cross_entropy(module(data.train.x), data.train.y).backward()
    with torch.no_grad():
        for parameter in module.parameters():
            assert parameter.grad is not None
            parameter -= 0.5 * parameter.grad
    for name, value in module.state_dict().items():
        torch.testing.assert_close(result.state_dict()[name], value)
    x = torch.randn(5, 16)
    torch.testing.assert_close(result.model(x), module.eval()(x))


@pytest.mark.parametrize("rule", [to.apfl, to.perfedavg, to.fedbn])
def test_frozen_batch_norm_is_accepted_by_rules_that_refuse_running_statistics(rule):
    options = {"personal": "head"} if rule is to.fedbn else {"cohort_size": 2}
    to.Experiment(DATA, net(pretrained(Frozen(6))), rule(**options), rounds=1).run()


def test_frozen_layers_without_running_statistics_are_refused():
    with pytest.raises(ConfigurationError, match="without running statistics that follow by a momentum"):
        to.Experiment(DATA, net(Frozen(6, track_running_stats=False)), to.fedbn(), rounds=1).run()


@pytest.mark.parametrize("rule", [to.fedavg, to.fedper])
def test_lazy_layers_are_refused(rule):
    for layer in (nn.LazyLinear(6), nn.LazyBatchNorm1d(affine=False)):
        with pytest.raises(ConfigurationError, match="belongs to a lazy layer and has no shape yet: call the model"):
            to.Experiment(DATA, net(layer), rule(), rounds=1).run()


def test_methods_that_torch_does_not_call_are_harmless():
    class Described(nn.Dropout):
        def describe(self):
            return "dropout"

        def extra_repr(self):
            return "described"

    assert is_plain(Described(), (nn.Dropout,))
    assert not is_plain(nn.Linear(2, 2), (nn.Dropout,))


@pytest.mark.parametrize(
    ("algorithm", "pace", "piece"),
    [
        (to.fedau(), to.pace.Rounds(), "DivideByClients"),
        (to.fedavg(server_lr=0.5), to.pace.Rounds(), "ServerSgd"),
        (to.fedadam(), to.pace.Rounds(), "ServerAdam"),
        (to.fedavg(also=(to.guard.Sign(),)), to.pace.Rounds(), "Sign"),
        (to.fedavg(also=(to.aggregation.Median(),)), to.pace.Rounds(), "Median"),
        (to.fedbuff(), to.pace.Buffered(5), "Buffered"),
    ],
)
def test_statistics_are_averaged_by_plain_means_only(algorithm, pace, piece):
    with pytest.raises(ConfigurationError, match=f"needs the plain mean of the models of clients, and {piece}"):
        to.Experiment(DATA, net(nn.BatchNorm1d(6)), algorithm, pace=pace, statistics="average")
    with pytest.raises(ConfigurationError, match="unknown value of statistics 'mean'"):
        to.Experiment(DATA, net(nn.BatchNorm1d(6)), to.fedavg(), statistics="mean")  # type: ignore[arg-type]


def test_averaged_statistics_are_saved_and_exported(tmp_path):
    from safetensors.torch import load_file

    run = to.Experiment(DATA, net(nn.BatchNorm1d(6)), to.fedavg(), rounds=4, statistics="average")
    result = run.run(tmp_path / "run")
    to.Experiment(DATA, net(nn.BatchNorm1d(6)), to.fedavg(), rounds=2, statistics="average").run(tmp_path / "parts")
    resumed = run.run(tmp_path / "parts", resume=True)
    again = to.load(tmp_path / "run", model=net(nn.BatchNorm1d(6)))
    named = load_file(result.export(tmp_path / "model.safetensors"))
    assert not named["1.running_mean"].eq(0).any()
    for name, value in result.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name
        assert torch.equal(again.model.state_dict()[name], value), name
        assert torch.equal(named[name], value), name
    assert result.model(DATA.train.x).argmax(dim=1).eq(DATA.train.y).double().mean() == pytest.approx(
        result.history.rounds["train_accuracy"].to_pylist()[-1]
    )
