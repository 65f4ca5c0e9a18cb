"""SVHN, in MATLAB's files."""

import sys

import numpy as np
import pytest
import torch

import turnout as to
from turnout.core.checks import ConfigurationError, DataError
from turnout.data.named.svhn import SVHN, svhn

io = pytest.importorskip("scipy.io", reason="SVHN is read with SciPy")


def write(path, labels, **arrays):
    """Write images of constant planes k, 50 + k and 100 + k, whose top left pixel is 200 + k, as the original files are."""
    x = np.zeros((32, 32, 3, len(labels)), np.uint8)
    for k in range(len(labels)):
        x[..., k] = k + np.array([0, 50, 100])
        x[0, 1, :, k] = 200 + k  # first row, second column
    contents = {"X": x, "y": np.array(labels, np.uint8)[:, None], **arrays}
    io.savemat(path, {name: array for name, array in contents.items() if array is not None}, do_compression=True)


@pytest.fixture
def folder(tmp_path):
    """Four digits to train, 1, 9, 0 and 5, and two to test."""
    (tmp_path / "SVHN").mkdir()
    write(tmp_path / "SVHN" / "train_32x32.mat", [1, 9, 10, 5])
    write(tmp_path / "SVHN" / "test_32x32.mat", [10, 2])
    return tmp_path / "SVHN"


def test_images_are_upright_and_ten_is_the_digit_zero(folder):
    for place in (folder, folder.parent):
        source = svhn(place)
        assert source.y.tolist() == [1, 9, 0, 5]
        assert source.test_y is not None
        assert source.test_y.tolist() == [0, 2]
        assert (source.x.dtype, tuple(source.x.shape)) == (torch.uint8, (4, 3, 32, 32))
        assert source.x[:, :, 7, 5].tolist() == [[k, 50 + k, 100 + k] for k in range(4)]
        assert source.x[:, 0, 0, 1].tolist() == [200, 201, 202, 203]
        assert source.x[:, 0, 1, 0].tolist() == [0, 1, 2, 3]
        assert source.num_classes == 10


def test_model_trains_on_it(folder):
    source = svhn(folder)
    assert source.test_x is not None
    pixel = source.transforms[0].apply(source.test_x, None)[0, :, 9, 9]
    expected = [-0.4377 / 0.198, (50 / 255 - 0.4438) / 0.201, (100 / 255 - 0.4728) / 0.197]
    assert pixel.tolist() == pytest.approx(expected)
    data = source.split(to.partition.Iid(), num_clients=2)
    result = to.Experiment(data=data, model=to.models.Cnn.svhn(), rounds=1).run()
    assert 0.0 <= result.summary()["test_accuracy"] <= 1.0


def test_missing_files_are_named_with_the_remedy(tmp_path):
    with pytest.raises(
        DataError, match=r"train_32x32\.mat, test_32x32\.mat; looked in .*SVHN.*`turnout data fetch svhn`"
    ):
        svhn(tmp_path)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"y": np.array([[1], [11]], np.uint8)}, "found the label 11, expected labels from 1 to 10"),
        ({"y": np.array([[0], [1]], np.uint8)}, "found the label 0, expected labels from 1 to 10"),
        ({"y": np.array([[1], [2], [3]], np.uint8)}, r"found X of 32x32x3x2 \(uint8\) and y of 3x1"),
        ({"X": np.zeros((32, 28, 3, 2), np.uint8)}, "found X of 32x28x3x2"),
        ({"X": np.zeros((32, 32, 3, 2))}, r"found X of 32x32x3x2 \(double\)"),
        ({"y": None}, "found a file that cannot be read .*expected the arrays X of 32x32x3xN and y of Nx1 bytes"),
    ],
)
def test_other_contents_are_refused(folder, contents, message):
    write(folder / "test_32x32.mat", [1, 2], **contents)
    with pytest.raises(DataError, match=rf"test_32x32\.mat: {message}") as error:
        svhn(folder)
    assert "`turnout data fetch svhn --force`" in str(error.value)


@pytest.mark.parametrize("kept", [0, 60, 130, -20])
def test_truncated_file_is_refused(folder, kept):
    path = folder / "train_32x32.mat"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataError, match=r"train_32x32\.mat: found a file that cannot be read"):
        svhn(folder)


def test_file_that_unpacks_to_too_much_is_refused_by_its_header(folder, monkeypatch):
    monkeypatch.setattr("turnout.data.reading.UNPACKED_BYTES", 0)
    monkeypatch.setattr("turnout.data.reading.UNPACKED_RATIO", 1)
    with pytest.raises(DataError, match=r"train_32x32\.mat: it has .* bytes and would unpack to 12,292 or more"):
        svhn(folder)


def test_missing_library_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(ConfigurationError, match=r"reading SVHN needs SciPy.* pip install 'scipy'"):
        svhn(folder)


@pytest.mark.skipif(SVHN.find() is None, reason="SVHN is not here: set TURNOUT_DATA")
def test_downloaded_svhn_loads():
    source = svhn()
    assert source.test_y is not None
    assert torch.bincount(source.y).tolist() == [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659]
    assert torch.bincount(source.test_y).tolist() == [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]
