import numpy as np
import pytest
import torch

from turnout.core.checks import DataError
from turnout.data.cifar import CIFAR10, cifar10


@pytest.fixture
def batches(tmp_path):
    """Three images per batch file; image k of the training data has label k % 10 and planes k, 50 + k, 100 + k."""
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for number, file in enumerate(CIFAR10.files):
        rows = [[k % 10] + [k] * 1024 + [50 + k] * 1024 + [100 + k] * 1024 for k in range(3 * number, 3 * number + 3)]
        (folder / file).write_bytes(np.array(rows, dtype=np.uint8).tobytes())
    return folder


def test_batches_follow_each_other_and_planes_are_red_green_blue(batches):
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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "found 0 bytes, expected a multiple of 3,073 bytes"),
        (bytes(3073 * 2 - 1), "found 6,145 bytes"),
        (bytes(3073) + b"\x0c" + bytes(3072), "found the label 12, expected labels from 0 to 9"),
    ],
)
def test_damaged_batches_are_named_with_the_remedy(batches, content, message):
    (batches / "data_batch_3.bin").write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        cifar10(batches.parent)
    assert "data_batch_3.bin" in str(error.value)
    assert "`turnout data fetch cifar10 --force`" in str(error.value)


@pytest.mark.skipif(CIFAR10.find() is None, reason="CIFAR-10 is not here in its binary version: set TURNOUT_DATA")
def test_the_real_cifar10():
    source = cifar10()
    assert source.test_y is not None
    assert torch.bincount(source.y).tolist() == [5000] * 10
    assert torch.bincount(source.test_y).tolist() == [1000] * 10
    assert source.x.mean(dim=(0, 2, 3)).tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
    assert source.y[:5].tolist() == [6, 9, 9, 4, 1]  # frog, truck, truck, deer, automobile
