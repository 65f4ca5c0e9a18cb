"""Validation of inputs of `Shards`."""

import numpy as np
import pytest
import torch

from turnout.core.checks import DataError
from turnout.data.shards import Shards


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_inputs_are_refused_with_the_first_example(value: float) -> None:
    x = torch.zeros(6, 2, 3)
    x[4, 1, 2] = value
    with pytest.raises(DataError, match="inputs hold NaN or infinity, first in example 4: clean or impute them"):
        Shards(x, torch.zeros(6, dtype=torch.int64), np.array([0, 2, 6]))


@pytest.mark.parametrize("x", [torch.full((6, 2), 3e38), torch.full((6, 2), 2**62), torch.zeros(6, 0)])
def test_large_integer_and_empty_inputs_are_accepted(x: torch.Tensor) -> None:
    assert Shards(x, torch.zeros(6, dtype=torch.int64), np.array([0, 2, 6])).num_clients == 2
