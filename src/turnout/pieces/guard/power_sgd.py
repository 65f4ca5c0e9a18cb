"""Send the update of a matrix as a product of two thin ones (PowerSGD)."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch

from turnout.core.checks import count
from turnout.core.random import fold, normal
from turnout.core.types import State
from turnout.engine.cohort import Clients
from turnout.pieces.base import MemoryShapes
from turnout.pieces.base.compression import Compression

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class PowerSgd(Compression, name="power_sgd"):
    """Send two factors of each matrix M ``[n, m]`` of an update, by one step of power iteration (Algorithm 1)::

        P <- orthogonalize(M Q),        Q <- M^T P,        M is decoded to P Q^T

    Q ``[m, r]`` starts where the client's last one ended (warm start), at first from independent normal numbers, and so in
    every round for what is only summed. An update of zero, or one that is not finite, leaves it as it is. What is lost is
    fed back (Algorithm 2). Parameters of more than two axes are matrices of their first axis by the others, as in the
    paper. Vectors, and matrices of no more numbers than their factors, are sent as they are.

    The paper's workers average P, and then Q, within one step, which takes two messages each way; here a client sends one
    message, and is Algorithm 1 with one worker. Factors of half-precision models are computed in float32.

    Args:
        rank: r >= 1; of a matrix at most the smaller of its sides.

    Example:
        A matrix of rank 1 arrives as it was sent, by 3 + 2 numbers in place of 6:

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

    rank: int = 1

    shapes: ClassVar[Shapes] = ()
    """The shapes of the parameters, once it is known what it compresses; see `for_shapes`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        count("rank", self.rank)

    def for_shapes(self, shapes: Shapes) -> PowerSgd:
        """Return the same compression of vectors that hold parameters of these shapes one after the other."""
        result = copy.copy(self)
        object.__setattr__(result, "shapes", shapes)
        return result

    def for_clients(self, clients: Clients) -> PowerSgd:
        """Return the same compression of the model of these clients."""
        return self if self.shapes else self.for_shapes(clients.objective.layout.shared_shapes)

    def memory(self, num_params: int, dtype: torch.dtype, shapes: Shapes = ()) -> MemoryShapes:
        """Return the shapes of e and of the last Q, which is in the type that it is computed in."""
        numbers = sum(m * r for _, m, r in _matrices(shapes or self.shapes, self.rank) if r)
        return super().memory(num_params, dtype) | {"power": ((numbers,), _computed(dtype))}

    def encode(self, rows: torch.Tensor, keys: torch.Tensor) -> State:
        """Return the factors ``[B, sum n r]`` and ``[B, sum m r]`` of all matrices, and what is sent as it is."""
        return self._encode(rows, self._first(rows, keys))

    def sent(self, rows: torch.Tensor, keys: torch.Tensor, memory: State | None) -> tuple[State, torch.Tensor]:
        """Return the factors, which start from the last ones of updates and become these, and what they are decoded to."""
        code = self.encode(rows, keys) if memory is None else self._next(rows, keys, memory)
        return code, self.decode(code, rows.shape[1], keys, rows.dtype)

    def _next(self, rows: torch.Tensor, keys: torch.Tensor, memory: State) -> State:
        """Return factors that start from the last ones, which become these."""
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
        """Return the products of the factors, and what was sent as it is."""
        result, (left, right, whole) = [], (iter(part) for part in self._split(code, len(keys)))
        for n, m, r in _matrices(self.shapes, self.rank):
            if r:
                p, q = next(left).reshape(-1, n, r), next(right).reshape(-1, m, r)
                result.append((p.to(_computed(dtype)) @ q.to(_computed(dtype)).mT).flatten(1).to(dtype))
            else:
                result.append(next(whole).to(dtype))
        return torch.cat(result, dim=1)

    def _encode(self, rows: torch.Tensor, starts: torch.Tensor) -> State:
        matrices = _matrices(self.shapes, self.rank)
        begin = iter(starts.split([m * r for _, m, r in matrices if r], dim=1))
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

    def _split(self, code: State, number: int) -> tuple[Sequence[torch.Tensor], ...]:
        """Return the left factors, the right factors and what was sent as it is, of each parameter that has them."""
        matrices, nothing = _matrices(self.shapes, self.rank), torch.empty(number, 0)
        sizes = {
            "left": [n * r for n, _, r in matrices if r],
            "right": [m * r for _, m, r in matrices if r],
            "whole": [n * m for n, m, r in matrices if not r],
        }
        return tuple(code.get(name, nothing).split(size, dim=1) if size else () for name, size in sizes.items())

    def _filled(self, factors: torch.Tensor) -> torch.Tensor:
        """Return which of the right factors ``[B, sum m r]`` are not of a matrix of zeros, bool of the same shape."""
        parts = factors.split([m * r for _, m, r in _matrices(self.shapes, self.rank) if r], dim=1)
        return torch.cat([(part != 0).any(dim=1, keepdim=True).expand_as(part) for part in parts or (factors,)], dim=1)

    def _first(self, rows: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Return the first Q of all matrices, normal numbers of each row's own."""
        number = sum(m * r for _, m, r in _matrices(self.shapes, self.rank) if r)
        bits = fold(keys[:, None], torch.arange(number, device=keys.device))
        return normal(bits).to(rows.device, _computed(rows.dtype))


def _orthogonalized(columns: torch.Tensor) -> torch.Tensor:
    """Return matrices ``[B, n, r]`` with orthonormal columns that span the same; one column is only made as long as 1."""
    if columns.shape[2] == 1:
        return torch.nn.functional.normalize(columns, dim=1)
    return torch.linalg.qr(columns)[0]


@lru_cache(maxsize=8)
def _matrices(shapes: Shapes, rank: int) -> tuple[tuple[int, int, int], ...]:
    """Return n, m and the rank of each parameter; 0 where it is sent as it is."""
    result = []
    for shape in shapes:
        n, m = (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, math.prod(shape))
        r = min(rank, n, m)
        result.append((n, m, r if r * (n + m) < n * m else 0))
    return tuple(result)


def _computed(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which factors are computed."""
    return torch.float64 if dtype == torch.float64 else torch.float32
