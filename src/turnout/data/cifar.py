"""Load CIFAR-10 from its binary version, or from the Python version that torchvision unpacks."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch

from turnout.data.directory import Place, declare
from turnout.data.plain_pickle import read_pickle
from turnout.data.reading import read_bytes
from turnout.data.source import SOURCES, Source
from turnout.data.transforms import Normalise

_TRAIN, _TEST = tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"
_ROW = 1 + 3 * 32 * 32

_PICKLES = Place(
    "cifar10",
    tuple(file.removesuffix(".bin") for file in (*_TRAIN, _TEST)),
    ("cifar-10-batches-py", "CIFAR10/cifar-10-batches-py"),
    bare=(".",),
)
CIFAR10 = Place(
    "cifar10",
    (*_TRAIN, _TEST),
    ("cifar-10-batches-bin", "CIFAR10/cifar-10-batches-bin"),
    bare=(".",),
    instead=_PICKLES,
)
declare("cifar10", CIFAR10)


@SOURCES.register
def cifar10(directory: str | os.PathLike[str] | None = None) -> Source:
    """CIFAR-10: 50,000 + 10,000 photographs of 32x32 colour pixels, 10 classes.

    Inputs are float32 ``[n, 3, 32, 32]`` in [0, 1] (0.7 GB); the default transform normalises each channel by mean
    (0.4914, 0.4822, 0.4465) and standard deviation (0.2023, 0.1994, 0.2010). The six files of the binary version are in the
    folder ``cifar-10-batches-bin`` of the data directory; those of ``cifar-10-batches-py``, which torchvision unpacks, are
    read as well. Only arrays and plain values are read from its pickles.

    Raises:
        DataError: for a file that is missing or damaged.

    Reference: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", University of Toronto, 2009.
    """
    folder = CIFAR10.locate(directory)
    suffix = ".bin" if (folder / _TEST).is_file() else ""
    x, y = _read_batches([folder / f"{Path(file).stem}{suffix}" for file in _TRAIN])
    test_x, test_y = _read_batches([folder / f"{Path(_TEST).stem}{suffix}"])
    normalise = Normalise((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    return Source("cifar10", x, y, 10, test_x, test_y, transforms=(normalise,), recipe={"source": "cifar10"})


def _read_batches(paths: list[Path]) -> tuple[torch.Tensor, torch.Tensor]:
    """Read batch files: rows of a label byte and 3,072 pixel bytes (red, green, blue plane), one after another."""
    batches = [_read_batch(path) for path in paths]
    x = torch.empty(sum(map(len, batches)), 3, 32, 32)
    y = torch.empty(len(x), dtype=torch.int64)
    start = 0
    for rows in batches:
        stop = start + len(rows)
        x[start:stop] = torch.from_numpy(rows[:, 1:].reshape(-1, 3, 32, 32))
        y[start:stop] = torch.from_numpy(rows[:, 0])
        start = stop
    return x.div_(255.0), y


def _read_batch(path: Path) -> np.ndarray:
    """Return a batch of either version as rows of a label and pixels."""
    rows = _from_bytes(path) if path.suffix == ".bin" else _from_pickle(path)
    if rows[:, 0].max(initial=0) > 9:
        raise CIFAR10.damaged(path, found=f"the label {rows[:, 0].max()}", expected="labels from 0 to 9")
    return rows


def _from_pickle(path: Path) -> np.ndarray:
    batch = read_pickle(path, arrays=True)
    try:
        data, labels = np.asarray(batch["data"]), np.asarray(batch["labels"], dtype=np.uint8)
        if data.dtype != np.uint8:
            raise TypeError(f"pixels are {data.dtype}")
        return np.column_stack([labels, data.reshape(len(labels), _ROW - 1)])
    except (TypeError, KeyError, ValueError, IndexError, OverflowError) as error:
        expected = f"'data', {_ROW - 1:,} bytes for each image, and 'labels'"
        raise CIFAR10.damaged(path, found=f"another form ({error})", expected=expected) from error


def _from_bytes(path: Path) -> np.ndarray:
    raw = np.frombuffer(bytearray(read_bytes(path)), dtype=np.uint8)  # torch has no read-only tensors
    if len(raw) == 0 or len(raw) % _ROW:
        expected = f"a multiple of {_ROW:,} bytes (30,730,000 in the original)"
        raise CIFAR10.damaged(path, found=f"{len(raw):,} bytes", expected=expected)
    return raw.reshape(-1, _ROW)
