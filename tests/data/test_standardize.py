"""Standardization of inputs."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.core.checks import ConfigurationError, DataError
from turnout.data.arrays import from_arrays
from turnout.data.source import Source, standardized
from turnout.data.transforms import Normalize


def of(x: np.ndarray, test: int = 0) -> Source:
    y, n = np.zeros(len(x), dtype=np.int64), len(x) - test
    return from_arrays(x[:n], y[:n], test_x=x[n:] if test else None, test_y=y[n:] if test else None, num_classes=1)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(2, 30), test=st.integers(0, 1), seed=st.integers(0, 99), epsilon=st.sampled_from([0.001, 0.5]))
def test_each_feature_uses_its_own_mean_and_deviation(n: int, test: int, seed: int, epsilon: float) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.normal(3, 2, (4, 2)) + rng.normal(size=(n, 4, 2)) * rng.uniform(0, 5, (4, 2))).astype(np.float32)
    source = standardized(of(x, test), epsilon)
    exact = x.astype(np.float64)
    expected = (exact - exact.mean(axis=0)) / (exact.std(axis=0) + epsilon)
    ours = source.x if source.test_x is None else torch.cat([source.x, source.test_x])
    np.testing.assert_allclose(ours.numpy(), expected, atol=2e-4)


def test_constant_features_become_zero_and_the_source_is_unchanged() -> None:
    x = torch.tensor([[0.0, 7.0], [2.0, 7.0]])
    source = from_arrays(x, [0, 1])
    assert standardized(source, epsilon=1e-9).x.tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert source.x.tolist() == [[0.0, 7.0], [2.0, 7.0]]


def test_transforms_for_the_previous_scale_are_removed() -> None:
    source = Source(
        "toy", torch.rand(4, 1, 2, 2), torch.zeros(4, dtype=torch.int64), 1, transforms=(Normalize(0.1, 0.3),)
    )
    made = standardized(source)
    assert made.transforms == ()
    assert made.recipe == {"standardize": True}


def test_rare_pixel_keeps_its_precision() -> None:
    x = np.zeros((50_000, 1), dtype=np.float32)
    x[0] = 1.0
    made = standardized(of(x), epsilon=0.001)
    deviation = np.sqrt(2e-5 * (1 - 2e-5))
    assert made.x[0].item() == pytest.approx((1 - 2e-5) / (deviation + 0.001), rel=1e-5)


def test_unsupported_inputs_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"epsilon: got 0\.0, needed a finite number > 0"):
        standardized(from_arrays([[1.0]], [0]), 0.0)
    with pytest.raises(
        DataError, match=r"arrays: inputs of type torch\.int64 cannot be standardized: make them floats"
    ):
        standardized(from_arrays([[1]], [0]))
