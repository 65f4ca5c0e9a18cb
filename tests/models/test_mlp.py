"""Multi-layer perceptrons."""

import pytest
import torch
from torch import nn

from turnout.core.checks import ConfigurationError
from turnout.models import Mlp


def test_equals_the_chain_of_affine_maps_and_relu():
    module = Mlp(hidden=(5, 4)).build((2, 3), 3)
    x = torch.randn(6, 2, 3)
    h = x.reshape(6, 6)
    for name in ("hidden1", "hidden2"):
        h = (h @ module.get_parameter(f"{name}.weight").T + module.get_parameter(f"{name}.bias")).clamp(min=0)
    expected = h @ module.get_parameter("output.weight").T + module.get_parameter("output.bias")
    torch.testing.assert_close(module(x), expected)


@pytest.mark.parametrize(
    ("hidden", "expected"),
    [((64, 30), 785 * 64 + 65 * 30 + 31 * 10), ((200, 100), 785 * 200 + 201 * 100 + 101 * 10)],
    ids=["maxfl", "folb"],
)
def test_parameter_counts_equal_those_of_the_papers(hidden, expected):
    module = Mlp(hidden=hidden).build((1, 28, 28), 10)
    assert sum(p.numel() for p in module.parameters()) == expected


def test_dropout_follows_the_first_hidden_layer_only():
    module = Mlp(hidden=(64, 30, 20), dropout=0.4).build((784,), 10)
    kinds = [type(layer) for layer in module.children()]
    assert kinds.count(nn.Dropout) == 1
    assert kinds.index(nn.Dropout) == kinds.index(nn.ReLU) + 1
    assert next(layer.p for layer in module.children() if isinstance(layer, nn.Dropout)) == 0.4


def test_without_dropout_there_is_no_dropout_layer():
    assert not any(isinstance(layer, nn.Dropout) for layer in Mlp().build((8,), 2).modules())


@pytest.mark.parametrize("hidden", [(), 64, [64], (0,), (64, 1.5), (True,), "64"])
def test_invalid_widths_are_refused(hidden):
    with pytest.raises(ConfigurationError, match=r"hidden: got .*Write hidden=\(64,\), or Logistic\(\)"):
        Mlp(hidden=hidden)


@pytest.mark.parametrize("dropout", [-0.1, 1.1, float("nan"), "0.5"])
def test_invalid_dropout_is_refused(dropout):
    with pytest.raises(ConfigurationError, match=r"dropout: got .*a probability"):
        Mlp(dropout=dropout)


def test_dropout_of_one_is_refused():
    with pytest.raises(ConfigurationError, match=r"dropout: got 1\.0, needed a probability below 1"):
        Mlp(dropout=1.0)
