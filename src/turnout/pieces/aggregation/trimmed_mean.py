"""Estimate the mean by the coordinate-wise trimmed mean."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.pieces.aggregation.robust import Coordinatewise


@dataclass(frozen=True)
class TrimmedMean(Coordinatewise, name="trimmed_mean"):
    """Average each coordinate without its largest and smallest values (coordinate-wise trimmed mean).

    The f largest and the f smallest values are left out, where f is the maximum number of Byzantine vectors. f, the
    vectors of a step and the options are those of `Robust`.

    Example:
        >>> from turnout.base.trial import aggregate, report
        >>> aggregate(TrimmedMean(0.2), report([[1.0], [1.1], [1.2], [1.3], [1000.0]]))
        [[1.2]]

    Reference: Yin et al., "Byzantine-robust distributed learning: towards optimal statistical rates", ICML 2018, option
    II.
    """

    def combine(self, columns: torch.Tensor, byzantine: int) -> torch.Tensor:
        """Return the trimmed means ``[c]``."""
        return columns[:, byzantine : columns.shape[1] - byzantine].mean(dim=1)
