"""Load data of LEAF: folders of JSON files with one entry per user (FEMNIST, Shakespeare, Sent140, ...)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from turnout.core.checks import DataError, refuse, shown
from turnout.data.arrays import from_arrays
from turnout.data.directory import Place, declare
from turnout.data.named.shakespeare import ALPHABET, character_indices
from turnout.data.reading import read_json
from turnout.data.source import SOURCES, Source
from turnout.data.values import canonical

Folder = str | os.PathLike[str]

Convert = Callable[[str, list[Any], list[Any]], tuple[np.ndarray, np.ndarray]]
"""A function of a user's name and raw inputs and labels, which returns arrays ``[n, ...]`` and int64 ``[n]``."""


def leaf_users(folder: Folder) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Yield (user, inputs, labels) of every user in the ``.json`` files of `folder`, in sorted order of the files.

    A user in two files is an error: preprocess.sh, run twice with other options, leaves the files of both runs.

    Inputs and labels are raw: 784 floats for FEMNIST, strings for Shakespeare, lists of six strings (the fifth is the text)
    for Sent140.

    Raises:
        DataError: if a folder has no JSON files, a file is damaged or not in LEAF's format, or a user is listed twice.
    """
    paths = sorted(Path(folder).expanduser().glob("*.json"))
    if not paths:
        raise DataError(
            f"{folder}: no .json files here; needed a folder that LEAF's preprocess.sh wrote, e.g. data/train"
        )
    files: dict[str, Path] = {}
    for path in paths:
        try:
            content = read_json(path)
            entries = [
                (user, content["user_data"][user]["x"], content["user_data"][user]["y"]) for user in content["users"]
            ]
        except (DataError, KeyError, TypeError) as error:
            raise DataError(
                f"{path}: not a LEAF file ({type(error).__name__}: {error}); needed an object with users and "
                "user_data: {user: {x, y}}. Write it again with LEAF's preprocess.sh"
            ) from error
        for user, x, y in entries:
            _check_user(user, x, y, path)
            _check_once(user, path, files)
            yield user, x, y


def _check_once(user: str, path: Path, files: dict[str, Path]) -> None:
    """Raise an error for a user who was read before, under a name that Unicode declares equal; else note the file."""
    name = canonical(user)
    if (first := files.get(name)) == path:
        raise DataError(
            f"{path}: user {user!r} is listed twice, and its examples would count twice: list each user once"
        )
    if first is not None:
        raise DataError(
            f"{path}: user {user!r} is in {first.name} as well, and its examples would count twice: keep the files of one "
            "run of preprocess.sh in the folder"
        )
    files[name] = path


def _check_user(user: Any, x: Any, y: Any, path: Path) -> None:
    """Raise an error for a user whose name is not a text, or whose inputs and labels are not lists of one length."""
    if not isinstance(user, str) or not user or (not user.isascii() and user.encode(errors="ignore").decode() != user):
        raise DataError(f"{path}: a user is called {user!r}, needed a text that can be written in UTF-8")
    if not isinstance(x, list) or not isinstance(y, list):
        kinds = f"{type(x).__name__} and {type(y).__name__}"
        raise DataError(f"{path}: x and y of user {user!r} are {kinds}, needed two lists")
    if len(x) != len(y):
        raise DataError(f"{path}: user {user!r} has {len(x)} inputs but {len(y)} labels")


def read_leaf_json(folder: Folder) -> tuple[list[str], list[list[Any]], list[list[Any]]]:
    """Return all users of a LEAF folder, and the raw inputs and labels of each; see `leaf_users`."""
    entries = list(leaf_users(folder))
    return [user for user, _, _ in entries], [x for _, x, _ in entries], [y for _, _, y in entries]


def train_and_test(folder: Path) -> tuple[Path, Path | None]:
    """Return the folders ``train`` and ``test`` of LEAF's output; None for a second folder without files."""
    test = folder / "test"
    return folder / "train", test if any(test.glob("*.json")) else None


def leaf_images(
    train_directory: Folder,
    test_directory: Folder | None = None,
    *,
    shape: tuple[int, ...] = (1, 28, 28),
    labels: tuple[int, ...] | None = None,
    num_classes: int | None = None,
    name: str = "femnist",
) -> Source:
    """Load LEAF data whose inputs are lists of numbers: FEMNIST by default, others by `shape` and `num_classes`.

    Inputs are float32 ``[n, *shape]``, with the scale of the files (FEMNIST: [0, 1], black on white); labels are class
    indices. The natural client is the user. Users with only test examples are numbered after the others.

    Args:
        train_directory, test_directory: folders of ``.json`` files.
        shape: shape of one input.
        labels: select examples of these classes, as classes 0, 1, ... in this order; users without any are left out.
        num_classes: C; None is 62, or the number of `labels`.
        name: name of the data in reports.

    Raises:
        ConfigurationError: if `labels` are not different integers >= 0.
        DataError: if a file is damaged, or an input has another size than `shape`.

    Reference: S. Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097, 2018.
    """
    if labels is not None:
        _check_labels(labels)

    def convert(user: str, x: list[Any], y: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        classes = np.array([_class_index(name, user, label) for label in y], dtype=np.int64)
        if labels is not None:
            index = {label: i for i, label in enumerate(labels)}
            x = [image for image, label in zip(x, classes.tolist(), strict=True) if label in index]
            classes = np.array([index[label] for label in classes.tolist() if label in index], dtype=np.int64)
        try:
            return _floats(x).reshape(len(x), *shape), classes
        except ValueError as error:
            needed = f"{math.prod(shape)} numbers, for shape {shape}"
            raise DataError(f"{name}: an input of user {user!r} is not {needed}: {error}") from error

    if num_classes is None:
        num_classes = 62 if labels is None else len(labels)
    return leaf_source(train_directory, test_directory, convert, num_classes, name)


def leaf_characters(
    train_directory: Folder,
    test_directory: Folder | None = None,
    *,
    sequence_length: int = 80,
    name: str = "shakespeare_leaf",
) -> Source:
    """LEAF's Shakespeare: the next character after 80 characters of a speaking role.

    Inputs are character indices, uint8 ``[n, sequence_length]``, and labels are the index of the next character; the alphabet
    is `turnout.data.named.shakespeare.ALPHABET`. The natural client is the role.

    Raises:
        DataError: if a file is damaged, or an input or label has another length.

    Reference: S. Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097, 2018.
    """

    def characters(user: str, texts: list[Any], length: int, what: str) -> np.ndarray:
        if wrong := [text for text in texts if not isinstance(text, str) or len(text) != length]:
            raise DataError(f"{name}: {what} of user {user!r} is {shown(wrong[0])}, needed a string of length {length}")
        return character_indices("".join(texts)).reshape(-1, length)

    def convert(user: str, x: list[Any], y: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        inputs = characters(user, x, sequence_length, "an input")
        return inputs, characters(user, y, 1, "a label").reshape(-1).astype(np.int64)

    return leaf_source(train_directory, test_directory, convert, len(ALPHABET), name)


def leaf_source(
    train_directory: Folder, test_directory: Folder | None, convert: Convert, num_classes: int, name: str
) -> Source:
    """Make a source from both folders, with a client for each user of whom `convert` returns examples."""

    def read(folder: Folder) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
        # Users are converted as they are read, since Python objects take ten times the memory of arrays.
        users = [(user, *convert(user, x, y)) for user, x, y in leaf_users(folder)]
        users = [(user, x, y) for user, x, y in users if len(x)]
        if not users:
            raise DataError(f"{folder}: no user has any examples")
        owners = np.repeat([user for user, _, _ in users], [len(y) for _, _, y in users])
        x, y = (np.concatenate([user[part] for user in users]) for part in (1, 2))
        return torch.from_numpy(x), torch.from_numpy(y), owners

    x, y, owners = read(train_directory)
    test_x, test_y, test_owners = (None, None, None) if test_directory is None else read(test_directory)
    parts = {"client_ids": owners, "test_x": test_x, "test_y": test_y, "test_client_ids": test_owners}
    return from_arrays(x, y, **parts, num_classes=num_classes, name=name)


def _floats(values: list[Any]) -> np.ndarray:
    """Convert nested lists of numbers to float32.

    Raises:
        ValueError: if values are not numbers, or lists have different lengths.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        kind = "true or false" if array.dtype.kind == "b" else "texts, or numbers beyond 64 bits"
        raise ValueError(f"it holds {kind}")
    with np.errstate(over="ignore"):  # `Examples` raises an error for infinity
        return array.astype(np.float32)


def _class_index(name: str, user: str, label: Any) -> int:
    """Convert a label to an int; it may be a text or a float."""
    if isinstance(label, str) and label.isdecimal() and len(label) < 10:
        return int(label)
    if isinstance(label, int | float) and not isinstance(label, bool) and 0 <= label < 2**31 and label == int(label):
        return int(label)
    raise DataError(f"{name}: a label of user {user!r} is not a class index: got {shown(label)}, needed 0, 1, ...")


def _check_labels(labels: Any) -> None:
    whole = isinstance(labels, tuple) and all(type(label) is int and label >= 0 for label in labels)
    if not whole or not 0 < len(set(labels)) == len(labels):
        raise refuse("labels", given=labels, needed="a tuple of different whole numbers >= 0, or None")


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

    Classes 0 to 9 are the digits, 10 to 35 upper-case and 36 to 61 lower-case letters. The ``.json`` files are in the folders
    ``train`` and, optionally, ``test`` in ``FEMNIST`` of the data directory; see `leaf_images`.

    FedProx and FOLB use the ten letters a to j, with a model for 26 letters, 200 clients of three neighboring letters
    each, and a tenth of each client's images for its test. This corresponds to ``femnist(labels=tuple(range(36, 46)),
    num_classes=26)`` and ``split(PowerLaw(classes_per_client=3), 200, official_test="pool", test_fraction=0,
    client_test_fraction=0.1)``, with two differences: there the sizes of clients are LogNormal(4, 1) + 5, a third for each
    letter; and all clients of a letter start with its first image, so that clients have copies, and test images of one are
    training images of others. Files that their script wrote can be read with ``num_classes=26``.

    Args:
        directory: the data directory, or the folder that contains the folder ``train``.
        labels: select examples of these classes, as classes 0, 1, ... in this order.
        num_classes: C; None is 62, or the number of `labels`.

    Raises:
        ConfigurationError: if `labels` are not different integers >= 0.
        DataError: if files are missing or damaged.

    Reference: S. Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097, 2018.
    """
    return leaf_images(*train_and_test(FEMNIST.locate(directory)), labels=labels, num_classes=num_classes)
