"""Correlate noise over rounds, so that later rounds cancel a part of the noise of earlier ones.

A matrix mechanism releases ``g_t + (C^-1 zeta)_t`` in round t, where zeta is independent Gaussian noise, C is a lower
triangular Toeplitz matrix with unit diagonal, and the noise is scaled by the sensitivity of ``C g``
(`turnout.privacy.sensitivity`). The model depends on sums of releases, whose error is far smaller than with independent noise
if clients participate rarely.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from turnout.core.ranges import Count
from turnout.core.registry import Family, Registered
from turnout.core.types import State, WithState

Searched = torch.Tensor | None
"""Coefficients that `Correlation.search` returned; None before the search, or without one."""


@dataclass(frozen=True)
class Correlation(Registered, ABC):
    """Base class of matrix mechanisms, which correlate the noise of a round with that of earlier rounds."""

    family = Family("correlation", "correlations", ("turnout.privacy",))

    is_searched: ClassVar[bool] = False
    """True if the coefficients are found by a search at the start of a run. They are ``searched`` in the state, zero before
    the first round, so that a run that is resumed on another machine has the same ones."""

    @abstractmethod
    def coefficients(self, rounds: int, separation: int, most: int | None, searched: Searched = None) -> np.ndarray:
        """Return the first column of C, float64 ``[rounds]``, positive and not increasing.

        Args:
            rounds: n, the number of rounds of the run.
            separation: b, the minimum number of rounds between participations of a client.
            most: k, the maximum number of participations of a client; None is unlimited.
            searched: the result of `search`; None searches if necessary.
        """

    def search(self, rounds: int, separation: int, most: int | None) -> torch.Tensor:
        """Search coefficients for a run, float64."""
        return torch.zeros(0, dtype=torch.float64)

    @abstractmethod
    def init(self, shape: tuple[int, ...], rounds: int, separation: int, most: int | None) -> State:
        """Return the initial state, zeros."""

    @abstractmethod
    def next(self, noise: torch.Tensor, state: State, rounds: int, separation: int, most: int | None) -> WithState:
        """Return a round of ``C^-1 zeta`` from the round of zeta, integers as float64, and the new state.

        What earlier rounds contribute is rounded, so that the result is an integer for each integer of zeta.
        The rows that `mutated_rows` returns may be changed in place.
        """

    def mutated_rows(self, state: State) -> dict[str, np.ndarray]:
        """Return the rows, int64, of the tensors that `next` changes in place, by name."""
        return {}


@dataclass(frozen=True)
class Independent(Correlation, name="independent"):
    """Add independent noise in every round (``C = I``)."""

    def coefficients(self, rounds: int, separation: int, most: int | None, searched: Searched = None) -> np.ndarray:
        """Return one 1, followed by zeros."""
        return np.eye(1, rounds)[0]

    def init(self, shape: tuple[int, ...], rounds: int, separation: int, most: int | None) -> State:
        """Return an empty state."""
        return {}

    def next(self, noise: torch.Tensor, state: State, rounds: int, separation: int, most: int | None) -> WithState:
        """Return the noise unchanged."""
        return noise, state


@dataclass(frozen=True)
class BandedSquareRoot(Correlation, name="banded_square_root"):
    """Correlate noise over rounds by the first bands of the square root of the prefix-sum matrix (BSR, equation 3).

    The first column of C consists of the first p of the coefficients ``c_0 = 1``, ``c_j = c_{j-1} (2j - 1) / (2j)``,
    followed by zeros. The state has p - 1 vectors. If p is at most the separation, the columns of one client do not
    overlap.

    Args:
        bands: number of bands of C (p), >= 1; None is the separation.

    Raises:
        ConfigurationError: if a number is below 1.

    Example:
        >>> BandedSquareRoot().coefficients(rounds=4, separation=2, most=None)
        array([1. , 0.5, 0. , 0. ])

    Reference: Kalinin and Lampert, "Banded square root matrix factorization for differentially private model training",
    NeurIPS 2024.
    """

    bands: Count | None = None

    def _bands(self, rounds: int, separation: int) -> int:
        """Return the number of bands for a number of rounds."""
        return min(rounds, separation if self.bands is None else self.bands)

    def coefficients(self, rounds: int, separation: int, most: int | None, searched: Searched = None) -> np.ndarray:
        """Return the bands, followed by zeros."""
        j = np.arange(1, rounds)
        column = np.concatenate([[1.0], np.cumprod((2 * j - 1) / (2 * j))])
        column[self._bands(rounds, separation) :] = 0.0
        return column

    def init(self, shape: tuple[int, ...], rounds: int, separation: int, most: int | None) -> State:
        """Return zeros, ``[bands - 1, *shape]``."""
        rows = torch.zeros(self._bands(rounds, separation) - 1, *shape, dtype=torch.float64)
        return {"correlated": rows, "at": torch.tensor(0)}

    def next(self, noise: torch.Tensor, state: State, rounds: int, separation: int, most: int | None) -> WithState:
        """Return ``y_t = zeta_t - round(sum_{j=1}^{p-1} c_j y_{t-j})``, and overwrite the oldest y with it."""
        rows, at = state["correlated"], int(state["at"])
        if not len(rows):
            return noise, state
        column = self.coefficients(len(rows) + 1, separation, most)
        lag = (at - 1 - np.arange(len(rows))) % len(rows) + 1  # row i holds y_{t - lag[i]}
        correlated = noise - (torch.from_numpy(column[lag]).to(rows) @ rows).round()
        rows[at % len(rows)] = correlated
        return correlated, {"correlated": rows, "at": torch.tensor(at + 1)}

    def mutated_rows(self, state: State) -> dict[str, np.ndarray]:
        """Return the oldest row."""
        rows = len(state["correlated"])
        return {"correlated": np.array([int(state["at"]) % rows])} if rows else {}
