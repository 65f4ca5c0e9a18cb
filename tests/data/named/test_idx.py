"""MNIST and Fashion-MNIST in the idx format."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from turnout.core.checks import DataError
from turnout.data.named.idx import FASHION_MNIST, MNIST, fashion_mnist, mnist, read_idx
from turnout.data.partition import PowerLaw
from turnout.data.transforms import Normalize

CODES = {"uint8": 0x08, "int32": 0x0C}


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, CODES[array.dtype.name], array.ndim]) + np.array(array.shape, ">i4").tobytes()
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.fixture
def folder(tmp_path):
    """Seven training and three test images, in the four files of MNIST."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for part, n in (("train", 7), ("t10k", 3)):
        images = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        write(folder / f"{part}-images-idx3-ubyte.gz", images)
        write(folder / f"{part}-labels-idx1-ubyte.gz", np.arange(n, dtype=np.uint8))
    return folder


def write(path: Path, array: np.ndarray) -> None:
    path.write_bytes(gzip.compress(idx(array)))


def test_pixels_are_scaled_and_keep_their_order(folder, tmp_path):
    source = mnist(tmp_path)
    raw = read_idx(folder / MNIST.files[0], MNIST, ndim=3)
    assert source.x.shape == (7, 1, 28, 28)
    assert torch.equal((source.x * 255).round().to(torch.uint8).squeeze(1), torch.from_numpy(raw.copy()))
    assert source.y.tolist() == list(range(7))
    assert source.test_x is not None
    assert source.test_x.shape == (3, 1, 28, 28)
    assert source.name == "mnist"


def test_folder_itself_can_be_given(folder):
    assert torch.equal(mnist(folder).x, mnist(folder.parent).x)


@pytest.mark.parametrize("dtype", ["uint8", "int32"])
def test_arrays_of_any_shape_round_trip(tmp_path, dtype):
    array = np.random.default_rng(1).integers(0, 200, (4, 3, 2)).astype(dtype)
    (tmp_path / "plain").write_bytes(idx(array))
    write(tmp_path / "zipped.gz", array)
    for name in ("plain", "zipped.gz"):
        assert np.array_equal(read_idx(tmp_path / name, MNIST, ndim=3), array)


def zipped(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)  # a time in it would give every process other names of tests


def images(n: int) -> bytes:
    return idx(np.zeros((n, 28, 28), dtype=np.uint8))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (0, b"not gzip at all", "found a broken gzip file .*, expected a complete one"),
        (0, zipped(images(7))[:-20], "found a broken gzip file"),
        (0, zipped(images(7))[:10] + b"\xff" * 30, "found a broken gzip file"),
        (0, zipped(b""), "found a file that starts with nothing"),
        (0, zipped(b"\x89PNG" + bytes(100)), "found a file that starts with 89 50 4e 47, expected 00 00"),
        (1, zipped(images(7)), "found a file that starts with 00 00 08 03, expected 00 00, .* then 01"),
        (0, zipped(images(7)[:-1]), "found 5,503 bytes, expected 5,504 bytes, for 7x28x28 entries"),
        (0, zipped(images(7) + b"\0"), "found 5,505 bytes, expected 5,504"),
        (0, zipped(idx(np.zeros((7, 14, 28), np.uint8))), r"found images of shape \[14, 28\]"),
        (1, zipped(idx(np.zeros(6, np.uint8))), "found 6 labels, expected 7, one per image"),
        (3, zipped(idx(np.array([1, 10, 2], np.uint8))), "found the label 10, expected labels from 0 to 9"),
    ],
)
def test_damaged_file_is_named_with_the_remedy(folder, tmp_path, file, content, message):
    path = folder / MNIST.files[file]
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        mnist(tmp_path)
    assert str(error.value).startswith(str(path))
    assert "`turnout data fetch mnist --force`" in str(error.value)


def test_missing_file_is_named(folder, tmp_path):
    (folder / MNIST.files[2]).unlink()
    with pytest.raises(DataError, match=r"\(lacks t10k-images-idx3-ubyte.gz\).*`turnout data fetch mnist`"):
        mnist(tmp_path)


def test_mnist_is_not_mistaken_for_fashion_mnist(folder, monkeypatch):
    monkeypatch.setenv("TURNOUT_DATA", str(folder.parent))
    with pytest.raises(DataError, match="turnout data fetch fashion_mnist"):
        fashion_mnist()


def test_pixels_are_standardized_over_all_images(folder, tmp_path):
    gray = np.concatenate([read_idx(folder / MNIST.files[i], MNIST, ndim=3) for i in (0, 2)]).astype(np.float64)
    expected = (gray - gray.mean(axis=0)) / (gray.std(axis=0) + 0.001)
    source = mnist(tmp_path, standardize=True)
    assert source.test_x is not None
    ours = torch.cat([source.x, source.test_x]).squeeze(1).numpy()
    np.testing.assert_allclose(ours, expected, atol=1e-4)
    assert source.transforms == ()
    assert source.recipe == {"source": "mnist", "standardize": True}


real_mnist = pytest.mark.skipif(MNIST.find() is None, reason="MNIST is not here: set TURNOUT_DATA")


@real_mnist
def test_federation_of_fedprox_and_folb():
    source = mnist(standardize=True)
    data = source.split(PowerLaw(), 1000, seed=1, official_test="pool", test_fraction=0, client_test_fraction=0.1)
    assert data.client_test is not None
    held = data.label_counts() + data.client_test.label_counts(10)
    assert data.num_clients == 1000
    assert 68_000 < held.sum() <= 70_000  # the authors' script gave out 69,035
    assert all(set(np.flatnonzero(mine)) == {u % 10, (u + 1) % 10} for u, mine in enumerate(held))
    assert held.sum(axis=1).min() >= 10
    assert len(data.client_test.x) == pytest.approx(0.1 * held.sum(), rel=0.02)
    everything = torch.cat([data.train.x, data.client_test.x])
    assert everything.mean().item() == pytest.approx(0, abs=0.01)
    lit = source.x.reshape(60_000, -1).std(dim=0)
    assert lit[lit > 0].median().item() == pytest.approx(1, abs=0.01)
    assert torch.equal(lit.view(28, 28)[0, :4], torch.zeros(4))  # no digit reaches the corner


@real_mnist
def test_downloaded_mnist_loads():
    source = mnist()
    assert source.test_y is not None
    assert torch.bincount(source.y).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert torch.bincount(source.test_y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert (source.x.mean().item(), source.x.std().item()) == pytest.approx((0.1307, 0.3081), abs=5e-5)
    assert source.transforms == (Normalize((0.1307,), (0.3081,)),)


@pytest.mark.skipif(FASHION_MNIST.find() is None, reason="Fashion-MNIST is not here: set TURNOUT_DATA")
def test_downloaded_fashion_mnist_loads():
    source = fashion_mnist()
    assert source.test_y is not None
    assert torch.bincount(source.y).tolist() == [6000] * 10
    assert torch.bincount(source.test_y).tolist() == [1000] * 10
    assert (source.x.mean().item(), source.x.std().item()) == pytest.approx((0.2860, 0.3530), abs=5e-5)
    assert source.transforms == (Normalize((0.2860,), (0.3530,)),)
