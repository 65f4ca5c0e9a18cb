"""Load MNIST, Fashion-MNIST and EMNIST from idx files."""

from __future__ import annotations

import gzip
import io
import math
import os
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from turnout.core.checks import known_name
from turnout.data.directory import Place, declare
from turnout.data.reading import UNPACKING_ERRORS, most_bytes, open_unpacked, too_large
from turnout.data.source import SOURCES, Source, standardized
from turnout.data.transforms import Normalize


def _files(train: str, test: str) -> tuple[str, ...]:
    """Return the four files of a data set: train images, train labels, test images, test labels."""
    return tuple(f"{part}-{kind}-ubyte.gz" for part in (train, test) for kind in ("images-idx3", "labels-idx1"))


_FILES = _files("train", "t10k")

MNIST = Place("mnist", _FILES, ("MNIST/raw", "MNIST", "mnist"), bare=("raw", "."))
FASHION_MNIST = Place(
    "fashion_mnist", _FILES, ("FashionMNIST/raw", "FashionMNIST", "fashion_mnist", "fashion"), bare=("raw", ".")
)

declare("mnist", MNIST)
declare("fashion_mnist", FASHION_MNIST)

_TYPES = {0x08: ">u1", 0x0C: ">i4"}


@SOURCES.register
def mnist(directory: str | os.PathLike[str] | None = None, *, standardize: bool = False) -> Source:
    """MNIST: 60,000 + 10,000 handwritten digits of 28x28 gray pixels, 10 classes.

    Inputs are float32 ``[n, 1, 28, 28]`` in [0, 1]; the default transform normalizes by mean 0.1307 and standard
    deviation 0.3081. The four original idx files (``train-images-idx3-ubyte.gz``, ...) are in ``MNIST/raw`` of the data
    directory, the layout of torchvision, or in `directory` itself.

    Args:
        directory: the data directory, or the folder of the files.
        standardize: standardize each pixel over all 70,000 images in place of the transform, as FedProx and FOLB do:
            (x - mean) / (std + 0.001) in gray levels of 0 to 255.

    Raises:
        DataError: if a file is missing or damaged.

    Reference: Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, "Gradient-based learning applied to document
    recognition", Proceedings of the IEEE 86(11), 1998.
    """
    return _gray_images(MNIST, directory, Normalize((0.1307,), (0.3081,)), standardize)


@SOURCES.register
def fashion_mnist(directory: str | os.PathLike[str] | None = None, *, standardize: bool = False) -> Source:
    """Fashion-MNIST: 60,000 + 10,000 pictures of clothes of 28x28 gray pixels, 10 classes.

    Inputs are float32 ``[n, 1, 28, 28]`` in [0, 1]; the default transform normalizes by mean 0.2860 and standard
    deviation 0.3530. Files and options are those of `mnist`, in ``FashionMNIST/raw``.

    Raises:
        DataError: if a file is missing or damaged.

    Reference: H. Xiao, K. Rasul and R. Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine
    Learning Algorithms", arXiv:1708.07747, 2017.
    """
    return _gray_images(FASHION_MNIST, directory, Normalize((0.2860,), (0.3530,)), standardize)


def read_idx(path: Path, place: Place, *, ndim: int) -> np.ndarray:
    """Read an idx file, gzipped or not, into an array of `ndim` dimensions (unsigned bytes or 32-bit integers).

    The header is two zero bytes, the type code, the number of dimensions, and each dimension as big-endian int32. At most the
    size in the header is decompressed, and at most `most_bytes` of the file.

    Raises:
        DataError: if a file is missing, truncated, not a gzip file, too large, or not an idx file with `ndim`
            dimensions.
    """
    try:
        with open_unpacked(path) as file:
            return _read_idx(path, file, place, ndim)
    except UNPACKING_ERRORS as error:
        raise place.damaged(path, found=f"a broken gzip file ({error})", expected="a complete one") from error


def _read_idx(path: Path, file: gzip.GzipFile | io.BufferedReader, place: Place, ndim: int) -> np.ndarray:
    header = file.read(4 + 4 * ndim)
    if len(header) < 4 + 4 * ndim or header[:2] != b"\0\0" or header[2] not in _TYPES or header[3] != ndim:
        expected = f"00 00, a type code of {' or '.join(f'{code:02x}' for code in _TYPES)}, then {ndim:02x}"
        raise place.damaged(
            path, found=f"a file that starts with {header[:4].hex(' ') or 'nothing'}", expected=expected
        )
    dtype = np.dtype(_TYPES[header[2]])
    shape = np.frombuffer(header, ">i4", offset=4).tolist()
    named = "x".join(map(str, shape))
    if min(shape) < 0:
        raise place.damaged(path, found=f"{named} entries", expected="dimensions >= 0")
    size = math.prod(shape) * dtype.itemsize
    if size > most_bytes(path):
        raise too_large(path, size)
    content = file.read(size + 1)
    if len(content) != size:
        found = f"{len(header) + len(content):,} bytes"
        raise place.damaged(path, found=found, expected=f"{len(header) + size:,} bytes, for {named} entries")
    return np.frombuffer(content, dtype).reshape(shape)


def _gray_images(
    place: Place, directory: str | os.PathLike[str] | None, normalize: Normalize, standardize: bool
) -> Source:
    (x, y), (test_x, test_y) = read_pairs(place, directory)
    x, test_x = x.float().div_(255.0), test_x.float().div_(255.0)
    source = Source(place.name, x, y, 10, test_x, test_y, transforms=(normalize,), recipe={"source": place.name})
    return standardized(source, epsilon=0.001 / 255.0) if standardize else source


def read_pairs(
    place: Place, directory: str | os.PathLike[str] | None, num_classes: int = 10, first: int = 0
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Read images of training and test, bytes ``[n, 1, 28, 28]``, and their labels 0, 1, ..., int64 ``[n]``.

    Labels in the files begin at `first`.

    Raises:
        DataError: if files are damaged, images have another size, the numbers of labels and images differ, or labels
            are unknown.
    """
    folder = place.locate(directory)
    pairs = (place.files[:2], place.files[2:])
    return [_read_pair(folder / images, folder / labels, place, num_classes, first) for images, labels in pairs]


def _read_pair(
    images_path: Path, labels_path: Path, place: Place, num_classes: int, first: int
) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = read_idx(images_path, place, ndim=3), read_idx(labels_path, place, ndim=1)
    if images.shape[1:] != (28, 28):
        raise place.damaged(images_path, found=f"images of shape {list(images.shape[1:])}", expected="[28, 28]")
    if len(images) != len(labels):
        raise place.damaged(labels_path, found=f"{len(labels)} labels", expected=f"{len(images)}, one per image")
    if images.dtype != np.uint8 and len(images) and not 0 <= images.min() <= images.max() <= 255:
        found = f"pixels from {images.min()} to {images.max()}"
        raise place.damaged(images_path, found=found, expected="pixels from 0 to 255")
    last = first + num_classes - 1
    if len(wrong := labels[(labels < first) | (labels > last)]):
        raise place.damaged(labels_path, found=f"the label {wrong[0]}", expected=f"labels from {first} to {last}")
    return torch.from_numpy(images.astype(np.uint8)).unsqueeze(1), torch.from_numpy(labels.astype(np.int64) - first)


SPLITS = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10}
"""The number of classes of each split."""

Split = Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"]

FOLDER = "EMNIST/raw"


def files_of(split: str) -> tuple[str, ...]:
    """Return the four files of a split: train images, train labels, test images, test labels."""
    return _files(f"emnist-{split}-train", f"emnist-{split}-test")


def place_of(split: str) -> Place:
    """Return the locations of the files of a split; ``gzip`` is the folder in the archive of all splits."""
    return Place("emnist", files_of(split), (FOLDER, "EMNIST", "EMNIST/gzip", "emnist"), bare=("gzip", "raw", "."))


EMNIST = place_of("byclass")
declare("emnist", EMNIST)


@SOURCES.register
def emnist(directory: str | os.PathLike[str] | None = None, *, split: Split = "byclass") -> Source:
    """EMNIST: 814,255 handwritten digits and letters of 28x28 gray pixels, 62 classes; smaller splits by `split`.

    Inputs are bytes ``[n, 1, 28, 28]``, upright; in the files images are transposed. The default transform normalizes by mean
    and standard deviation of the training pixels. The four idx files, such as ``emnist-byclass-train-images-idx3-ubyte.gz``,
    are in ``EMNIST/raw`` of the data directory.

    Classes 0 to 9 are the digits, followed by upper-case and lower-case letters. ``"bymerge"`` and ``"balanced"`` merge
    letters that look alike in both cases, ``"letters"`` has 26 classes for both cases (1 to 26 in the files, 0 to 25 here),
    and ``"digits"`` and ``"mnist"`` have only digits.

    Args:
        directory: the data directory, or the folder of the files.
        split: ``"byclass"``, ``"bymerge"``, ``"balanced"``, ``"letters"``, ``"digits"`` or ``"mnist"``.

    Raises:
        ConfigurationError: if the split is another one.
        DataError: if a file is missing or damaged.

    Reference: G. Cohen, S. Afshar, J. Tapson and A. van Schaik, "EMNIST: Extending MNIST to handwritten letters", IJCNN 2017.
    """
    num_classes = SPLITS[known_name("split", split, SPLITS)]
    pairs = read_pairs(place_of(split), directory, num_classes, first=int(split == "letters"))
    (x, y), (test_x, test_y) = ((images.transpose(-1, -2).contiguous(), labels) for images, labels in pairs)
    counts = torch.bincount(x.flatten(), minlength=256).double()
    levels, share = torch.arange(256, dtype=torch.float64) / 255, counts / counts.sum()
    mean = float(share @ levels)
    std = float((share @ (levels - mean).square()).sqrt())
    return Source(
        "emnist", x, y, num_classes, test_x, test_y,
        transforms=(Normalize((round(mean, 4),), (round(std, 4),)),), recipe={"source": "emnist", "split": split},
    )  # fmt: skip
