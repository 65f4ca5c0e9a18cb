"""Validation of sources."""

import numpy as np
import pytest
import torch

from turnout.core.checks import ConfigurationError, DataError
from turnout.data.source import Source


def source(**changes) -> Source:
    values = {"name": "toy", "x": torch.rand(6, 2), "y": torch.tensor([0, 1, 2, 0, 1, 2]), "num_classes": 3}
    return Source(**{**values, **changes})


def test_valid_source_keeps_its_arguments():
    ids = np.array([0, 0, 1, 1, 1, 0])
    made = source(client_ids=ids, client_names=("a", "b"), test_x=torch.rand(2, 2), test_y=torch.tensor([0, 2]))
    assert made.client_ids is ids
    assert made.test_client_ids is None


def test_finite_numbers_with_overflowing_sums_are_accepted():
    source(x=torch.full((6, 2), 3e38))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("part", ["training", "test"])
def test_non_finite_numbers_are_refused_with_their_example(value, part):
    x = torch.zeros(6, 2)
    x[4, 1] = value
    changes = {"x": x} if part == "training" else {"test_x": x, "test_y": torch.zeros(6, dtype=torch.int64)}
    with pytest.raises(DataError, match=f"{part} inputs hold NaN or infinity, first in example 4"):
        source(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": torch.tensor([0, 1, 2, 3, 1, 2])}, "labels run from 0 to 3, but num_classes=3 needs 0 to 2"),
        ({"y": torch.tensor([0, 1, 2, -1, 1, 2])}, "labels run from -1 to 2"),
        ({"y": torch.zeros(6, dtype=torch.int32)}, r"labels must be int64 of shape \[n\], .* got torch.int32 \[6\]"),
        ({"y": torch.zeros(6, 1, dtype=torch.int64)}, r"got torch.int64 \[6, 1\]"),
        ({"y": torch.zeros(5, dtype=torch.int64)}, "6 training inputs but 5 training targets"),
        ({"x": torch.empty(0, 2), "y": torch.empty(0, dtype=torch.int64)}, "there are no training examples"),
        ({"test_x": torch.zeros(2, 2)}, "test_x and test_y belong together"),
        (
            {"test_x": torch.zeros(2, 3), "test_y": torch.zeros(2, dtype=torch.int64)},
            r"test examples have shape \[3\] and torch.float32, training examples \[2\]",
        ),
        (
            {"test_x": torch.zeros(2, 2), "test_y": torch.tensor([0, 7])},
            "test labels run from 0 to 7, but num_classes=3",
        ),
        ({"client_ids": np.zeros(5, dtype=np.int64)}, r"client_ids must be int64 of shape \[6\], got int64 \[5\]"),
        ({"client_ids": np.zeros(6)}, r"client_ids must be int64 of shape \[6\], got float64"),
        ({"client_ids": np.array([0, 0, 0, 0, 0, -1])}, "client_ids run from -1 to 0, needed 0 upwards"),
        (
            {"client_ids": np.array([0, 1, 2, 0, 1, 2]), "client_names": ("a", "b")},
            "client_ids run from 0 to 2, needed 0 to 1, one per client name",
        ),
        ({"test_client_ids": np.zeros(2, dtype=np.int64)}, "test_client_ids were given without test examples"),
    ],
)
def test_invalid_data_are_refused(changes, message):
    with pytest.raises(DataError, match=message):
        source(**changes)


def test_num_classes_must_be_an_integer():
    with pytest.raises(ConfigurationError, match="num_classes: got 0, needed a whole number >= 1"):
        source(num_classes=0)


def test_pooled_examples_append_the_official_test():
    ids, test_ids = np.array([0, 0, 1, 1, 1, 0]), np.array([2, 0])
    test_x, test_y = torch.rand(2, 2), torch.tensor([0, 2])
    made = source(test_x=test_x, test_y=test_y, client_ids=ids, test_client_ids=test_ids, client_names=("a", "b", "c"))
    pooled = made.pooled()
    assert torch.equal(pooled.x, torch.cat([made.x, test_x]))
    assert pooled.y.tolist() == [0, 1, 2, 0, 1, 2, 0, 2]
    assert pooled.client_ids is not None
    assert pooled.client_ids.tolist() == [0, 0, 1, 1, 1, 0, 2, 0]
    assert pooled.client_names == ("a", "b", "c")
    assert (pooled.test_x, pooled.test_y, pooled.test_client_ids) == (None, None, None)
    assert pooled.recipe == {"official_test": "pool"}


def test_pooled_examples_have_clients_only_if_all_have():
    made = source(
        client_ids=np.arange(6), client_names=tuple("abcdef"), test_x=torch.rand(1, 2), test_y=torch.tensor([0])
    )
    assert (made.pooled().client_ids, made.pooled().client_names) == (None, None)


def test_pooled_examples_have_weights_only_if_all_have():
    made = source(weights=torch.full((6,), 9.0), test_x=torch.rand(1, 2), test_y=torch.tensor([0]))
    with pytest.raises(
        ConfigurationError, match="toy: weights without test_weights: give those of the test examples too"
    ):
        made.pooled()


def test_pooling_without_official_test_returns_the_training_data():
    with pytest.raises(ConfigurationError, match="toy has no official test split whose examples could join the others"):
        source().pooled()


def test_sources_and_shards_print_their_sizes_in_a_line() -> None:
    x, y = torch.zeros(6, 2, 2), torch.tensor([0, 1, 2, 0, 1, 2])
    source = Source("mine", x, y, test_x=x[:1], test_y=y[:1], client_ids=np.array([0, 0, 1, 1, 1, 1]))
    assert repr(source) == "Source('mine', 6 examples of shape [2, 2], 3 classes, 1 test example, 2 natural clients)"
    assert (
        str(Source("numbers", x, torch.rand(6))) == "Source('numbers', 6 examples of shape [2, 2], numbers to predict)"
    )
    assert "natural clients</th>" in source._repr_html_()
    assert repr(source.split().train) == "Shards(2 clients, 6 examples of shape [2, 2])"
