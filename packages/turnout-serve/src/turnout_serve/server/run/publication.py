"""Publish models: a file for each version that clients download."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save

from turnout.base.algorithm import Algorithm
from turnout.core.system import move
from turnout.core.types import State
from turnout.record.trained import Trained
from turnout_serve.server.store.store import Store
from turnout_serve.wire.format import is_finite, model_tensors

_FILES = 4
"""Versions that `CurrentModel` keeps, for downloads that take longer than a step."""


class Published(NamedTuple):
    """A published model: its version, parameters, shared vectors, digest and size."""

    version: int
    params: torch.Tensor
    shared: State
    digest: str
    size: int


class Publication:
    """Write the present model to a file, once for each version.

    Args:
        store: the files.
        algorithm: has the type in which models are sent.

    Attributes:
        last: the last model that was published.
        finite: False where it holds NaN or infinity in the type that clients get.
    """

    def __init__(self, store: Store, algorithm: Algorithm) -> None:
        self._store, self._algorithm = store, algorithm
        self.last: Published | None = None
        self.finite = True

    @property
    def digest(self) -> str | None:
        """Digest of the last model that was published."""
        return None if self.last is None else self.last.digest

    def publish(self, version: int, params: torch.Tensor, shared: State, needed: Iterable[str]) -> Published:
        """Write a model to a file, unless it is the last one.

        Args:
            version: number of server steps.
            params: the model, ``[P]``.
            shared: vectors that are broadcast beside it.
            needed: digests of other models that open tasks need; all others are deleted.
        """
        last = self.last
        if last is None or last.params is not params or last.shared is not shared:
            tensors = model_tensors(params, shared, self._algorithm.broadcast_dtype(params.dtype))
            self.finite = all(is_finite(value) for value in tensors.values() if value.is_floating_point())
            digest, size = self._store.files.write_model(tensors)
            last = self.last = Published(version, params, shared, digest, size)
            self._store.files.keep_models({digest, *needed})
        if last.version != version:  # the step has not changed the model
            last = self.last = last._replace(version=version)
        return last


class Export(NamedTuple):
    """A file of named tensors: its path, its SHA-256 in hexadecimal digits, and the version of the model."""

    path: Path
    digest: str
    version: int


class CurrentModel:
    """Export the present model as `turnout export` does, once for each version that is requested.

    Args:
        folder: folder of the exports.
        publication: the models that clients download.
        trained: names of the parameters of the model.
    """

    def __init__(self, folder: Path, publication: Publication, trained: Trained) -> None:
        self._folder, self._publication, self._trained = folder, publication, trained
        self._lock, self._exports = threading.Lock(), list[Export]()
        for path in folder.glob("*") if folder.is_dir() else ():  # left by an earlier process
            path.unlink(missing_ok=True)

    def file(self) -> Export | None:
        """Return the export of the present model; None before the first one is published. Any thread may call this.

        Raises:
            OSError: if it cannot be written now.
        """
        with self._lock:
            if (last := self._publication.last) is None:
                return None
            if not self._exports or self._exports[-1].version != last.version:
                self._exports.append(self._written(last))
                for old in self._exports[:-_FILES]:
                    old.path.unlink(missing_ok=True)
                del self._exports[:-_FILES]
            return self._exports[-1]

    def _written(self, last: Published) -> Export:
        """Export a published model."""
        body = save(replace(self._trained, params=last.params.detach().cpu()).tensors(None))
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / f"{last.version}.safetensors"
        part = path.with_suffix(".part")
        part.write_bytes(body)
        move(part, path)  # whole, also for who copies the folder meanwhile
        return Export(path, hashlib.sha256(body).hexdigest(), last.version)
