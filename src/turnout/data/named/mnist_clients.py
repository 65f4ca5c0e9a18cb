"""Load MNIST with natural clients: its writers, or groups sorted by digit, of two classes; and digits as the latter."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, count
from turnout.data.directory import Place, declare
from turnout.data.named.digits import DIGITS, digits
from turnout.data.named.idx import MNIST, mnist, read_idx
from turnout.data.source import SOURCES, Source
from turnout.data.values import number_clients

QMNIST = Place(
    "qmnist",
    ("qmnist-train-labels-idx2-int.gz", "qmnist-test-labels-idx2-int.gz"),
    ("QMNIST/raw", "QMNIST", "qmnist"),
    bare=("raw", "."),
)

declare("mnist_by_writer", MNIST, QMNIST)

_CLASS, _WRITER, _COLUMNS = 0, 2, 8


@SOURCES.register
def mnist_by_writer(directory: str | os.PathLike[str] | None = None, *, standardize: bool = False) -> Source:
    """MNIST with the writer of each digit as its natural client: 539 writers in training, 19 to 131 digits each.

    Images, labels, transform and options are those of `mnist`. The test images are by 297 other writers (no writer is in
    both), numbered after the training writers in `client_names`, which are the writers' NIST numbers; with
    ``split(official_test="pool")`` all 836 are clients. The QMNIST label files are in ``QMNIST/raw`` beside the MNIST
    files; row i of them describes MNIST image i.

    Raises:
        DataError: if a file is missing or damaged, or a class differs from the label of the MNIST image.

    Reference: C. Yadav and L. Bottou, "Cold Case: The Lost MNIST Digits", NeurIPS 2019.
    """
    source = mnist(directory, standardize=standardize)
    assert source.test_y is not None  # MNIST has an official test split
    folder = QMNIST.locate(directory)
    writers = []
    for file, labels in zip(QMNIST.files, (source.y, source.test_y), strict=True):
        rows = read_idx(folder / file, QMNIST, ndim=2)
        if rows.shape[1] != _COLUMNS or len(rows) < len(labels):
            expected = f"at least [{len(labels)}, {_COLUMNS}], a row per MNIST image"
            raise QMNIST.damaged(folder / file, found=f"a table of shape {list(rows.shape)}", expected=expected)
        rows = rows[: len(labels)]
        differ = np.flatnonzero(rows[:, _CLASS] != labels.numpy())
        if len(differ):
            raise QMNIST.damaged(
                folder / file,
                found=f"class {rows[differ[0], _CLASS]} in row {differ[0]} ({len(differ)} rows differ)",
                expected=f"{labels[differ[0]]}, the MNIST label",
            )
        writers.append(rows[:, _WRITER])
    client_ids, test_client_ids, names = number_clients(*writers)
    return replace(
        source,
        name="mnist_by_writer",
        client_ids=client_ids,
        test_client_ids=test_client_ids,
        client_names=names,
        recipe={**source.recipe, "source": "mnist_by_writer"},
    )


declare("digits_binary", DIGITS, elsewhere="inside scikit-learn: pip install '.[digits]'")
declare("mnist_binary", MNIST, elsewhere="turnout data fetch mnist")


@SOURCES.register
def digits_binary(groups: int = 10) -> Source:
    """Digits as two classes, 0 to 4 and 5 to 9; natural clients are groups sorted by digit.

    Inputs are flat, float32 ``[1797, 64]`` in [0, 1].

    Args:
        groups: number of groups of equal size, each a natural client.
    """
    return in_two_classes(digits(), groups)


@SOURCES.register
def mnist_binary(
    directory: str | os.PathLike[str] | None = None, *, groups: int = 10, examples: int | None = None
) -> Source:
    """MNIST as two classes, 0 to 4 and 5 to 9; natural clients are groups sorted by digit.

    Inputs are float32 ``[n, 1, 28, 28]`` in [0, 1], without normalization. Chen et al. divide MNIST into ten groups and do
    not state how, nor the classes; groups sorted by digit are as heterogeneous as possible.

    Args:
        directory: the data directory, or the folder of MNIST's files.
        groups: number of groups of equal size, each a natural client.
        examples: number of evenly spaced training examples; None is all 60,000.
    """
    return in_two_classes(mnist(directory), groups, examples)


def in_two_classes(source: Source, groups: int, examples: int | None = None) -> Source:
    """Merge the lower and the upper half of the classes, and divide the examples into groups sorted by class.

    Args:
        source: the data.
        groups: number of groups, whose sizes differ by at most one.
        examples: number of evenly spaced examples; None is all.

    Raises:
        ConfigurationError: if there are more groups than examples.
    """
    count("groups", groups)
    if examples is not None:
        count("examples", examples)
    n = min(examples or len(source.y), len(source.y))
    if groups > n:
        raise ConfigurationError(f"groups: got {groups}, needed at most one for each of {n} examples")
    rows = torch.linspace(0, len(source.y) - 1, n, dtype=torch.float64).round().long()
    assert source.num_classes is not None
    half, y = source.num_classes // 2, source.y[rows]
    owner = np.empty(n, dtype=np.int64)
    owner[np.argsort(y.numpy(), kind="stable")] = np.arange(n) * groups // n
    return replace(
        source,
        name=f"{source.name}_binary",
        x=source.x[rows],
        y=(y >= half).long(),
        num_classes=2,
        test_y=None if source.test_y is None else (source.test_y >= half).long(),
        client_ids=owner,
        client_names=None,
        test_client_ids=None,
        transforms=(),
        recipe={**source.recipe, "classes": "two halves", "groups": groups, "examples": examples},
    )
