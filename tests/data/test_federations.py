"""Federations of Flower Datasets and pfl-research, as stubs and, if installed, as the packages."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import turnout as to
from turnout.core.checks import ConfigurationError, DataError
from turnout.data import from_flower, from_pfl


class Split:
    """The used interface of a `datasets.Dataset`."""

    def __init__(self, **columns):
        self.columns, self.column_names, self.features = columns, list(columns), {}

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, column):
        return self.columns[column]


class Partitioner:
    num_partitions = 3

    def load_partition(self, i):
        return Split(image=[[float(i), 0.0]] * (i + 1), label=[i % 2] * (i + 1), input_ids=[[i, 1, 2]] * (i + 1))


class Federation(Partitioner):
    def __init__(self):
        self.partitioners = {"train": self}

    def load_partition(self, i, split="train"):
        assert split == "train"
        return super().load_partition(i)

    def load_split(self, split):
        assert split == "test"
        return Split(image=[[9.0, 9.0]], label=[1], input_ids=[[5, 6, 7, 8]])


@pytest.mark.parametrize("federation", [Partitioner(), Federation()], ids=["partitioner", "federation"])
def test_flower_partitions_become_clients(federation):
    source = from_flower(federation)
    assert source.x.tolist() == [[0, 0], [1, 0], [1, 0], [2, 0], [2, 0], [2, 0]]
    assert source.client_ids is not None
    assert source.client_ids.tolist() == [0, 1, 1, 2, 2, 2]
    assert source.split(test_fraction=0.0).train.sizes.tolist() == [1, 2, 3]


def test_unpartitioned_flower_split_is_the_test_set():
    source = from_flower(Federation(), test="test")
    data = source.split()
    assert data.test is not None
    assert data.test.x.tolist() == [[9, 9]]
    assert data.client_test is None


def test_flower_texts_become_tokens():
    source = from_flower(Federation(), input="input_ids", label=None, test="test")
    assert source.test_y is not None
    assert (source.x[0].tolist(), source.test_y.tolist()) == ([0, 1, -100], [[6, 7, 8]])
    assert source.split().num_clients == 3


@pytest.mark.parametrize(
    ("federation", "options", "message"),
    [
        (object(), {}, r"no load_partition: .*pip install flwr-datasets"),
        (Federation(), {"split": "valid"}, "split: got 'valid', and the partitioned splits are 'train'"),
        (Partitioner(), {"test": "test"}, "a partitioner has one split"),
        (Partitioner(), {"label": None}, "label: got None"),
        (Partitioner(), {"input": "img"}, "unknown column 'img': did you mean 'image'"),
    ],
)
def test_invalid_flower_federation_is_refused(federation, options, message):
    with pytest.raises(ConfigurationError, match=message):
        from_flower(federation, **options)


def users(**changes):
    data = {"ann": (np.ones((3, 2), np.float32), [0, 1, 1]), "bob": (np.zeros((1, 2), np.float32), [2])} | changes
    return SimpleNamespace(make_dataset_fn=lambda user: SimpleNamespace(raw_data=data[user]))


def test_pfl_users_become_clients():
    source = from_pfl(users(), ["bob", "ann"])
    assert (source.x.shape, source.y.tolist(), source.num_classes) == ((4, 2), [2, 0, 1, 1], 3)
    assert source.split(test_fraction=0.0).client_names == ("ann", "bob")


@pytest.mark.parametrize(
    ("federation", "ids", "error", "message"),
    [
        (object(), ["ann"], ConfigurationError, r"object has no make_dataset_fn: .*pip install pfl"),
        (users(), [], ConfigurationError, "user_ids: got none"),
        (users(bob=([[1.0, 2.0]],)), ["bob"], DataError, "user 'bob': raw_data is no pair"),
        (users(bob=([[1.0, 2.0]], [0, 1])), ["bob"], DataError, "user 'bob': raw_data is no pair"),
        (users(bob=([[1.0]], [0])), ["ann", "bob"], DataError, "the users' data differ in shape"),
    ],
)
def test_invalid_pfl_federation_is_refused(federation, ids, error, message):
    with pytest.raises(error, match=message):
        from_pfl(federation, ids)


def test_installed_flower_datasets_load():
    partitioner = pytest.importorskip("flwr_datasets.partitioner", reason="pip install flwr-datasets")
    datasets = pytest.importorskip("datasets")
    part = partitioner.NaturalIdPartitioner(partition_by="who")
    part.dataset = datasets.Dataset.from_dict(
        {"x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "label": [0, 1, 0], "who": ["b", "a", "b"]}
    )
    source = from_flower(part, input="x")
    sizes = source.split(test_fraction=0.0).train.sizes
    assert sorted(sizes.tolist()) == [1, 2]
    assert torch.equal(source.x.sum(dim=0), torch.tensor([9.0, 12.0]))


def test_installed_pfl_research_loads():
    data = pytest.importorskip("pfl.data.federated_dataset", reason="pip install pfl")
    given = {user: (np.full((user + 1, 2), user, np.float32), np.zeros(user + 1, np.int64)) for user in range(3)}
    federation = data.FederatedDataset.from_slices(given, iter(range(3)).__next__)
    source = from_pfl(federation, range(3))
    assert source.split(test_fraction=0.0).train.sizes.tolist() == [1, 2, 3]
    to.Experiment(data=source.split(test_fraction=0.0), model=to.models.Logistic(), rounds=1).run()
