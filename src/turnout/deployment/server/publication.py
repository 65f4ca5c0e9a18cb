"""The model that clients of a server get: a file, written once for each version that is sent."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save

from turnout.core.types import State
from turnout.deployment.server.store import Store
from turnout.deployment.wire.format import is_finite, model_tensors
from turnout.pieces.base.algorithm import Algorithm
from turnout.simulation.trained import Trained

_FILES = 4
"""Versions of `CurrentModel` that are there at a time, for downloads that take longer than a step."""


class Published(NamedTuple):
    """A model that was published: its version, what it was made of, and its digest and size."""

    version: int
    params: torch.Tensor
    shared: State
    digest: str
    size: int


class Publication:
    """Publish models.

    Args:
        store: where they are written.
        algorithm: which says in what type they are sent.

    Attributes:
        last: the last model that was published.
        finite: whether it holds neither NaN nor infinity, as clients get it.
    """

    def __init__(self, store: Store, algorithm: Algorithm) -> None:
        self._store, self._algorithm = store, algorithm
        self.last: Published | None = None
        self.finite = True

    def publish(self, version: int, params: torch.Tensor, shared: State, needed: Iterable[str]) -> Published:
        """Make a model a file, if it is none yet.

        Args:
            version: server steps that led to it.
            params: the model, ``[P]``.
            shared: what else is broadcast.
            needed: digests of other models that are still needed; all others are deleted.
        """
        last = self.last
        if last is None or last.params is not params or last.shared is not shared:
            tensors = model_tensors(params, shared, self._algorithm.broadcast_dtype(params.dtype))
            self.finite = all(is_finite(value) for value in tensors.values() if value.is_floating_point())
            digest, size = self._store.files.write_model(tensors)
            last = self.last = Published(version, params, shared, digest, size)
            self._store.files.keep_models({digest, *needed})
        if last.version != version:  # of a step that changed nothing
            last = self.last = last._replace(version=version)
        return last


class Export(NamedTuple):
    """A file of named tensors: where it is, its SHA-256 in hexadecimal digits, and the version of the model."""

    path: Path
    digest: str
    version: int


class CurrentModel:
    """Write the model that clients get now as `turnout export` does, once for each version that somebody asks for.

    Args:
        folder: where the files go.
        publication: the models that clients get.
        trained: what the parameters of the model are called.
    """

    def __init__(self, folder: Path, publication: Publication, trained: Trained) -> None:
        self._folder, self._publication, self._trained = folder, publication, trained
        self._lock, self._exports = threading.Lock(), list[Export]()
        for path in folder.glob("*") if folder.is_dir() else ():  # of an earlier process
            path.unlink(missing_ok=True)

    def file(self) -> Export | None:
        """Return the file of the present model; None before the first one is published. Any thread may call this.

        Raises:
            OSError: where it cannot be written now.
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
        """Write a model that was published."""
        body = save(replace(self._trained, params=last.params.detach().cpu()).tensors(None))
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / f"{last.version}.safetensors"
        path.write_bytes(body)
        return Export(path, hashlib.sha256(body).hexdigest(), last.version)
