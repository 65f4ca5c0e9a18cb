"""Load photographs of 32x32 color pixels: CIFAR-10, CIFAR-100, and CINIC-10, which extends CIFAR-10."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from turnout.core.checks import DataError, known_name
from turnout.data.directory import Place, declare
from turnout.data.images import decoded
from turnout.data.named.color import OF_CIFAR10, OF_CINIC10
from turnout.data.plain_pickle import read_pickle
from turnout.data.reading import read_bytes
from turnout.data.source import SOURCES, Source
from turnout.data.transforms import Normalize

_PIXELS = 3 * 32 * 32

LabelSet = Literal["fine", "coarse"]


def _place(name: str, files: tuple[str, ...], binary: str, pickles: str) -> Place:
    """Return the locations of binary files and, in their absence, of pickles with the same names without ``.bin``."""
    parent, stems = name.upper(), tuple(file.removesuffix(".bin") for file in files)
    other = Place(name, stems, (pickles, f"{parent}/{pickles}"), bare=(".",))
    return Place(name, files, (binary, f"{parent}/{binary}"), bare=(".",), instead=other)


CIFAR10 = _place(
    "cifar10",
    (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"),
    "cifar-10-batches-bin",
    "cifar-10-batches-py",
)
CIFAR100 = _place("cifar100", ("train.bin", "test.bin"), "cifar-100-binary", "cifar-100-python")
declare("cifar10", CIFAR10)
declare("cifar100", CIFAR100)


@dataclass(frozen=True)
class _Form:
    """The form of the files of one data set.

    Attributes:
        place: the locations of its files; the last one has the test examples.
        labels: the number of classes of each label of an image, by its key in pickles, in the order of its bytes.
    """

    place: Place
    labels: Mapping[str, int]


_OF_10 = _Form(CIFAR10, {"labels": 10})
_OF_100 = _Form(CIFAR100, {"coarse_labels": 20, "fine_labels": 100})


@SOURCES.register
def cifar10(directory: str | os.PathLike[str] | None = None) -> Source:
    """CIFAR-10: 50,000 + 10,000 photographs of 32x32 color pixels, 10 classes.

    Inputs are float32 ``[n, 3, 32, 32]`` in [0, 1] (0.7 GB); the default transform normalizes each channel by mean
    (0.4914, 0.4822, 0.4465) and standard deviation (0.2023, 0.1994, 0.2010). The six files of the binary version are in the
    folder ``cifar-10-batches-bin`` of the data directory; those of ``cifar-10-batches-py``, which torchvision unpacks, are
    read as well. Only arrays and plain values are read from its pickles.

    Raises:
        DataError: if a file is missing or damaged.

    Reference: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", University of Toronto, 2009.
    """
    return _source(_OF_10, directory, "labels", OF_CIFAR10, {"source": "cifar10"})


@SOURCES.register
def cifar100(directory: str | os.PathLike[str] | None = None, *, labels: LabelSet = "fine") -> Source:
    """CIFAR-100: 50,000 + 10,000 photographs of 32x32 color pixels, 100 classes in 20 superclasses.

    Inputs are those of `cifar10`; the default transform normalizes by mean (0.5071, 0.4865, 0.4409) and standard deviation
    (0.2673, 0.2564, 0.2762). The files ``train`` and ``test`` of the Python version are in the folder ``cifar-100-python`` of
    the data directory; ``train.bin`` and ``test.bin`` of ``cifar-100-binary`` are read as well.

    Args:
        directory: the data directory, or the folder of the files.
        labels: ``"fine"`` for the 100 classes, ``"coarse"`` for the 20 superclasses.

    Raises:
        ConfigurationError: if labels are others.
        DataError: if a file is missing or damaged.

    Reference: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", University of Toronto, 2009.
    """
    key = f"{known_name('value of labels', labels, ('fine', 'coarse'))}_labels"
    normalize = Normalize((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
    return _source(_OF_100, directory, key, normalize, {"source": "cifar100", "labels": labels})


def _source(
    form: _Form, directory: str | os.PathLike[str] | None, key: str, normalize: Normalize, recipe: dict[str, object]
) -> Source:
    """Read all files of a data set, with one of its labels."""
    folder = form.place.locate(directory)
    *train, test = form.place.files
    suffix = ".bin" if (folder / test).is_file() else ""
    x, y = _read_batches([folder / f"{Path(file).stem}{suffix}" for file in train], form, key)
    test_x, test_y = _read_batches([folder / f"{Path(test).stem}{suffix}"], form, key)
    num_classes = form.labels[key]
    return Source(form.place.name, x, y, num_classes, test_x, test_y, transforms=(normalize,), recipe=recipe)


def _read_batches(paths: list[Path], form: _Form, key: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Read files of rows of label bytes and 3,072 pixel bytes (red, green, blue plane), one after another."""
    rows = torch.from_numpy(np.concatenate([_read_batch(path, form) for path in paths]))
    x, y = rows[:, len(form.labels) :], rows[:, list(form.labels).index(key)]
    return x.reshape(-1, 3, 32, 32).float().div_(255.0), y.long()


def _read_batch(path: Path, form: _Form) -> np.ndarray:
    """Return a file of either version as rows of labels and pixels."""
    rows = _from_bytes(path, form) if path.suffix == ".bin" else _from_pickle(path, form)
    for column, (key, num_classes) in enumerate(form.labels.items()):
        if (largest := rows[:, column].max(initial=0)) >= num_classes:
            expected = f"{key.replace('_', ' ')} from 0 to {num_classes - 1}"
            raise form.place.damaged(path, found=f"the label {largest}", expected=expected)
    return rows


def _from_pickle(path: Path, form: _Form) -> np.ndarray:
    batch = read_pickle(path, arrays=True)
    try:
        data = np.asarray(batch["data"])
        labels = [np.asarray(batch[key], dtype=np.uint8) for key in form.labels]
        if data.dtype != np.uint8:
            raise TypeError(f"pixels are {data.dtype}")
        return np.column_stack([*labels, data.reshape(len(labels[0]), _PIXELS)])
    except (TypeError, KeyError, ValueError, IndexError, OverflowError) as error:
        keys = " and ".join(map(repr, form.labels))
        expected = f"'data', {_PIXELS:,} bytes for each image, and {keys}"
        raise form.place.damaged(path, found=f"another form ({error})", expected=expected) from error


def _from_bytes(path: Path, form: _Form) -> np.ndarray:
    raw = np.frombuffer(read_bytes(path), dtype=np.uint8)
    row = len(form.labels) + _PIXELS
    if len(raw) == 0 or len(raw) % row:
        expected = f"a multiple of {row:,} bytes, {len(form.labels)} for labels and {_PIXELS:,} for pixels"
        raise form.place.damaged(path, found=f"{len(raw):,} bytes", expected=expected)
    return raw.reshape(-1, row)


CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
"""The folders of classes, in the order of CIFAR-10."""

_THREADS = 4

CINIC10 = Place(
    "cinic10",
    tuple(f"{part}/{name}/*.png" for part in ("train", "test") for name in CLASSES),
    ("CINIC-10", "cinic10", "CINIC10"),
    bare=(".",),
    remedy="Unpack CINIC-10.tar.gz of https://datashare.ed.ac.uk/handle/10283/3192 there",
)
declare("cinic10", CINIC10, elsewhere="in CINIC-10.tar.gz of https://datashare.ed.ac.uk/handle/10283/3192")


@SOURCES.register
def cinic10(directory: str | os.PathLike[str] | None = None, *, valid: bool = False) -> Source:
    """CINIC-10: 90,000 + 90,000 photographs of CIFAR-10 and ImageNet, 32x32 color pixels, 10 classes.

    Inputs are bytes ``[n, 3, 32, 32]``; the default transform normalizes each channel by mean (0.4789, 0.4723, 0.4305) and
    standard deviation (0.2421, 0.2383, 0.2587). The folders ``train`` and ``test``, with a folder of PNG files for each
    class, are in the folder ``CINIC-10`` of the data directory. Images are in the order of their classes and file names, and
    are read with Pillow. The archive has a third part, ``valid``, of as many images, which FedAU leaves out.

    Args:
        directory: the data directory, or the folder of ``train`` and ``test``.
        valid: add the images of the folder ``valid`` to the training examples.

    Raises:
        ConfigurationError: if Pillow is not installed.
        DataError: if a folder has no images, or if an image is damaged or of another size.

    Reference: L. N. Darlow, E. J. Crowley, A. Antoniou and A. J. Storkey, "CINIC-10 is not ImageNet or CIFAR-10",
    arXiv:1810.03505, 2018.
    """
    folder = CINIC10.locate(directory)
    x, y = _read([folder / "train", *([folder / "valid"] if valid else [])])
    test_x, test_y = _read([folder / "test"])
    recipe = {"source": "cinic10", "valid": valid}
    return Source("cinic10", x, y, 10, test_x, test_y, transforms=(OF_CINIC10,), recipe=recipe)


def _read(folders: list[Path]) -> tuple[torch.Tensor, torch.Tensor]:
    """Decode all images of some folders, and label them by the folder of their class."""
    paths, labels = [], []
    for folder in folders:
        for label, name in enumerate(CLASSES):
            files = sorted((folder / name).glob("*.png"))
            if not files:
                raise DataError(f"cinic10: {folder / name} has no images: needed files such as {folder / name}/1.png")
            paths += files
            labels += [label] * len(files)
    x = np.empty((len(paths), 3, 32, 32), dtype=np.uint8)
    with ThreadPoolExecutor(_THREADS) as pool:
        for row, image in zip(x, pool.map(_image, paths), strict=True):
            row[:] = image
    return torch.from_numpy(x), torch.tensor(labels)


def _image(path: Path) -> np.ndarray:
    """Decode an image of 32x32 pixels, uint8 ``[3, 32, 32]``."""
    pixels = decoded(path, None, "RGB")
    if pixels.shape != (3, 32, 32):
        size = "x".join(map(str, pixels.shape[1:]))
        raise DataError(f"{path}: found an image of {size} pixels, expected 32x32. Unpack the archive again")
    return pixels
