"""The coordinate-wise trimmed mean."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.pieces.aggregation.robust import Coordinatewise


@dataclass(frozen=True)
class TrimmedMean(Coordinatewise, name="trimmed_mean"):
    """Take the mean of each coordinate without its f largest and its f smallest values.

    Reference: Yin et al., "Byzantine-robust distributed learning: towards optimal statistical rates", ICML 2018, option II.
    """

    def combine(self, columns: torch.Tensor, byzantine: int) -> torch.Tensor:
        """Return the trimmed means ``[c]``."""
        return columns[:, byzantine : columns.shape[1] - byzantine].mean(dim=1)
