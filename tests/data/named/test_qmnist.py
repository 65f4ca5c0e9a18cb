"""MNIST by writer."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from turnout.core.checks import DataError
from turnout.data.named.idx import MNIST, mnist
from turnout.data.named.mnist_clients import QMNIST, mnist_by_writer

LABELS, TEST_LABELS = [3, 1, 4, 1, 5], [9, 2]
WRITERS, TEST_WRITERS = [40, 7, 40, 7, 7], [100, 2]


def write(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    code = 0x0C if array.dtype == np.int32 else 0x08
    header = bytes([0, 0, code, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    path.write_bytes(gzip.compress(header + array.astype(array.dtype.newbyteorder(">")).tobytes()))


def rows(labels: list[int], writers: list[int]) -> np.ndarray:
    table = np.zeros((len(labels), 8), dtype=np.int32)
    table[:, 0], table[:, 2] = labels, writers
    return table


@pytest.fixture
def directory(tmp_path):
    for part, labels in (("train", LABELS), ("t10k", TEST_LABELS)):
        pixels = np.zeros((len(labels), 28, 28), dtype=np.uint8)
        write(tmp_path / f"MNIST/raw/{part}-images-idx3-ubyte.gz", pixels)
        write(tmp_path / f"MNIST/raw/{part}-labels-idx1-ubyte.gz", np.array(labels, dtype=np.uint8))
    write(tmp_path / "QMNIST/raw" / QMNIST.files[0], rows(LABELS, WRITERS))
    # As in the real file, rows go on after the images of MNIST end.
    write(tmp_path / "QMNIST/raw" / QMNIST.files[1], rows([*TEST_LABELS, 8], [*TEST_WRITERS, 55]))
    return tmp_path


def test_training_writers_are_numbered_before_test_writers(directory):
    source = mnist_by_writer(directory)
    assert source.client_names == ("7", "40", "2", "100")
    assert source.client_ids is not None
    assert source.test_client_ids is not None
    assert source.client_ids.tolist() == [1, 0, 1, 0, 0]
    assert source.test_client_ids.tolist() == [3, 2]


def test_mismatched_rows_are_refused(directory):
    write(directory / "QMNIST/raw" / QMNIST.files[0], rows([3, 1, 4, 2, 6], WRITERS))
    with pytest.raises(DataError, match=r"found class 2 in row 3 \(2 rows differ\), expected 1, the MNIST label"):
        mnist_by_writer(directory)


def test_too_few_rows_are_refused(directory):
    write(directory / "QMNIST/raw" / QMNIST.files[0], rows(LABELS, WRITERS)[:4])
    with pytest.raises(DataError, match=r"found a table of shape \[4, 8\], expected at least \[5, 8\].*qmnist --force"):
        mnist_by_writer(directory)


def test_pixels_can_be_standardized(directory):
    source = mnist_by_writer(directory, standardize=True)
    assert torch.equal(source.x, mnist(directory, standardize=True).x)
    assert source.recipe == {"source": "mnist_by_writer", "standardize": True}
    assert source.client_names == mnist_by_writer(directory).client_names


@pytest.mark.skipif(MNIST.find() is None or QMNIST.find() is None, reason="QMNIST is not here: set TURNOUT_DATA")
def test_downloaded_qmnist_has_its_writers():
    source = mnist_by_writer()
    assert source.client_ids is not None
    assert source.test_client_ids is not None
    sizes, test_sizes = np.bincount(source.client_ids), np.bincount(source.test_client_ids)[539:]
    assert (len(sizes), sizes.min(), np.median(sizes), sizes.max()) == (539, 19, 116, 131)
    assert (len(test_sizes), test_sizes.min(), np.median(test_sizes), test_sizes.max()) == (297, 8, 21, 130)
    assert source.test_client_ids.min() == 539  # no writer is in both
