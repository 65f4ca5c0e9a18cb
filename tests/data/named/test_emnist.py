"""EMNIST."""

import numpy as np
import pytest
import torch

from turnout.core.checks import ConfigurationError, DataError
from turnout.data.directory import REMOTE
from turnout.data.named.idx import MNIST, SPLITS, emnist, files_of, read_idx
from turnout.data.partition import Iid
from turnout.data.source import inventory, load
from turnout.data.transforms import Normalize

from .test_idx import write


@pytest.fixture
def make(tmp_path):
    """Write a split of one image for each class in training, and three for the test, and return the images of both."""

    def split_of(split, first=0):
        folder = tmp_path / "EMNIST" / "raw"
        folder.mkdir(parents=True, exist_ok=True)
        rng, written = np.random.default_rng(0), []
        names = files_of(split)
        for images, labels, n in ((names[0], names[1], SPLITS[split]), (names[2], names[3], 3)):
            pixels = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
            write(folder / images, pixels)
            write(folder / labels, np.arange(first, first + n, dtype=np.uint8))
            written.append(pixels)
        return written

    return split_of


@pytest.mark.parametrize("split", SPLITS)
def test_images_are_upright_and_labels_start_at_zero(make, tmp_path, split):
    train, test = make(split, first=int(split == "letters"))
    source = emnist(tmp_path, split=split)
    assert source.num_classes == SPLITS[split]
    assert source.y.tolist() == list(range(SPLITS[split]))
    assert source.test_x is not None
    assert source.test_y is not None
    assert source.test_y.tolist() == [0, 1, 2]
    for ours, written in ((source.x, train), (source.test_x, test)):
        assert torch.equal(ours[:, 0], torch.from_numpy(written.transpose(0, 2, 1).copy()))
    assert source.recipe == {"source": "emnist", "split": split}


def test_pixels_are_normalized_by_training_images(make, tmp_path):
    train, _ = make("balanced")
    (normalize,) = emnist(tmp_path, split="balanced").transforms
    assert isinstance(normalize, Normalize)
    assert normalize.mean == (pytest.approx((train / 255).mean(), abs=5e-5),)
    assert normalize.std == (pytest.approx((train / 255).std(), abs=5e-5),)


def test_partitions_into_clients(make, tmp_path):
    make("byclass")
    source = load("emnist", tmp_path)
    data = source.split(Iid(), num_clients=2, official_test="pool", test_fraction=0, client_test_fraction=0.4)
    assert data.train.x.dtype == torch.uint8
    assert data.num_classes == 62


def test_files_are_found_by_split(make, tmp_path):
    make("letters", first=1)
    with pytest.raises(DataError, match=r"emnist: no folder holds emnist-byclass-.*`turnout data fetch emnist`"):
        emnist(tmp_path)
    assert emnist(tmp_path / "EMNIST" / "raw", split="letters").num_classes == 26
    assert {entry.name: entry.path for entry in inventory(tmp_path)}["emnist"] is None
    make("byclass")
    assert {entry.name: entry.path for entry in inventory(tmp_path)}["emnist"] == tmp_path / "EMNIST" / "raw"


def test_labels_of_another_split_are_refused(make, tmp_path):
    make("letters", first=0)
    with pytest.raises(DataError, match=r"found the label 0, expected labels from 1 to 26.*turnout data fetch emnist"):
        emnist(tmp_path, split="letters")
    with pytest.raises(ConfigurationError, match="unknown split 'byklass': did you mean 'byclass'"):
        emnist(tmp_path, split="byklass")  # type: ignore[arg-type]


def test_every_split_comes_with_the_archive():
    (archive,) = REMOTE["emnist"]
    assert [path for path, _ in archive.members] == [
        f"EMNIST/raw/{name}" for split in SPLITS for name in files_of(split)
    ]


def test_stored_images_are_transposed(make, tmp_path):
    make("mnist")
    raw = read_idx(tmp_path / "EMNIST" / "raw" / files_of("mnist")[0], MNIST, ndim=3)
    assert emnist(tmp_path, split="mnist").x[4, 0, 2, 20] == raw[4, 20, 2]
