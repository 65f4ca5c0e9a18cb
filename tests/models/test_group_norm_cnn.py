"""The CNN with group normalization."""

import pytest
import torch

from turnout.core.checks import ConfigurationError
from turnout.engine.loss import cross_entropy
from turnout.engine.objective import Objective
from turnout.models import GroupNormCnn, model


@pytest.mark.parametrize(
    ("made", "shape", "parameters"),
    [(GroupNormCnn(), (1, 28, 28), 468_458), (GroupNormCnn.cifar10(), (3, 32, 32), 551_722)],
)
def test_parameter_counts_equal_those_of_the_paper(made, shape, parameters):
    module = made.build(shape, 10)
    assert sum(p.numel() for p in module.parameters()) == parameters
    assert module(torch.rand(2, *shape)).shape == (2, 10)
    norms = [layer for layer in module if isinstance(layer, torch.nn.GroupNorm)]
    assert all(layer.num_channels == 4 * layer.num_groups for layer in norms)
    assert [type(layer).__name__ for layer in module][:3] == ["Conv2d", "ReLU", "GroupNorm"]


def test_vectorized_gradients_equal_those_one_by_one():
    made = GroupNormCnn(channels=(4, 8), hidden=8)
    x, y = torch.rand(3, 5, 1, 8, 8).double(), torch.arange(15).reshape(3, 5) % 4
    keys = torch.tensor([5, 6, 7])
    found = []
    for engine in ("vectorized", "one_by_one"):
        objective = Objective(made.build((1, 8, 8), 4).double(), cross_entropy, engine, torch.device("cpu"))
        params = objective.initial.expand(3, -1).contiguous()
        found.append(objective.gradient(params, x, y, None, keys))
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": (30, 64)}, "channels and hidden: got .* needed multiples of 4"),
        ({"channels": ()}, r"channels: got \(\), .* Write the channels of each block: \(32, 64\)"),
        ({"dropout": (0.3,)}, "dropout: got .* one for each block"),
        ({"dropout": (0.3, 1.0)}, "dropout: got 1.0"),
        ({"hidden_dropout": 1.0}, "hidden_dropout: got 1.0"),
        ({"hidden": 0}, "hidden: got 0"),
    ],
)
def test_invalid_arguments_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        GroupNormCnn(**options)


def test_non_image_inputs_are_refused():
    with pytest.raises(ConfigurationError, match="input_shape of GroupNormCnn"):
        model("group_norm_cnn").build((64,), 10)
