"""Compress the update of a matrix to a product of two thin matrices (PowerSGD)."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import lru_cache

import torch

from turnout.base import MemoryShapes
from turnout.base.guard import Compression, OfShapes
from turnout.core.random import fold, normal
from turnout.core.ranges import Count
from turnout.core.types import State

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class PowerSgd(Compression, OfShapes, name="power_sgd"):
    """Compress the update of each matrix to two low-rank factors by a step of power iteration (PowerSGD, Algorithm 1).

    A matrix M ``[n, m]`` of the update is sent as its factors P ``[n, r]`` and Q ``[m, r]``::

        P <- orthogonalize(M Q)
        Q <- M^T P
        M is decoded to P Q^T

    In the client's first round Q starts from independent normal numbers, and later from its last Q (warm start). An
    update that is zero or not finite leaves Q unchanged. Vectors that are only summed, such as changes of control
    variates, start from normal numbers in every round. With error feedback, what is lost is added to the next update
    (Algorithm 2).

    Parameters of more than two axes are matrices of their first axis by all others, as in the paper. Vectors, and
    matrices that have no more elements than their factors, are sent uncompressed.

    Difference from the paper: its workers average P, and then Q, within one step, which takes two messages each way.
    Here a client sends one message, so each client runs Algorithm 1 as a single worker. Factors of half-precision
    models are computed in float32.

    Args:
        error_feedback: whether clients add what was lost to their next update; see `Compression`.
        rank: rank r of the factors, >= 1; for each matrix at most its smaller side. Larger ranks lose less and send
            more.

    Raises:
        ConfigurationError: if `rank` is not a positive integer.

    Example:
        A matrix of rank 1 is recovered from 3 + 2 numbers instead of 6:

        >>> matrix = torch.tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
        >>> coder, keys = PowerSgd().for_shapes(((3, 2),)), torch.tensor([1])
        >>> code = coder.encode(matrix.view(1, 6), keys)
        >>> {name: tuple(value.shape) for name, value in code.items()}
        {'left': (1, 3), 'right': (1, 2)}
        >>> coder.decode(code, 6, keys, torch.float32).round().tolist()
        [[1.0, 2.0, 2.0, 4.0, 3.0, 6.0]]

    Reference: Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression for distributed
    optimization", NeurIPS 2019.
    """

    rank: Count = 1

    def for_shapes(self, shapes: Shapes) -> PowerSgd:
        """Return the same compression for vectors that hold parameters of these shapes one after the other."""
        result = copy.copy(self)
        object.__setattr__(result, "shapes", shapes)
        return result

    def memory(self, num_params: int, dtype: torch.dtype, shapes: Shapes = ()) -> MemoryShapes:
        """Return the shapes of the error e and of the last Q, in the type in which Q is computed."""
        numbers = sum(_sizes(shapes or self.shapes, self.rank)["right"])
        return super().memory(num_params, dtype) | {"power": ((numbers,), _computed(dtype))}

    def encode(self, rows: torch.Tensor, keys: torch.Tensor) -> State:
        """Return the factors ``[B, sum n r]`` and ``[B, sum m r]`` of all matrices, and the uncompressed parameters."""
        return self._encode(rows, self._first(rows, keys))

    def sent(self, rows: torch.Tensor, keys: torch.Tensor, memory: State | None) -> tuple[State, torch.Tensor]:
        """Return the code of rows and its decoding. For updates, factors start from the last ones, which they replace."""
        code = self.encode(rows, keys) if memory is None else self._next(rows, keys, memory)
        return code, self.decode(code, rows.shape[1], keys, rows.dtype)

    def _next(self, rows: torch.Tensor, keys: torch.Tensor, memory: State) -> State:
        """Return factors that start from the last ones, and store them in their place."""
        last = memory["power"].to(rows.device)
        warm = self._filled(last)
        starts = last if bool(warm.all()) else torch.where(warm, last, self._first(rows, keys))
        code = self._encode(rows, starts)
        if "right" in code:
            result = code["right"].to(last.dtype)
            moves = torch.isfinite(result).all(dim=1, keepdim=True) & self._filled(result)
            memory["power"] = result.where(moves, last).to(memory["power"].device)
        return code

    def decode(self, code: State, num_params: int, keys: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the products of the factors, and the uncompressed parameters, ``[B, P]``."""
        sizes, result = _sizes(self.shapes, self.rank), []
        parts = {name: iter(rows.split(sizes[name], dim=1)) for name, rows in code.items()}
        for n, m, r in _matrices(self.shapes, self.rank):
            if r:
                p, q = next(parts["left"]).reshape(-1, n, r), next(parts["right"]).reshape(-1, m, r)
                result.append((p.to(_computed(dtype)) @ q.to(_computed(dtype)).mT).flatten(1).to(dtype))
            else:
                result.append(next(parts["whole"]).to(dtype))
        return torch.cat(result, dim=1)

    def _encode(self, rows: torch.Tensor, starts: torch.Tensor) -> State:
        matrices = _matrices(self.shapes, self.rank)
        begin = iter(starts.split(_sizes(self.shapes, self.rank)["right"], dim=1))
        code: dict[str, list[torch.Tensor]] = {"left": [], "right": [], "whole": []}
        for part, (n, m, r) in zip(rows.split([n * m for n, m, _ in matrices], dim=1), matrices, strict=True):
            if r:
                matrix = part.reshape(-1, n, m).to(starts.dtype)
                p = _orthogonalized(matrix @ next(begin).reshape(-1, m, r))
                code["left"].append(p.flatten(1))
                code["right"].append((matrix.mT @ p).flatten(1))
            else:
                code["whole"].append(part)
        return {name: torch.cat(parts, dim=1).to(rows.dtype) for name, parts in code.items() if parts}

    def _filled(self, factors: torch.Tensor) -> torch.Tensor:
        """Return a mask of the right factors ``[B, sum m r]`` whose matrix is not zero, bool of the same shape."""
        parts = factors.split(_sizes(self.shapes, self.rank)["right"], dim=1)
        return torch.cat([(part != 0).any(dim=1, keepdim=True).expand_as(part) for part in parts or (factors,)], dim=1)

    def _first(self, rows: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Return the initial Q of all matrices: normal numbers of each row's key."""
        number = sum(_sizes(self.shapes, self.rank)["right"])
        bits = fold(keys[:, None], torch.arange(number, device=keys.device))
        return normal(bits).to(rows.device, _computed(rows.dtype))


def _orthogonalized(columns: torch.Tensor) -> torch.Tensor:
    """Return matrices ``[B, n, r]`` with orthonormal columns that span the same space; for r = 1, normalized columns."""
    if columns.shape[2] == 1:
        return torch.nn.functional.normalize(columns, dim=1)
    return torch.linalg.qr(columns)[0]


@lru_cache(maxsize=8)
def _matrices(shapes: Shapes, rank: int) -> tuple[tuple[int, int, int], ...]:
    """Return n, m and the rank of each parameter; rank 0 if it is sent uncompressed."""
    result = []
    for shape in shapes:
        n, m = (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, math.prod(shape))
        r = min(rank, n, m)
        result.append((n, m, r if r * (n + m) < n * m else 0))
    return tuple(result)


def _sizes(shapes: Shapes, rank: int) -> dict[str, list[int]]:
    """Return the numbers of elements of the left factors, the right factors and the uncompressed parameters."""
    matrices = _matrices(shapes, rank)
    return {
        "left": [n * r for n, _, r in matrices if r],
        "right": [m * r for _, m, r in matrices if r],
        "whole": [n * m for n, m, r in matrices if not r],
    }


def _computed(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which factors are computed."""
    return torch.float64 if dtype == torch.float64 else torch.float32
