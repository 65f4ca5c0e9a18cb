"""The model that clients of a server get: a file, written once for each version that is sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch

from turnout.core.types import State
from turnout.deployment.server.store import Store
from turnout.deployment.wire.format import digest, encode, is_finite, model_tensors
from turnout.pieces.base.algorithm import Algorithm


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
            body = encode(tensors)
            last = self.last = Published(version, params, shared, digest(body), len(body))
            self._store.files.write_model(last.digest, body)
            self._store.files.keep_models({last.digest, *needed})
        if last.version != version:  # of a step that changed nothing
            last = self.last = last._replace(version=version)
        return last
