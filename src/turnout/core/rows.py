"""The few operations by which server rules touch a matrix of updates ``[B, P]``."""

from __future__ import annotations

import torch

_COLUMNS = 1 << 16  # columns converted to float64 at a time, so that a converted block stays in the cache


def weighted_sum(weights: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """``sum_b w_b rows_b``, ``[P]``, in float64."""
    return torch.cat([weights.double() @ block.double() for block in rows.split(_COLUMNS, dim=1)])


def inner(rows: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """``<rows_b, vector>`` for every b, float64 ``[B]``."""
    total = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    for block, part in zip(rows.split(_COLUMNS, dim=1), vector.split(_COLUMNS), strict=True):
        total += block.double() @ part.double()
    return total
