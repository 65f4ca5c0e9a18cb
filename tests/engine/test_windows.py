"""Convolutions as products with windows have the values and gradients of PyTorch's, and replace those of few channels."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, grad, vmap

from turnout.engine import windows
from turnout.engine.network import Network
from turnout.engine.objective import Objective
from turnout.engine.windows import WindowedConv2d
from turnout.models import Cnn

CPU = torch.device("cpu")
sides, kernels, strides, paddings = st.integers(5, 9), st.integers(1, 5), st.integers(1, 3), st.integers(0, 2)


@pytest.fixture
def on_cpu(monkeypatch):
    """Replace layers on CPUs, too."""
    monkeypatch.setattr(windows, "DEVICES", {"cpu"})


def conv(*sizes, **options) -> nn.Conv2d:
    torch.manual_seed(0)
    return nn.Conv2d(*sizes, **options).double()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 4), st.tuples(sides, sides), st.tuples(kernels, kernels), st.tuples(strides, strides),
    st.tuples(paddings, paddings), st.booleans(),
)  # fmt: skip
def test_values_and_gradients_of_all_clients_are_those_of_a_convolution(channels, side, kernel, stride, padding, bias):
    layer = conv(channels, 3, kernel, stride=stride, padding=padding, bias=bias)
    x = torch.randn(2, 4, channels, *side, dtype=torch.float64)
    params = {name: torch.randn(2, *value.shape, dtype=torch.float64) for name, value in layer.named_parameters()}

    def loss(params, x):
        return functional_call(layer, params, x).sin().sum()

    expected = vmap(lambda params, x: functional_call(layer, params, x))(params, x), vmap(grad(loss))(params, x)
    layer.__class__ = WindowedConv2d
    found = vmap(lambda params, x: functional_call(layer, params, x))(params, x), vmap(grad(loss))(params, x)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.usefixtures("on_cpu")
def test_steps_of_a_network_are_the_same(monkeypatch):
    module = Cnn(hidden=(8,), channels=(4, 6, 8)).build((3, 8, 8), 5, seed=0).double()
    x, y = torch.randn(2, 3, 3, 8, 8, dtype=torch.float64), torch.randint(5, (2, 3))
    keys, products, multiply = torch.zeros(2, dtype=torch.int64), [], torch.bmm
    monkeypatch.setattr(windows.torch, "bmm", lambda *given: products.append(1) or multiply(*given))
    ours = Objective(module, engine="vectorized")
    params = ours.initial + torch.randn(2, 1, dtype=torch.float64) / 10 * ours.initial
    found = ours.gradient(params, x, y, None, keys)
    assert len(products) == 2
    monkeypatch.setattr(windows, "DEVICES", set())
    expected = Objective(module, engine="vectorized").gradient(params, x, y, None, keys)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)


def layers(module: nn.Module) -> list[nn.Module]:
    return list(Network(module, CPU, ()).module.modules())


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(
    "layer",
    [
        conv(32, 32, 3),
        conv(4, 4, 3, groups=2),
        conv(3, 4, 3, dilation=2),
        conv(3, 4, 3, padding="same"),
        conv(3, 4, 3, padding=1, padding_mode="circular"),
        conv(3, 4, 11),
        torch.nn.utils.parametrizations.weight_norm(conv(3, 4, 3)),
        type("Own", (nn.Conv2d,), {})(3, 4, 3),
    ],
    ids=["channels", "groups", "dilation", "same", "circular", "large", "weight_norm", "subclass"],
)
def test_other_convolutions_stay(layer):
    assert not any(isinstance(each, WindowedConv2d) for each in layers(nn.Sequential(layer)))


@pytest.mark.usefixtures("on_cpu")
def test_layers_with_hooks_and_layers_of_the_user_stay():
    module, hooked = nn.Sequential(conv(3, 4, 3)), nn.Sequential(conv(3, 4, 3))
    hooked[0].register_forward_hook(lambda *_: None)
    assert [type(each) for each in layers(module)[1:]] == [WindowedConv2d]
    assert [type(each) for each in layers(hooked)[1:]] == [nn.Conv2d]
    assert type(module[0]) is nn.Conv2d


def test_cpus_use_convolutions():
    assert [type(each) for each in layers(nn.Sequential(conv(3, 4, 3)))[1:]] == [nn.Conv2d]


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("case", ["evaluation", "alone", "one image"])
def test_evaluations_and_single_clients_use_convolutions(case, monkeypatch):
    network = Network(nn.Sequential(conv(3, 4, 3)), CPU, ())
    network.alone = case == "alone"
    network.mode(training=case != "evaluation")
    x = torch.randn(*(() if case == "one image" else (2,)), 3, 5, 5, dtype=torch.float64)
    monkeypatch.setattr(windows, "pad", None)  # fails if it is called
    assert network.outputs(network.initial, x).shape[-3:] == (4, 3, 3)
