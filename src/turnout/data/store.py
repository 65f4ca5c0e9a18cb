"""Store federations on disk and map them into memory, so that only examples in use are read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, DataError, known_name
from turnout.core.system import move
from turnout.data.federated import SPLITS, FederatedData
from turnout.data.shards import Shards
from turnout.data.transforms import Transform

INDEX = "index.json"

_FORMAT = 1
_TYPES = ("uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")

Client = tuple[Any, Any]
"""Inputs ``[n, ...]`` and targets ``[n, ...]`` of one client."""


def store(
    folder: str | os.PathLike[str],
    clients: FederatedData | Mapping[str, Iterable[Client]],
    *,
    name: str = "store",
    num_classes: int | None = None,
    client_names: Sequence[str] | None = None,
) -> None:
    """Write a federation into a folder, one client at a time; `stored` reads it.

    Files are replaced when all are written: an earlier federation in the folder remains what it was after an error, and for
    whoever has loaded it.

    Args:
        folder: folder, which is created.
        clients: a federation, or for each split (``"train"``, ``"validation"``, ``"client_test"``, ``"test"``, ...) an
            iterable of its clients, such as a generator. ``"test"`` has one holder.
        name: name of the data in reports; a federation determines it and the two following arguments.
        num_classes: C; None is one more than the largest label.
        client_names: names of the training clients.

    Raises:
        ConfigurationError: if a split is unknown, or there are no training clients.
        DataError: if shapes or types of clients differ, or inputs contain NaN or infinity, with the client.

    Example:
        >>> import tempfile, torch
        >>> clients = ((torch.rand(3, 2), torch.tensor([0, 1, k % 2])) for k in range(100))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store(folder, {"train": clients})
        ...     stored(folder).num_clients
        100
    """
    transforms: list[str] = []
    if isinstance(clients, FederatedData):
        if clients.train.weights is not None:
            raise ConfigurationError("store: weights of examples are not stored: leave them out")
        name, num_classes, client_names = clients.name, clients.num_classes, clients.client_names
        transforms = list(map(str, clients.transforms))
        clients = {split: map(shards.client, range(shards.num_clients)) for split, shards in clients.splits.items()}
    if "train" not in clients:
        raise ConfigurationError("store: there are no training clients: give {'train': ...}")
    for split in clients:
        known_name("split", split, SPLITS)
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    names = [f"{split}.{content}.bin" for split in clients for content in ("x", "y", "offsets")]
    parts = {path / f"{name}.part": path / name for name in (*names, INDEX)}
    try:
        index = {
            "format": _FORMAT,
            "name": name,
            "num_classes": num_classes,
            "client_names": None if client_names is None else list(client_names),
            "transforms": transforms,
            "splits": {split: _write(path, split, several) for split, several in clients.items()},
        }
        (path / f"{INDEX}.part").write_text(json.dumps(index), encoding="utf-8")
        for part, target in parts.items():
            move(part, target)
    finally:
        for part in parts:
            part.unlink(missing_ok=True)


def stored(
    folder: str | os.PathLike[str], *, transforms: Sequence[Transform] | None = None, mapped: bool = True
) -> FederatedData:
    """Load a federation that `store` has written.

    Args:
        folder: folder with the files.
        transforms: transforms of minibatches, which are not part of the files; None is none, if the stored federation had
            none. ``Normalize`` scales uint8 images to [0, 1] before it normalizes them.
        mapped: map inputs into memory, so that the system reads those of a minibatch when needed and caches what fits. The
            files must not change in the meantime. False reads all data at once, which a GPU needs.

    Raises:
        ConfigurationError: if the stored federation had transforms, and none are given.
        DataError: if the folder has no federation, or sizes of files differ from the index.
    """
    path = Path(folder)
    try:
        index = json.loads((path / INDEX).read_text(encoding="utf-8"))
        if index["format"] != _FORMAT:
            raise DataError(
                f"{path} has format {index['format']} of stores, and this version reads {_FORMAT}: write it anew"
            )
        if transforms is None and (had := index.get("transforms")):
            raise ConfigurationError(
                f"stored: the federation in {path} had the transforms {', '.join(had)}, which are not part of the files: "
                "write stored(folder, transforms=data.transforms), or transforms=() for none"
            )
        splits: dict[str, Any] = {split: _read(path, split, facts, mapped) for split, facts in index["splits"].items()}
        names = index["client_names"]
        return FederatedData(
            name=index["name"],
            num_classes=index["num_classes"],
            transforms=tuple(transforms or ()),
            client_names=None if names is None else tuple(names),
            recipe={"source": "store", "name": index["name"]},
            **splits,
        )
    except FileNotFoundError as error:
        raise DataError(
            f"{path} holds no stored federation ({error.filename}): write one with to.data.store"
        ) from error
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError, OSError) as error:
        raise DataError(f"{path} is damaged ({error}): write it anew with to.data.store") from error


def _write(path: Path, split: str, clients: Iterable[Client]) -> dict[str, Any]:
    """Write the clients of a split to incomplete files, and return its entry of the index."""
    facts: dict[str, Any] = {}
    sizes: list[int] = []
    with ExitStack() as stack:
        files = {part: stack.enter_context((path / f"{split}.{part}.bin.part").open("wb")) for part in ("x", "y")}
        for k, (x, y) in enumerate(clients):
            tensors = {"x": torch.as_tensor(x), "y": torch.as_tensor(y)}
            if len(tensors["x"]) != len(tensors["y"]):
                raise DataError(
                    f"store: client {k} of {split} has {len(tensors['x'])} inputs and {len(tensors['y'])} targets"
                )
            for part, tensor in tensors.items():
                kind = {"type": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape[1:])}
                if facts.setdefault(part, kind) != kind:
                    raise DataError(f"store: {part} of client {k} of {split} is {kind}, of those before {facts[part]}")
                _append(files[part], tensor, f"client {k} of {split}")
            sizes.append(len(tensors["x"]))
    np.asarray(np.cumsum([0, *sizes]), dtype=np.int64).tofile(path / f"{split}.offsets.bin.part")
    if not sizes:
        raise ConfigurationError(f"store: {split} has no clients: leave it out")
    return facts | {"clients": len(sizes), "examples": sum(sizes)}


def _append(file: IO[bytes], tensor: torch.Tensor, whose: str) -> None:
    """Append a tensor to a file."""
    name = str(tensor.dtype).removeprefix("torch.")
    known_name("type", name, _TYPES)
    if tensor.is_floating_point() and not torch.isfinite(tensor).all():
        raise DataError(f"store: {whose} holds NaN or infinity: clean or impute it before")
    file.write(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _read(path: Path, split: str, facts: Mapping[str, Any], mapped: bool) -> Shards:
    """Load the shards of a split."""
    known_name("split", split, SPLITS)
    x, y = (_tensor(path / f"{split}.{part}.bin", facts["examples"], facts[part]) for part in ("x", "y"))
    offsets = np.fromfile(path / f"{split}.offsets.bin", dtype=np.int64)
    if len(offsets) != facts["clients"] + 1:
        raise DataError(f"{path} is damaged ({split}.offsets.bin has {len(offsets)} numbers): write it anew")
    # Targets are small and are scanned more often than inputs.
    return Shards(x if mapped else x.clone(), y.clone(), offsets, mapped=mapped)


def _tensor(path: Path, number: int, kind: Mapping[str, Any]) -> torch.Tensor:
    """Map a file to a tensor, read-only."""
    dtype = getattr(torch, known_name("type", kind["type"], _TYPES))
    shape = [number, *map(int, kind["shape"])]
    size = int(np.prod(shape, dtype=np.int64))
    if path.stat().st_size != size * dtype.itemsize:
        raise DataError(
            f"{path} is damaged ({path.stat().st_size:,} bytes, needed {size * dtype.itemsize:,}): write it anew"
        )
    if size == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.from_file(str(path), shared=False, size=size, dtype=dtype).reshape(shape)
