"""Locate the factors of a low-rank update in the vector of a model."""

from __future__ import annotations

from typing import NamedTuple

import torch

BASE_OFFSET = "base_offset"
"""The name in ``task.shared`` of the offset that is added to the frozen weights below adapters."""


class Adapter(NamedTuple):
    """The position of the factors of a low-rank update ``W + s B A`` in a vector ``[P]``; see `turnout.engine.adapters`.

    Attributes:
        layer: the name of the adapted layer.
        down: the index of the first element of A ``[r, n]``.
        up: the index of the first element of B ``[m, r]``.
        rank: r.
        inputs: n.
        outputs: m.
        scaling: s.
    """

    layer: str
    down: int
    up: int
    rank: int
    inputs: int
    outputs: int
    scaling: float

    def factors(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return views of B ``[n, m, r]`` and A ``[n, r, k]`` in vectors ``[n, P]``."""
        m, r, k = self.outputs, self.rank, self.inputs
        up, down = rows[:, self.up : self.up + m * r], rows[:, self.down : self.down + r * k]
        return up.unflatten(1, (m, r)), down.unflatten(1, (r, k))

    def between(self, rows: torch.Tensor, begin: torch.Tensor, end: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `factors` with zeros outside a range of columns of B and rows of A.

        Args:
            rows: vectors ``[n, P]``.
            begin: the first column and row of the range in each vector, int64 ``[n]``.
            end: the end of the range, exclusive, int64 ``[n]``.
        """
        index = torch.arange(self.rank, device=rows.device)
        inside = (index >= begin[:, None]) & (index < end[:, None])
        up, down = self.factors(rows)
        return up.where(inside[:, None, :], 0.0), down.where(inside[:, :, None], 0.0)
