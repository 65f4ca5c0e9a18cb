"""CINIC-10, folders of PNG files."""

import pytest
import torch

from turnout.core.checks import DataError
from turnout.data.named.cifar import CINIC10, CLASSES, cinic10

Image = pytest.importorskip("PIL.Image", reason="images need Pillow: pip install pillow")


@pytest.fixture
def folder(tmp_path):
    """One image of every class in each part, two of aeroplanes to train, with the colors (part, class, number)."""
    root = tmp_path / "CINIC-10"
    for part, name in enumerate(("train", "valid", "test")):
        for label, kind in enumerate(CLASSES):
            (root / name / kind).mkdir(parents=True)
            for number in range(1 + (name == "train" and label == 0)):
                Image.new("RGB", (32, 32), (part, label, number)).save(root / name / kind / f"{number}.png")
    return root


def colors(x):
    """Return the colors of images that have one each."""
    assert (x == x[:, :, :1, :1]).all()
    return x[:, :, 0, 0].tolist()


def test_classes_are_those_of_cifar10_in_its_order(folder):
    for place in (folder, folder.parent):
        source = cinic10(place)
        assert source.y.tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
        assert colors(source.x) == [[0, 0, 0], [0, 0, 1], *([0, label, 0] for label in range(1, 10))]
        assert source.test_x is not None
        assert source.test_y is not None
        assert source.test_y.tolist() == list(range(10))
        assert colors(source.test_x) == [[2, label, 0] for label in range(10)]
        assert (source.x.dtype, tuple(source.x.shape)) == (torch.uint8, (11, 3, 32, 32))


def test_valid_part_is_left_out_or_joins_the_training_examples(folder):
    both = cinic10(folder, valid=True)
    assert both.y.tolist() == [*cinic10(folder).y.tolist(), *range(10)]
    assert colors(both.x[11:]) == [[1, label, 0] for label in range(10)]
    assert both.test_x is not None
    assert len(both.test_x) == 10
    assert both.recipe == {"source": "cinic10", "valid": True}
    for path in (folder / "valid" / "frog").glob("*.png"):
        path.unlink()
    cinic10(folder)
    with pytest.raises(DataError, match=r"valid/frog has no images: needed files such as .*frog/1\.png"):
        cinic10(folder, valid=True)


def test_missing_folders_are_named_with_the_remedy(folder):
    for path in (folder / "test" / "ship").glob("*.png"):
        path.unlink()
    with pytest.raises(DataError, match=r"CINIC-10 \(lacks test/ship/\*\.png\).*Unpack CINIC-10\.tar\.gz of https"):
        cinic10(folder.parent)


def test_gray_images_have_three_equal_colors(folder):
    Image.new("L", (32, 32), 77).save(folder / "train" / "cat" / "0.png")
    assert colors(cinic10(folder).x)[4] == [77, 77, 77]


def test_image_of_another_size_is_refused(folder):
    Image.new("RGB", (32, 28)).save(folder / "train" / "cat" / "0.png")
    with pytest.raises(DataError, match=r"train/cat/0\.png: found an image of 28x32 pixels, expected 32x32"):
        cinic10(folder)


def test_truncated_image_is_refused(folder):
    path = folder / "test" / "dog" / "0.png"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DataError, match=r"test/dog/0\.png cannot be decoded .*replace or delete it"):
        cinic10(folder)


@pytest.mark.skipif(CINIC10.find() is None, reason="CINIC-10 is not here: set TURNOUT_DATA")
def test_unpacked_cinic10_loads():
    source = cinic10()
    assert source.test_y is not None
    assert torch.bincount(source.y).tolist() == torch.bincount(source.test_y).tolist() == [9000] * 10
