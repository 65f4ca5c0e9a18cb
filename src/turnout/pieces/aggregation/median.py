"""Estimate the mean by the coordinate-wise median."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.pieces.aggregation.robust import Coordinatewise


@dataclass(frozen=True)
class Median(Coordinatewise, name="median"):
    """Take the median of each coordinate over the vectors of a step (coordinate-wise median).

    The vectors are those of `Robust`, and so are the options. For an even number of vectors, the median is the mean of
    the two middle values. It tolerates any minority of Byzantine vectors, whatever `fraction` is; only `mixing` reads
    that option.

    Example:
        >>> import turnout as to
        >>> to.compose(to.aggregation.Median(), to.selection.Uniform(10))
        Algorithm('custom': Uniform(cohort_size=10) -> Sgd() -> DivideByParticipants() -> Median() -> ServerSgd())

    Reference: Yin et al., "Byzantine-robust distributed learning: towards optimal statistical rates", ICML 2018, option
    I.
    """

    def combine(self, columns: torch.Tensor, byzantine: int) -> torch.Tensor:
        """Return the medians ``[c]``."""
        n = columns.shape[1]
        return (columns[:, (n - 1) // 2] + columns[:, n // 2]) / 2
