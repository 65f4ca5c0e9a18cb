"""Load MNIST by writer: the images of MNIST with the writers from QMNIST's extended labels."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

from turnout.data.client_ids import number_clients
from turnout.data.directory import Place, declare
from turnout.data.named.idx import MNIST, mnist, read_idx
from turnout.data.source import SOURCES, Source

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
