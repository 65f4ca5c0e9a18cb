"""Describe configurations as plain values, and list the differences between two of them."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from turnout.base.algorithm import Algorithm
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.engine.loss import OfExamples
from turnout.engine.parameters import Layout
from turnout.population.table import ENDINGS
from turnout.record.user_code import code, of_files


class Kind(str):
    """The name of a dataclass in a description, with a reference to the class until the description is saved.

    Attributes:
        of: the class.
    """

    of: type

    @classmethod
    def named(cls, of: type) -> Kind:
        """Return the name of a dataclass."""
        kind = cls(of.__name__)
        kind.of = of
        return kind

    def defaults(self) -> dict[str, Any]:
        """Return descriptions of the defaults of fields, by name."""
        values: dict[str, Any] = {}
        for field in dataclasses.fields(self.of):
            if field.default_factory is not dataclasses.MISSING:
                values[field.name] = describe(field.default_factory())
            elif field.default is not dataclasses.MISSING:
                values[field.name] = describe(field.default)
        return values


def describe(thing: Any) -> Any:
    """Describe an object by plain values (numbers, strings, lists, mappings), which can be saved as JSON."""
    for kind, of_kind in _DESCRIBED.items():
        if isinstance(thing, kind):
            return of_kind(thing)
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        values = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing)}
        fields = {name: describe(value) for name, value in values.items()}
        parts = [part for value in values.values() for part in (value if isinstance(value, tuple) else (value,))]
        used = code([type(thing), *parts]) | _content(fields, getattr(thing, "files", ()))
        return {"kind": Kind.named(type(thing))} | fields | used
    return getattr(thing, "__qualname__", type(thing).__qualname__)


def _content(options: Mapping[str, Any], files: Iterable[Path]) -> dict[str, Any]:
    """Return checksums of the tables that options name, by option, and of further files; those that are missing have none."""
    paths = {name: Path(value) for name, value in options.items() if isinstance(value, str) and value.endswith(ENDINGS)}
    sums = {name: f"crc32 {zlib.crc32(path.read_bytes()):08x}" for name, path in paths.items() if path.is_file()}
    sums |= of_files(files)
    return {"content": sums} if sums else {}


def _data(data: FederatedData) -> dict[str, Any]:
    """Describe the data by their source and their shape, with a checksum of the partition and the labels."""
    train = data.train
    return {
        "name": data.name,
        "recipe": describe(data.recipe),
        "num_clients": data.num_clients,
        "num_examples": len(train.x),
        "example": list(train.x.shape[1:]),
        "num_classes": data.num_classes,
        "transforms": describe(data.transforms),
        "crc32": _crc32(train),
        "inputs": [_sampled(shards.x) for shards in (train, data.test, data.client_test) if shards is not None],
        "held_out": {
            name: [f"{_crc32(shards):08x}", *_sampled(shards.x)]
            for name, shards in data.splits.items()
            if name != "train"
        },
    }


def _crc32(shards: Shards) -> int:
    """Return a checksum of clients' numbers of examples, targets and weights."""
    weights = b"" if shards.weights is None else _bytes(shards.weights)
    return zlib.crc32(weights, zlib.crc32(_bytes(shards.y), zlib.crc32(shards.offsets.tobytes())))


def _sampled(x: torch.Tensor) -> list[str]:
    """Return a fingerprint of inputs ``[n, ...]``: the root mean square of each quarter of up to 1,024 examples.

    It has four digits, because other machines may draw or normalize the same data with other last bits. Of memory-mapped
    data, only these examples are read.
    """
    rows = torch.from_numpy(np.unique(np.linspace(0, max(len(x) - 1, 0), 1024).astype(np.int64)))[: len(x)]
    parts = x[rows].detach().cpu().double().chunk(4) if len(x) else ()
    return [f"{part.square().mean().sqrt().item():.4g}" for part in parts]


def _module(module: nn.Module) -> dict[str, Any]:
    """Describe a model by its layers, and by the initial values of its parameters and of what is not trained."""
    layout = Layout.of(module)
    shapes = {name: list(shape) for name, shape in zip(layout.names, layout.shapes, strict=True)}
    fixed = [value for name, value in module.state_dict().items() if name not in shapes and torch.is_tensor(value)]
    return {
        "kind": type(module).__name__,
        "parameters": shapes,
        "crc32": zlib.crc32(_bytes(layout.flatten(module))),
        "fixed_crc32": _checksum(fixed),
        "layers": {name or "whole": _layer(layer) for name, layer in module.named_modules()},
    } | code(dict.fromkeys(map(type, module.modules())))


def _layer(layer: nn.Module) -> str:
    """Return the class and the numbers of a layer, and the options of one of torch: ``"Dropout(inplace=False, p=0.5)"``."""
    plain = (int, float, str) if type(layer).__module__.startswith("torch.") else (int, float)
    options = {key: value for key, value in vars(layer).items() if not key.startswith("_") and key != "training"}
    texts = [
        f"{key}={value!r}" for key, value in sorted(options.items()) if isinstance(value, plain) or _is_sizes(value)
    ]
    return f"{type(layer).__name__}({', '.join(texts)})"


def _is_sizes(value: Any) -> bool:
    """Return whether a value is a tuple of numbers, such as the size of a kernel."""
    return isinstance(value, tuple) and all(isinstance(size, int | float) for size in value)


def _loss(loss: nn.Module) -> dict[str, Any]:
    """Describe a loss module by its class, its options and its buffers."""
    options = {
        key: describe(value) for key, value in vars(loss).items() if not key.startswith("_") and key != "training"
    }
    return {"kind": type(loss).__name__, "options": options, "crc32": _checksum(loss.buffers())} | code([type(loss)])


def _checksum(tensors: Iterable[torch.Tensor]) -> int:
    """Return a checksum of tensors; 0 of none."""
    crc32 = 0
    for tensor in tensors:
        crc32 = zlib.crc32(_bytes(tensor), crc32)
    return crc32


def _bytes(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a tensor of any type."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


_DESCRIBED: Mapping[Any, Callable[[Any], Any]] = {
    FederatedData: _data,
    OfExamples: lambda loss: _loss(loss.module),
    nn.Module: _module,
    Algorithm: lambda it: {"name": it.name} | {slot: describe(piece) for slot, piece in it.pieces().items()},
    Mapping: lambda table: {str(key): describe(value) for key, value in table.items()},
    (list, tuple): lambda values: [describe(value) for value in values],
    np.ndarray: lambda array: {"kind": "array", "shape": list(array.shape), "crc32": zlib.crc32(array.tobytes())},
    np.generic: lambda number: number.item(),
    Path: str,
}
"""Functions that describe objects, by type; the first matching type applies."""


def agreed(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a server and its clients have in common, of the description of an experiment."""
    loss, code = description["loss"], description.get("code", {})
    common = {name: description[name] for name in ("algorithm", "model", "loss", "seed")}
    return common | ({"loss_code": code[loss]} if isinstance(loss, str) and loss in code else {})


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables by dotted names, including empty tables.

    >>> dict(flat({"local": {"lr": 0.1, "steps": 5}, "rounds": 10}))
    {'local.lr': 0.1, 'local.steps': 5, 'rounds': 10}
    """
    for key, value in table.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping) and value:
            yield from flat(value, name)
        else:
            yield name, value


def without_neutral(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return a description without the options that change no result, which may differ in a resumed run.

    On a GPU, the memory budget may change the last digits of sums.
    """
    return {**description, "rounds": None, "memory_budget": None}


# Keys that descriptions of older versions lack.
_NEWER = {"code", "content", "fixed_crc32", "held_out", "inputs", "layers", "used"}


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Yield the differences between two descriptions, as ``"algorithm.local.lr: 0.1 and 0.2"``.

    A field that a saved description lacks counts as its default if the other description is not loaded from a file: versions
    that add a field to a class resume runs of older versions, so its default must keep their behavior. Keys in `_NEWER` are
    compared only if both descriptions have them.
    """
    if not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        if one != other:
            yield f"{path}: {one!r} and {other!r}"
        return
    defaults = _defaults(one.get("kind"), other.get("kind")) if one.keys() != other.keys() else {}
    missing = one.keys() ^ other.keys()
    for key in sorted((one.keys() | other.keys()) - (missing & _NEWER)):
        first, second = (table.get(key, defaults.get(key)) for table in (one, other))
        yield from differences(first, second, f"{path}.{key}" if path else key)


def _defaults(one: Any, other: Any) -> dict[str, Any]:
    """Return the defaults of the dataclass of both descriptions; empty if classes differ, or if both were loaded."""
    fresh = [kind for kind in (one, other) if isinstance(kind, Kind)]
    return fresh[0].defaults() if fresh and one == other else {}
