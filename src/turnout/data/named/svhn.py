"""Load SVHN: house numbers in Google Street View, in the MATLAB files of cropped digits."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch

from turnout.core.checks import DataError
from turnout.core.extras import imported
from turnout.data.directory import Place, declare
from turnout.data.named.color import OF_SVHN
from turnout.data.reading import check_file, most_bytes, too_large
from turnout.data.source import SOURCES, Source

SVHN = Place("svhn", ("train_32x32.mat", "test_32x32.mat"), ("SVHN", "svhn", "."))
declare("svhn", SVHN)


@SOURCES.register
def svhn(directory: str | os.PathLike[str] | None = None) -> Source:
    """SVHN: 73,257 + 26,032 digits of house numbers, 32x32 color pixels, 10 classes.

    Inputs are bytes ``[n, 3, 32, 32]``; the default transform normalizes each channel by mean (0.4377, 0.4438, 0.4728) and
    standard deviation (0.1980, 0.2010, 0.1970). Class k is the digit k; the files call the digit 0 "10". ``train_32x32.mat``
    and ``test_32x32.mat`` are in the folder ``SVHN`` of the data directory, or in the directory itself, as torchvision
    downloads them. The 531,131 easier digits of ``extra_32x32.mat`` are not read. The files are read with SciPy.

    Raises:
        ConfigurationError: if SciPy is not installed.
        DataError: if a file is missing or damaged.

    Reference: Y. Netzer, T. Wang, A. Coates, A. Bissacco, B. Wu and A. Y. Ng, "Reading digits in natural images with
    unsupervised feature learning", NIPS workshop on deep learning and unsupervised feature learning, 2011.
    """
    folder = SVHN.locate(directory)
    (x, y), (test_x, test_y) = (_read(folder / file) for file in SVHN.files)
    return Source("svhn", x, y, 10, test_x, test_y, transforms=(OF_SVHN,), recipe={"source": "svhn"})


def _read(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Read images ``[n, 3, 32, 32]`` and labels ``[n]`` from the arrays X ``[32, 32, 3, n]`` and y ``[n, 1]`` of a file.

    The sizes in the header are checked before anything is unpacked.
    """
    check_file(path)
    scipy = imported("scipy.io", "reading SVHN", "scipy", "SciPy")
    expected = "the arrays X of 32x32x3xN and y of Nx1 bytes"
    try:
        forms = {name: (tuple(shape), kind) for name, shape, kind in scipy.whosmat(str(path))}
        (shape, kind), (shape_y, kind_y) = forms["X"], forms["y"]
        if shape[:3] != (32, 32, 3) or len(shape) != 4 or shape_y != (shape[3], 1) or {kind, kind_y} != {"uint8"}:
            found = f"X of {'x'.join(map(str, shape))} ({kind}) and y of {'x'.join(map(str, shape_y))} ({kind_y})"
            raise SVHN.damaged(path, found=found, expected=expected)
        if (size := 3073 * shape[3]) > most_bytes(path):
            raise too_large(path, size)
        arrays = scipy.loadmat(str(path), variable_names=("X", "y"))
        images, labels = (np.asarray(arrays[name], dtype=np.uint8) for name in ("X", "y"))
        x = np.ascontiguousarray(images.reshape(shape).transpose(3, 2, 0, 1))
        y = labels.reshape(shape[3]).astype(np.int64)
    except DataError:
        raise
    except Exception as error:  # a damaged file can raise errors of any kind
        raise SVHN.damaged(path, found=f"a file that cannot be read ({error!r})", expected=expected) from error
    if len(wrong := y[(y < 1) | (y > 10)]):
        raise SVHN.damaged(path, found=f"the label {wrong[0]}", expected="labels from 1 to 10, which is the digit 0")
    return torch.from_numpy(x), torch.from_numpy(y % 10)
