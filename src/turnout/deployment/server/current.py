"""The present model as a file of named tensors, for whoever takes it out of a run that goes on."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import save

from turnout.deployment.server.publication import Publication, Published
from turnout.simulation.trained import Trained

_FILES = 4
"""Versions that are there at a time, for downloads that take longer than a step."""


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
