"""Convert federations of Flower Datasets and of pfl-research to sources with the same clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, DataError
from turnout.data.arrays import as_inputs, as_targets, float_type, from_arrays
from turnout.data.huggingface import check_split, from_huggingface
from turnout.data.source import Source
from turnout.data.tokens import from_tokens

_CLIENT = "partition of the federation"


def from_flower(
    federation: Any,
    *,
    input: str = "image",
    label: str | None = "label",
    split: str = "train",
    test: str | None = None,
    num_classes: int | None = None,
    name: str = "flower",
) -> Source:
    """Make a source from a ``FederatedDataset`` or a partitioner of Flower Datasets; partition i is client i.

    All partitions are loaded once, by Flower, which may download them. ``split()`` without a partition keeps the clients.

    Args:
        federation: federation of the package ``flwr-datasets``; the ``dataset`` of a partitioner has to be set.
        input, label: names of the columns of inputs and labels. With ``input="input_ids"`` inputs are tokens, and
            ``label=None`` is language modeling (see `from_tokens`).
        split: the partitioned split of a ``FederatedDataset``.
        test: its official test split; None is none.
        num_classes: C; None is that of the label column, or one more than the largest label.
        name: name of the data in reports.

    Raises:
        ConfigurationError: if an object is of another kind, or a column is missing.
        DataError: as `from_huggingface` does.
    """
    partitions, held_out = _partitions(federation, split, test)
    train, rest = _Joined(partitions, clients=True), None if held_out is None else _Joined([held_out])
    options = {"client_id": _CLIENT, "test": rest, "num_classes": num_classes, "name": name}
    if input == "input_ids":
        return from_tokens(train, label=label, **options)
    if label is None:
        raise ConfigurationError("label: got None, needed the name of a column: only tokens are their own targets")
    return from_huggingface(train, input=input, label=label, **options)


def from_pfl(federation: Any, user_ids: Iterable[Any], *, num_classes: int | None = None, name: str = "pfl") -> Source:
    """Make a source from a ``FederatedDataset`` of pfl-research; users are clients.

    The ``raw_data`` of a user are inputs and targets, arrays or tensors of one length. ``split()`` without a partition keeps
    the users.

    Args:
        federation: federation of the package ``pfl``, made from a function of the user, or by ``from_slices``.
        user_ids: the users, such as those of its sampler; pfl's object itself does not list them.
        num_classes: C; None is one more than the largest label.
        name: name of the data in reports.

    Raises:
        ConfigurationError: if an object is of another kind, or there are no users.
        DataError: if data of a user are not a pair of inputs and targets, or differ in shape.
    """
    make = getattr(federation, "make_dataset_fn", None)
    if not callable(make):
        raise ConfigurationError(
            f"{type(federation).__name__} has no make_dataset_fn: needed a FederatedDataset of pfl-research (pip install pfl)"
        )
    inputs, targets, owners = [], [], {}
    for user in user_ids:
        if str(user) in owners:
            raise DataError(f"user_ids: user {str(user)!r} is there twice, and its examples would count twice")
        data = make(user)
        raw = getattr(data, "raw_data", data)
        if not isinstance(raw, list | tuple) or len(raw) != 2:
            raise DataError(f"user {user!r}: raw_data is no pair of inputs and targets of one length")
        inputs.append(as_inputs(raw[0]))
        targets.append(as_targets(raw[1], float_type(inputs[-1])))
        if len(inputs[-1]) != len(targets[-1]):
            raise DataError(f"user {user!r}: raw_data is no pair of inputs and targets of one length")
        owners[str(user)] = len(targets[-1])
    if not owners:
        raise ConfigurationError("user_ids: got none, needed the users whose data are to be read")
    for what, parts in (("inputs", inputs), ("targets", targets)):
        if len(types := {str(part.dtype) for part in parts}) > 1:
            raise DataError(f"the users' {what} are {' and '.join(sorted(types))}: convert them to one type")
    try:
        x, y = torch.cat(inputs), torch.cat(targets)
    except RuntimeError as error:
        raise DataError(f"the users' data differ in shape: {error}") from error
    return from_arrays(
        x, y, client_ids=np.repeat(list(owners), list(owners.values())), num_classes=num_classes, name=name
    )


class _Joined:
    """The concatenated columns of several data sets, with the interface of a Hugging Face data set."""

    def __init__(self, parts: list[Any], clients: bool = False) -> None:
        for part in parts:
            check_split(part)
        self._parts, self._clients = parts, clients
        self.features = getattr(parts[0], "features", None)
        self.column_names = [*parts[0].column_names, *([_CLIENT] if clients else [])]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __getitem__(self, column: str) -> list[Any]:
        if column == _CLIENT and self._clients:
            return np.repeat(np.arange(len(self._parts)), [len(part) for part in self._parts]).tolist()
        return [value for part in self._parts for value in part[column]]


def _partitions(federation: Any, split: str, test: str | None) -> tuple[list[Any], Any]:
    """Load all partitions, and the test split if there is one."""
    if not hasattr(federation, "load_partition"):
        raise ConfigurationError(
            f"{type(federation).__name__} has no load_partition: needed a FederatedDataset or a partitioner of Flower "
            "Datasets (pip install flwr-datasets)"
        )
    if hasattr(federation, "load_split"):
        if split not in (known := federation.partitioners):
            listed = ", ".join(map(repr, known))
            raise ConfigurationError(f"split: got {split!r}, and the partitioned splits are {listed}")
        parts = [federation.load_partition(i, split) for i in range(known[split].num_partitions)]
        return parts, None if test is None else federation.load_split(test)
    if test is not None:
        raise ConfigurationError(f"test: got {test!r}, but a partitioner has one split: give a FederatedDataset")
    return [federation.load_partition(i) for i in range(federation.num_partitions)], None
