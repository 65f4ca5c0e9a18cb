"""FEMNIST: handwritten digits and letters by writer, as LEAF writes them."""

from __future__ import annotations

import os

from turnout.data.directory import Place, declare
from turnout.data.leaf import leaf_images, train_and_test
from turnout.data.source import SOURCES, Source

FEMNIST = Place(
    "femnist",
    ("train/*.json",),
    ("FEMNIST", "femnist", "femnist/data"),
    bare=(".", "data"),
    remedy="Run LEAF's data/femnist/preprocess.sh and put its folders train and test there",
)

declare("femnist", FEMNIST, elsewhere="written by LEAF's data/femnist/preprocess.sh")


@SOURCES.register
def femnist(
    directory: str | os.PathLike[str] | None = None,
    *,
    labels: tuple[int, ...] | None = None,
    num_classes: int | None = None,
) -> Source:
    """FEMNIST: 28x28 handwritten digits and letters, 62 classes, by writer; from the files that LEAF writes.

    Classes 0 to 9 are the digits, 10 to 35 upper-case and 36 to 61 lower-case letters. Reads the ``.json`` files of the
    folders ``train`` and, if there is one, ``test`` in ``FEMNIST`` in the data directory; see `leaf_images`.

    FedProx and FOLB use the ten letters a to j, with a model for 26 letters, 200 clients of three neighbouring letters
    each, and a tenth of each client's images for its test. That is ``femnist(labels=tuple(range(36, 46)),
    num_classes=26)`` and ``split(PowerLaw(classes_per_client=3), 200, official_test="pool", test_fraction=0,
    client_test_fraction=0.1)``, with two differences: clients' sizes there are LogNormal(4, 1) + 5, a third for each
    letter; and all clients of a letter start with its first image, so that they hold copies, and what one tests on others
    train on. Files that their script wrote are read as they are, with ``num_classes=26``.

    Args:
        directory: the data directory, or the folder that has the folder ``train``.
        labels: keep examples of these classes only, as classes 0, 1, ... in this order.
        num_classes: C; None is 62, or as many as `labels`.

    Raises:
        ConfigurationError: for `labels` that are not different whole numbers >= 0.
        DataError: if files are missing or damaged.

    Reference: S. Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097, 2018.
    """
    return leaf_images(*train_and_test(FEMNIST.locate(directory)), labels=labels, num_classes=num_classes)
