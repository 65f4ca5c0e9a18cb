"""CIFAR-10 and CIFAR-100."""

import pickle

import numpy as np
import pytest
import torch

from turnout.core.checks import ConfigurationError, DataError
from turnout.data.named.cifar import CIFAR10, CIFAR100, cifar10, cifar100


@pytest.fixture
def batches(tmp_path):
    """Three images per batch file; image k of the training data has label k % 10 and planes k, 50 + k, 100 + k."""
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for number, file in enumerate(CIFAR10.files):
        rows = [[k % 10] + [k] * 1024 + [50 + k] * 1024 + [100 + k] * 1024 for k in range(3 * number, 3 * number + 3)]
        (folder / file).write_bytes(np.array(rows, dtype=np.uint8).tobytes())
    return folder


def test_batches_are_concatenated_with_channels_in_rgb_order(batches):
    source = cifar10(batches.parent)
    assert source.x.shape == (15, 3, 32, 32)
    assert source.test_x is not None
    assert source.test_x.shape == (3, 3, 32, 32)
    assert source.y.tolist() == [k % 10 for k in range(15)]
    expected = torch.arange(15)[:, None] + torch.tensor([0, 50, 100])
    assert torch.equal((source.x[:, :, 5, 7] * 255).round().long(), expected)
    assert (source.x == source.x[:, :, :1, :1]).all()


def test_both_layouts_and_the_folder_itself_are_found(batches):
    assert len(cifar10(batches).x) == 15
    (batches.parent / "data" / "CIFAR10").mkdir(parents=True)
    batches.rename(batches.parent / "data" / "CIFAR10" / batches.name)
    assert len(cifar10(batches.parent / "data").x) == 15


def python2(images, **labels):
    """Return a pickle of Python 2 with an array of bytes and lists, as unpacked by torchvision."""
    raw = images.tobytes()
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    shape = b"".join(b"M" + size.to_bytes(2, "little") for size in images.shape) + b"\x86"
    state = b"(K\x01" + shape + dtype + b"\x89T" + len(raw).to_bytes(4, "little") + raw + b"tb"
    lists = b"".join(
        b"U" + bytes([len(key)]) + key.encode() + b"](" + b"".join(b"K" + bytes([label]) for label in numbers) + b"e"
        for key, numbers in labels.items()
    )
    return b"\x80\x02}(" + lists + b"U\x04data" + array + state + b"u."


def as_pickles(batches):
    """Write the batches in torchvision's form, and take the others away."""
    folder = batches.parent / "cifar-10-batches-py"
    folder.mkdir()
    for file in CIFAR10.files:
        rows = np.frombuffer((batches / file).read_bytes(), dtype=np.uint8).reshape(-1, 3073)
        (folder / file.removesuffix(".bin")).write_bytes(python2(rows[:, 1:], labels=rows[:, 0].tolist()))
        (batches / file).unlink()
    return folder


def test_torchvision_folder_has_the_same_data(batches):
    binary = cifar10(batches.parent)
    folder = as_pickles(batches)
    for place in (batches.parent, folder):
        pickled = cifar10(place)
        assert torch.equal(pickled.x, binary.x)
        assert torch.equal(pickled.y, binary.y)
    assert CIFAR10.find(batches.parent) == folder


def test_error_lists_the_searched_paths_of_both_forms(tmp_path):
    with pytest.raises(DataError, match=r"cifar-10-batches-bin.*cifar-10-batches-py"):
        cifar10(tmp_path)


def test_pickle_that_runs_code_is_refused(batches):
    folder = as_pickles(batches)
    (folder / "data_batch_2").write_bytes(b"cos\nsystem\n(S'echo ran > ran'\ntR.")
    with pytest.raises(
        DataError, match=r"data_batch_2: it names os\.system, and only dictionaries, .* and arrays are read"
    ):
        cifar10(batches.parent)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({"data": np.zeros((2, 5), np.uint8), "labels": [0, 1]}), "found another form"),
        (pickle.dumps({"data": np.zeros((2, 3072)), "labels": [0, 1]}), "pixels are float64"),
        (pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 11]}), "found the label 11"),
        (pickle.dumps([1, 2]), "found another form"),
        (b"c_codecs\nencode\n(Va\nVutf-8\ntR.", "it encodes bytes by 'utf-8', needed latin1"),
        (b"nothing", "is not a pickle that can be read"),
    ],
)
def test_damaged_pickle_is_named(batches, content, message):
    (as_pickles(batches) / "data_batch_3").write_bytes(content)
    with pytest.raises(DataError, match=f"data_batch_3.*{message}"):
        cifar10(batches.parent)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "found 0 bytes, expected a multiple of 3,073 bytes"),
        (bytes(3073 * 2 - 1), "found 6,145 bytes"),
        (bytes(3073) + b"\x0c" + bytes(3072), "found the label 12, expected labels from 0 to 9"),
    ],
)
def test_damaged_batch_is_named_with_the_remedy(batches, content, message):
    (batches / "data_batch_3.bin").write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        cifar10(batches.parent)
    assert "data_batch_3.bin" in str(error.value)
    assert "`turnout data fetch cifar10 --force`" in str(error.value)


@pytest.mark.skipif(CIFAR10.find() is None, reason="CIFAR-10 is not here in its binary version: set TURNOUT_DATA")
def test_downloaded_cifar10_loads():
    source = cifar10()
    assert source.test_y is not None
    assert torch.bincount(source.y).tolist() == [5000] * 10
    assert torch.bincount(source.test_y).tolist() == [1000] * 10
    assert source.x.mean(dim=(0, 2, 3)).tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
    assert source.y[:5].tolist() == [6, 9, 9, 4, 1]  # frog, truck, truck, deer, automobile


@pytest.fixture
def hundred(tmp_path):
    """CIFAR-100 with five images to train and two to test; image k has classes 10 + k of 20 and 95 + k of 100."""
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    for file, ks in zip(CIFAR100.files, (range(5), range(3, 5)), strict=True):
        rows = [[10 + k, 95 + k] + [k] * 1024 + [50 + k] * 1024 + [100 + k] * 1024 for k in ks]
        (folder / file).write_bytes(np.array(rows, dtype=np.uint8).tobytes())
    return folder


def test_hundred_classes_or_twenty_superclasses(hundred):
    fine, coarse = cifar100(hundred.parent), cifar100(hundred, labels="coarse")
    assert (fine.num_classes, coarse.num_classes) == (100, 20)
    assert fine.y.tolist() == [95, 96, 97, 98, 99]
    assert coarse.y.tolist() == [10, 11, 12, 13, 14]
    assert fine.test_y is not None
    assert fine.test_y.tolist() == [98, 99]
    expected = torch.arange(5)[:, None] + torch.tensor([0, 50, 100])
    assert torch.equal((fine.x[:, :, 5, 7] * 255).round().long(), expected)
    assert torch.equal(fine.x, coarse.x)
    assert coarse.recipe == {"source": "cifar100", "labels": "coarse"}


def test_torchvision_folder_of_cifar100_has_the_same_data(hundred):
    binary = cifar100(hundred.parent)
    folder = hundred.parent / "cifar-100-python"
    folder.mkdir()
    for file in CIFAR100.files:
        rows = np.frombuffer((hundred / file).read_bytes(), dtype=np.uint8).reshape(-1, 3074)
        lists = {"coarse_labels": rows[:, 0].tolist(), "fine_labels": rows[:, 1].tolist()}
        (folder / file.removesuffix(".bin")).write_bytes(python2(rows[:, 2:], **lists))
        (hundred / file).unlink()
    for place in (folder, folder.parent):
        pickled = cifar100(place)
        assert torch.equal(pickled.x, binary.x)
        assert torch.equal(pickled.y, binary.y)
        assert cifar100(place, labels="coarse").y.tolist() == [10, 11, 12, 13, 14]
    (folder / "test").write_bytes(python2(np.zeros((1, 3072), np.uint8), fine_labels=[0]))
    with pytest.raises(DataError, match=r"cifar-100-python/test: .*expected .* and 'coarse_labels' and 'fine_labels'"):
        cifar100(folder)


def test_other_labels_of_cifar100_are_refused(hundred):
    with pytest.raises(ConfigurationError, match="unknown value of labels 'superclasses'"):
        cifar100(hundred, labels="superclasses")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "found 0 bytes, expected a multiple of 3,074 bytes, 2 for labels and 3,072 for pixels"),
        (bytes(3074 * 2 - 1), "found 6,147 bytes"),
        (b"\x14" + bytes(3073), "found the label 20, expected coarse labels from 0 to 19"),
        (b"\x00\x64" + bytes(3072), "found the label 100, expected fine labels from 0 to 99"),
    ],
)
def test_damaged_file_of_cifar100_is_named_with_the_remedy(hundred, content, message):
    (hundred / "test.bin").write_bytes(content)
    with pytest.raises(DataError, match=rf"test\.bin: {message}.*`turnout data fetch cifar100 --force`"):
        cifar100(hundred.parent)


def test_missing_cifar100_is_explained(tmp_path):
    with pytest.raises(DataError, match=r"train\.bin, test\.bin.*cifar-100-python.*`turnout data fetch cifar100`"):
        cifar100(tmp_path)
