"""The CNN of FedAU."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from turnout.core.checks import ConfigurationError
from turnout.models import Cnn

COLOR = (3, 32, 32)


@pytest.mark.parametrize(
    ("make", "shape", "classes", "expected"),
    [
        (Cnn.svhn, COLOR, 10, 273_706),
        (Cnn.cifar10, COLOR, 10, 551_786),
        (Cnn.cifar100, COLOR, 100, 1_216_260),
        (Cnn.cinic10, COLOR, 10, 1_193_130),
        (Cnn.fashion_mnist, (1, 28, 28), 10, 211_690),
    ],
)
def test_parameter_counts_equal_those_of_fedau(
    make: Callable[[], Cnn], shape: tuple[int, ...], classes: int, expected: int
):
    assert sum(p.numel() for p in make().build(shape, classes).parameters()) == expected


def textbook(p: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Convolution, ReLU and pooling in the order of the paper."""
    for name in ("conv1", "conv2"):
        x = F.max_pool2d(F.relu(F.conv2d(x, p[f"{name}.weight"], p[f"{name}.bias"], padding=1)), 2)
    x = F.relu(F.linear(x.flatten(1), p["hidden1.weight"], p["hidden1.bias"]))
    return F.linear(x, p["output.weight"], p["output.bias"])


def test_pooling_before_relu_changes_neither_values_nor_gradients():
    torch.manual_seed(0)
    module = Cnn(hidden=(8,), channels=4).build((2, 12, 12), 3)
    x = torch.randn(5, 2, 12, 12)
    x[:, :, :6] = 0  # ties, and units exactly at the kink: the biases start at zero
    ours, theirs = module(x), textbook(dict(module.named_parameters()), x)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    parameters = list(module.parameters())
    for a, b in zip(
        torch.autograd.grad(ours.square().sum(), parameters),
        torch.autograd.grad(theirs.square().sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_hidden_layers_start_kaiming_normal_with_zero_bias():
    module = Cnn.cifar100().build(COLOR, 100)
    for name, fan_in in {"conv1": 27, "conv2": 288, "hidden1": 2048, "hidden2": 512}.items():
        weight = module.get_parameter(f"{name}.weight")
        assert (module.get_parameter(f"{name}.bias") == 0).all()
        tolerance = 5 / math.sqrt(2 * weight.numel())  # five standard errors of a standard deviation
        assert weight.std().item() == pytest.approx(math.sqrt(2 / fan_in), rel=tolerance)
        kurtosis = (weight / weight.std()).pow(4).mean().item()  # 3 if normal, 1.8 if uniform
        assert kurtosis == pytest.approx(3, abs=0.7)


def test_last_layer_starts_from_the_default():
    module = Cnn.cifar100().build(COLOR, 100)
    weight, bias = module.get_parameter("output.weight"), module.get_parameter("output.bias")
    bound = 1 / math.sqrt(256)
    assert 0.99 * bound < weight.abs().max().item() <= bound
    assert 0.8 * bound < bias.abs().max().item() <= bound


def test_dropout_comes_before_every_fully_connected_layer():
    layers = list(Cnn.cinic10().build(COLOR, 10).children())
    for before, layer in pairwise(layers):
        assert isinstance(before, nn.Dropout) == isinstance(layer, nn.Linear)
    assert {layer.p for layer in layers if isinstance(layer, nn.Dropout)} == {0.2}


def test_without_dropout_there_is_no_dropout_layer():
    assert not any(isinstance(layer, nn.Dropout) for layer in Cnn.cifar10().build(COLOR, 10).modules())


def test_channels_of_each_convolution():
    module = Cnn(hidden=(), channels=(32, 64)).build((1, 28, 28), 10)
    assert [p.shape[0] for n, p in module.named_parameters() if n.endswith("weight")] == [32, 64, 10]
    assert sum(p.numel() for p in module.parameters()) == 32 * 10 + 64 * (32 * 9 + 1) + 10 * (64 * 7 * 7 + 1)
    assert (
        Cnn(channels=32)
        .build(COLOR, 10, seed=1)(torch.ones(1, *COLOR))
        .equal(Cnn(channels=(32, 32)).build(COLOR, 10, seed=1)(torch.ones(1, *COLOR)))
    )


@pytest.mark.parametrize("shape", [(784,), (28, 28), (1, 1, 28, 28), (1, 3, 28), (1, 28, 3)])
def test_non_image_inputs_are_refused(shape):
    with pytest.raises(ConfigurationError, match=r"input_shape of Cnn: got .*height and width >= 4.*Mlp\(\)"):
        Cnn().build(shape, 10)


def test_smallest_image_leaves_one_pixel():
    assert Cnn(channels=(2, 2)).build((1, 4, 4), 3)(torch.ones(2, 1, 4, 4)).shape == (2, 3)


@pytest.mark.parametrize("hidden", [128, [128], (0,), (True,)])
def test_invalid_widths_are_refused(hidden):
    with pytest.raises(ConfigurationError, match=r"hidden: got .*Write hidden=\(128,\), or \(\) for no hidden layer"):
        Cnn(hidden=hidden)


@pytest.mark.parametrize("channels", [0, (), (32, 0), 1.5, [32, 64], True])
def test_invalid_channels_are_refused(channels):
    with pytest.raises(ConfigurationError, match=r"channels: got .*Write channels=32"):
        Cnn(channels=channels)


@pytest.mark.parametrize("dropout", [-0.1, 1, 2.0])
def test_invalid_dropout_is_refused(dropout):
    with pytest.raises(ConfigurationError, match=r"dropout: got .*a probability"):
        Cnn(dropout=dropout)
