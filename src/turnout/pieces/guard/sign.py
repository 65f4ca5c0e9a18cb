"""Compress updates to signs, one bit for each element."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base.compression import Compression
from turnout.core.types import State
from turnout.pieces.guard.compression import pack, unpack


@dataclass(frozen=True)
class Sign(Compression, name="sign"):
    """Compress updates to signs, scaled by the mean absolute value (EF-SignSGD, Algorithm 1).

    A vector x is sent as ``mean |x| sign(x)``: one bit for each element, and one number, the mean of the absolute
    values. The sign of zero is positive.

    Args:
        error_feedback: whether clients add what was lost to their next update; see `Compression`. Signs are biased, so
            keep it on.

    Example:
        >>> from turnout.base.trial import guarded, report
        >>> guarded(Sign(), report([[4.0, 1.0, -2.0, 3.0]]))
        [[2.5, 2.5, -2.5, 2.5]]

    Reference: Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression schemes", ICML 2019,
    Algorithm 1.
    """

    def encode(self, rows: torch.Tensor, keys: torch.Tensor) -> State:
        """Return the packed signs, and the mean absolute value of each row."""
        return {"sign": pack(rows >= 0, 1), "size": rows.abs().mean(dim=1, keepdim=True)}

    def decode(self, code: State, num_params: int, keys: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the mean absolute value with each sign, ``[B, P]``."""
        size = code["size"].to(dtype)
        return torch.where(unpack(code["sign"], 1, num_params).bool(), size, -size)
