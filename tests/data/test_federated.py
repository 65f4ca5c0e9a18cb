"""Validation of inputs of `Shards`."""

from typing import Any

import numpy as np
import pytest
import torch

from turnout.core.checks import ConfigurationError, DataError
from turnout.data.federated import FederatedData
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


def of_clients(number: int) -> Shards:
    return Shards(torch.zeros(2 * number, 1), torch.zeros(2 * number, dtype=torch.int64), 2 * np.arange(number + 1))


def toy(**splits: Any) -> FederatedData:
    return FederatedData("toy", of_clients(3), **splits)


@pytest.mark.parametrize("split", ["client_test", "validation", "unseen_test"])
@pytest.mark.parametrize("number", [2, 4])
def test_splits_of_other_clients_are_refused(split: str, number: int) -> None:
    """A generator that leaves out a client without tests would give the others those of the next."""
    of = "unseen_train" if split == "unseen_test" else "train"
    unseen = {"unseen_train": of_clients(3)} if of == "unseen_train" else {}
    with pytest.raises(
        DataError, match=f"{split} has {number} clients, and {of} 3 clients: give the same clients in the same"
    ):
        toy(**unseen, **{split: of_clients(number)})
    assert toy(**unseen, **{split: of_clients(3)}).num_clients == 3


def test_data_without_clients_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="the data have no clients: train needs the examples of at least one"):
        FederatedData("toy", of_clients(0))


@pytest.mark.parametrize(
    ("labels", "offsets", "message"),
    [
        (6, [0, 4, 2, 6], "offsets must ascend, and client 1 would have -2 examples"),
        (6, [0, 4], "offsets must run from 0 to the number of examples, 6"),
        (6, [], "offsets must run from 0 to the number of examples, 6"),
        (5, [0, 6], "inputs and targets differ in number: 6 inputs, 5 targets"),
    ],
)
def test_shards_that_do_not_fit_their_examples_are_refused(labels: int, offsets: list[int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Shards(torch.zeros(6, 1), torch.zeros(labels, dtype=torch.int64), np.array(offsets))


@pytest.mark.parametrize(("names", "different"), [("ab", 2), ("aba", 2), ("abcd", 4)])
def test_names_of_other_clients_are_refused(names: str, different: int) -> None:
    message = (
        f"client_names: got {len(names)} names, {different} of them different, needed a name for each of 3 clients"
    )
    with pytest.raises(DataError, match=message):
        FederatedData("toy", of_clients(3), client_names=tuple(names))
