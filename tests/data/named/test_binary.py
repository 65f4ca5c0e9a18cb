"""Binary digits, grouped by digit."""

import numpy as np
import pytest

from turnout import ConfigurationError, data
from turnout.data.named.mnist_clients import digits_binary, in_two_classes
from turnout.data.partition import ById, Iid
from turnout.data.source import load

from .test_idx import write

pytest.importorskip("sklearn")


def test_classes_are_halves_of_the_digits_sorted_by_digit():
    source, digits = digits_binary(), data.digits()
    assert source.num_classes == 2
    assert source.y.tolist() == (digits.y >= 5).long().tolist()
    assert source.client_ids is not None
    owner = source.client_ids
    assert np.bincount(owner).tolist() == [180, 180, 180, 179, 180, 180, 179, 180, 180, 179]
    for k in range(9):  # nobody's largest digit is above the next one's smallest
        assert digits.y[owner == k].max() <= digits.y[owner == k + 1].min()
    assert sorted(np.unique(digits.y[owner == 0])) == [0, 1]


def test_supports_group_and_other_partitions():
    federated = digits_binary(groups=4).split(ById(), test_fraction=0.0)
    assert federated.num_clients == 4
    assert federated.label_counts()[0, 1] == 0  # the lowest quarter
    mixed = digits_binary().split(Iid(), num_clients=10, test_fraction=0.0)
    assert (mixed.label_counts() > 50).all()


def test_subset_of_examples_is_evenly_spaced():
    source = in_two_classes(data.digits(), groups=5, examples=100)
    assert len(source.y) == 100
    assert source.client_ids is not None
    assert np.bincount(source.client_ids).tolist() == [20] * 5
    assert len(in_two_classes(data.digits(), groups=5, examples=10_000).y) == 1797


def test_mnist_is_grouped_like_digits(tmp_path):
    for part, n in (("train", 30), ("t10k", 4)):
        write(tmp_path / f"{part}-images-idx3-ubyte.gz", np.full((n, 28, 28), 51, dtype=np.uint8))
        write(tmp_path / f"{part}-labels-idx1-ubyte.gz", np.arange(n, dtype=np.uint8) % 10)
    source = load("mnist_binary", tmp_path, groups=2, examples=20)
    assert source.x.shape == (20, 1, 28, 28)
    assert source.x.unique().tolist() == pytest.approx([0.2])
    assert source.transforms == ()
    assert source.test_y is not None
    assert set(source.test_y.tolist()) <= {0, 1}
    assert source.name == "mnist_binary"


@pytest.mark.parametrize(
    ("options", "message"),
    [({"groups": 0}, "groups: got 0"), ({"groups": 1798}, "groups: got 1798, needed at most one for each of 1797")],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        digits_binary(**options)


def test_invalid_number_of_examples_is_refused():
    with pytest.raises(ConfigurationError, match="examples: got 0"):
        in_two_classes(data.digits(), groups=2, examples=0)
