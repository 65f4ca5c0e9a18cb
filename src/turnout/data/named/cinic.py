"""Load CINIC-10: photographs of CIFAR-10 and ImageNet in folders of PNG files."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from turnout.core.checks import DataError
from turnout.data.directory import Place, declare
from turnout.data.images import decoded
from turnout.data.source import SOURCES, Source
from turnout.data.transforms import Normalize

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
    normalize = Normalize((0.4789, 0.4723, 0.4305), (0.2421, 0.2383, 0.2587))
    recipe = {"source": "cinic10", "valid": valid}
    return Source("cinic10", x, y, 10, test_x, test_y, transforms=(normalize,), recipe=recipe)


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
    pixels = decoded(path, None, "RGB", str(path))
    if pixels.shape != (3, 32, 32):
        size = "x".join(map(str, pixels.shape[1:]))
        raise DataError(f"{path}: found an image of {size} pixels, expected 32x32. Unpack the archive again")
    return pixels
