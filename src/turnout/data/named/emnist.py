"""Load EMNIST: handwritten digits and letters in the format of MNIST, in six splits."""

from __future__ import annotations

import os
from typing import Literal

import torch

from turnout.core.checks import known_name
from turnout.data.directory import Place, declare
from turnout.data.named.idx import read_pair
from turnout.data.source import SOURCES, Source
from turnout.data.transforms import Normalize

SPLITS = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10}
"""The number of classes of each split."""

Split = Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"]

FOLDER = "EMNIST/raw"


def files_of(split: str) -> tuple[str, ...]:
    """Return the four files of a split: train images, train labels, test images, test labels."""
    kinds = ("images-idx3", "labels-idx1")
    return tuple(f"emnist-{split}-{part}-{kind}-ubyte.gz" for part in ("train", "test") for kind in kinds)


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
    place = place_of(split)
    folder, first = place.locate(directory), int(split == "letters")
    pairs = [
        read_pair(folder / images, folder / labels, place, num_classes, first)
        for images, labels in (place.files[:2], place.files[2:])
    ]
    (x, y), (test_x, test_y) = ((images.transpose(-1, -2).contiguous(), labels) for images, labels in pairs)
    counts = torch.bincount(x.flatten(), minlength=256).double()
    levels, share = torch.arange(256, dtype=torch.float64) / 255, counts / counts.sum()
    mean = float(share @ levels)
    std = float((share @ (levels - mean).square()).sqrt())
    return Source(
        "emnist", x, y, num_classes, test_x, test_y,
        transforms=(Normalize((round(mean, 4),), (round(std, 4),)),), recipe={"source": "emnist", "split": split},
    )  # fmt: skip
