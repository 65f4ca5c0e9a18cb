"""Data sets from arrays and data sets of torch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from turnout.core.checks import ConfigurationError, DataError
from turnout.data.arrays import from_arrays, from_dataset
from turnout.data.partition import Iid
from turnout.data.values import number_clients

ids = st.lists(st.integers(-50, 50), min_size=1, max_size=30)


@given(train=ids, test=ids, text=st.booleans())
def test_client_numbering_preserves_identities(train, test, text):
    if text:
        train, test = [f"client {i}" for i in train], [f"client {i}" for i in test]
    numbers, test_numbers, names = number_clients(train, test)
    assert test_numbers is not None
    assert [names[k] for k in numbers] == list(map(str, train))
    assert [names[k] for k in test_numbers] == list(map(str, test))
    assert names[: len(set(train))] == tuple(map(str, sorted(set(train))))  # those that train come first
    assert len(set(names)) == len(names) == len(set(train) | set(test))


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor, list])
def test_arrays_tensors_and_lists_give_the_same_source(kind):
    x, y = [[0.5, 1.0], [2.0, 3.0], [4.0, 5.0]], [2, 0, 1]
    source = from_arrays(kind(x), kind(y), client_ids=kind([7, 3, 7]), test_x=kind(x[:1]), test_y=kind([4]))
    assert source.x.dtype == (
        torch.float64 if kind is np.asarray else torch.float32
    )  # a list of numbers is as in torch
    assert source.x.tolist() == x
    assert source.y.tolist() == y
    assert source.num_classes == 5
    assert source.client_ids is not None
    assert source.client_ids.tolist() == [1, 0, 1]
    assert source.client_names == ("3", "7")


def test_integer_inputs_keep_their_dtype():
    assert from_arrays(np.zeros((2, 3), np.uint8), [0, 1]).x.dtype == torch.uint8
    assert from_arrays(np.zeros((2, 3), np.int64), [0, 1]).x.dtype == torch.int64
    assert from_arrays(np.zeros((2, 3), bool), [0, 1]).x.dtype == torch.float32


def test_read_only_and_reversed_arrays_are_copied():
    x = np.arange(6.0).reshape(3, 2)[::-1]
    frozen = np.arange(3)
    frozen.flags.writeable = False
    source = from_arrays(x, frozen)
    assert source.x.tolist() == [[4, 5], [2, 3], [0, 1]]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["cat", "dog"], "targets must be numbers, got <U3: turn texts into indices first: names, y = numpy.unique"),
        ([1, -1], r"labels run from -1 to 1, but classes are numbered from 0: write y - \(-1\), leave out"),
        ([0], "2 training inputs but 1 training targets"),
        ([0.5, float("nan")], "training targets hold NaN or infinity, first in example 1"),
        ([[1.0], [1.0, 2.0]], "targets differ in length from example to example"),
        (torch.tensor([1j, 2j]), "targets must be real numbers, got torch.complex64"),
    ],
)
def test_invalid_targets_are_refused(y, message):
    with pytest.raises(DataError, match=message):
        from_arrays(np.zeros((2, 3)), y)


def test_labels_beyond_the_number_of_classes_are_refused():
    with pytest.raises(DataError, match="labels run from 0 to 3, but num_classes=3 needs 0 to 2"):
        from_arrays(np.zeros((2, 3)), [0, 3], num_classes=3)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floating_dtypes_are_kept(kind):
    source = from_arrays(torch.rand(4, 2, dtype=kind), torch.rand(4, dtype=kind), test_x=torch.rand(1, 2, dtype=kind),
                         test_y=torch.rand(1, dtype=kind))  # fmt: skip
    data = source.split(Iid(), 2)
    assert data.test is not None
    assert {values.dtype for part in (data.train, data.test) for values in (part.x, part.y)} == {kind}
    assert (source.num_classes, data.num_outputs, data.has_labels) == (None, 1, False)


def test_untyped_targets_take_the_dtype_of_inputs():
    third = 1 / 3
    assert from_arrays(np.zeros((1, 2)), [third]).y.item() == third
    assert from_arrays(np.zeros((1, 2), np.float32), [third]).y.dtype == torch.float32
    assert from_dataset([(np.zeros(2), third)]).y.item() == third


def test_num_classes_with_numeric_targets_is_refused():
    with pytest.raises(
        ConfigurationError, match="num_classes: got 1, needed None, because the targets are floating-point"
    ):
        from_arrays(np.zeros((2, 3)), [0.5, 1.5], num_classes=1)


def test_test_targets_must_have_the_form_of_training_targets():
    with pytest.raises(
        DataError, match=r"test targets are torch.float32 of shape \[2\] for each example, training targets"
    ):
        from_arrays([[0.0]], [0.5], test_x=[[0.0]], test_y=[[0.5, 1.0]])


def test_column_of_labels_becomes_a_vector():
    assert from_arrays(np.zeros((3, 2)), np.array([[1], [0], [2]])).y.tolist() == [1, 0, 2]


def test_nan_is_refused():
    with pytest.raises(DataError, match="NaN or infinity, first in example 1"):
        from_arrays([[0.0], [float("nan")]], [0, 1])


@pytest.mark.parametrize("client_ids", [[0.5, 1.0], [[0, 1], [1, 0]]])
def test_client_ids_are_integers_or_strings(client_ids):
    with pytest.raises(
        DataError, match=r"client_ids (are float64, needed whole|must be whole numbers or strings of shape \[n\])"
    ):
        from_arrays(np.zeros((2, 3)), [0, 1], client_ids=client_ids)


def test_test_clients_require_training_clients():
    with pytest.raises(ConfigurationError, match="test_client_ids need client_ids: say which client holds each"):
        from_arrays([[0.0]], [0], test_x=[[1.0]], test_y=[0], test_client_ids=["a"])


class Squares(Dataset):
    """Example i is ([i, i * i], i % 3)."""

    def __init__(self, n: int):
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int):
        return torch.tensor([float(i), float(i * i)]), i % 3


def test_dataset_is_read_in_order():
    source = from_dataset(Squares(5), client_id=lambda i: f"owner {i % 2}", test=Squares(4))
    assert source.x.tolist() == [[0, 0], [1, 1], [2, 4], [3, 9], [4, 16]]
    assert source.y.tolist() == [0, 1, 2, 0, 1]
    assert source.client_ids is not None
    assert source.client_ids.tolist() == [0, 1, 0, 1, 0]
    assert source.client_names == ("owner 0", "owner 1")
    assert source.test_x is not None
    assert len(source.test_x) == 4
    assert from_dataset(Squares(3), client_id=["b", "a", "b"]).client_names == ("a", "b")


@pytest.mark.parametrize("kind", [float, np.float32, np.float64, torch.tensor], ids=lambda kind: kind.__name__)
def test_numeric_targets_of_a_dataset_are_not_classes(kind):
    pairs = [(torch.zeros(2), kind(value)) for value in (0.25, 0.75, 1.5)]
    source = from_dataset(pairs)
    assert source.y.tolist() == [0.25, 0.75, 1.5]
    assert source.num_classes is None


def test_several_numeric_targets_per_example():
    source = from_dataset([(torch.zeros(2), [0.5, -1.0, 2.0]), (torch.zeros(2), [1.5, 0.0, 0.0])])
    assert source.y.tolist() == [[0.5, -1.0, 2.0], [1.5, 0.0, 0.0]]
    assert source.split(Iid(), 2, test_fraction=0).num_outputs == 3


def test_tensor_dataset_is_used_without_copy():
    x, y = torch.rand(4, 2), torch.tensor([0, 1, 1, 0])
    assert from_dataset(TensorDataset(x, y)).x.data_ptr() == x.data_ptr()


def test_examples_of_a_subclass_are_those_that_it_returns():
    class Halved(TensorDataset):
        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return x / 2, 1 - y

    source = from_dataset(Halved(torch.tensor([[2.0], [4.0]]), torch.tensor([0, 1])))
    assert (source.x.tolist(), source.y.tolist()) == ([[1.0], [2.0]], [1, 0])


def test_pil_images_become_scaled_channels():
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    color = from_dataset([(image.fromarray(pixels), 0)])
    assert torch.equal((color.x[0] * 255).round().to(torch.uint8), torch.from_numpy(pixels).permute(2, 0, 1))
    gray = from_dataset([(image.fromarray(pixels[:, :, 0].copy()), 0)])
    assert gray.x.shape == (1, 1, 2, 4)


def test_example_of_different_shape_is_refused_with_its_index():
    with pytest.raises(DataError, match=r"example 2 has shape \[3\] and torch.float32, example 0 has \[2\]"):
        from_dataset([(torch.zeros(2), 0), (torch.zeros(2), 0), (torch.zeros(3), 0)])


class Stream(IterableDataset):
    def __iter__(self):
        yield torch.zeros(2), 0


def test_iterable_dataset_is_refused():
    with pytest.raises(ConfigurationError, match="Stream has no length or cannot be indexed"):
        from_dataset(Stream())


@pytest.mark.parametrize(
    ("example", "given"), [(torch.zeros(2), "a Tensor"), ((1, 2, 3), "a tuple of 3"), ({"x": 1}, "a dict of x")]
)
def test_examples_must_be_pairs(example, given):
    with pytest.raises(
        ConfigurationError, match=f"example 0 of the dataset is {given}, needed an .input, target. pair"
    ):
        from_dataset([example])
