"""Robust estimates of each coordinate separately: the median and the trimmed mean."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch

from turnout.base import WithState
from turnout.core.types import State
from turnout.pieces.aggregation.robust import Robust, Vectors


class Coordinatewise(Robust):
    """Base class of robust estimates of each coordinate separately."""

    @abstractmethod
    def combine(self, columns: torch.Tensor, byzantine: int) -> torch.Tensor:
        """Return one number for each column, ``[c]``, from the sorted coordinates of n vectors, float64 ``[c, n]``."""

    def estimate(self, vectors: Vectors, state: State) -> WithState:
        """Return the estimate of each column."""

        def estimated(columns: torch.Tensor) -> torch.Tensor:
            values, mixed = columns.T.double() * vectors.scale, vectors.mixed
            values = values if mixed is None else values @ mixed.T
            return self.combine(values.sort(dim=1).values, vectors.byzantine_mixed)

        return vectors.rows.columnwise(estimated), state


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
