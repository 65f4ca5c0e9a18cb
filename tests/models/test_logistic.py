"""Logistic regression."""

import pytest
import torch

from turnout.core.checks import ConfigurationError
from turnout.models import Logistic


def test_affine_map_of_the_flattened_input():
    module = Logistic().build((2, 3), 4)
    weight, bias = module.get_parameter("output.weight"), module.get_parameter("output.bias")
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(module(x), x.reshape(5, 6) @ weight.T + bias)


def test_number_of_parameters():
    assert sum(p.numel() for p in Logistic().build((1, 28, 28), 10).parameters()) == 7850


def test_zero_starts_from_zero():
    assert all((p == 0).all() for p in Logistic(zero=True).build((6,), 3).parameters())
    assert all((p != 0).any() for p in Logistic().build((6,), 3).parameters())


def test_zero_must_be_a_boolean():
    with pytest.raises(ConfigurationError, match="zero: got 'no', needed True or False"):
        Logistic(zero="no")  # type: ignore[arg-type]
