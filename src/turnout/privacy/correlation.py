"""Noise that is correlated over rounds, so that much of what one round adds a later one takes away.

A matrix mechanism releases ``g_t + (C^-1 zeta)_t`` in round t: zeta is independent Gaussian noise, C a lower triangular
Toeplitz matrix with 1 in its diagonal, and the noise has the size of the sensitivity of ``C g``
(`turnout.privacy.sensitivity`). What trains a model is the sum of the releases, whose error is far smaller than with
independent noise wherever a client comes back only after many rounds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from turnout.core.checks import count
from turnout.core.registry import Family, Registered
from turnout.core.types import State


@dataclass(frozen=True)
class Correlation(Registered, ABC):
    """Define how the noise of a round depends on the noise of earlier rounds."""

    family = Family("correlation", "correlations", ("turnout.privacy",))

    is_searched: ClassVar[bool] = False
    """Whether the coefficients are searched for a run. What was found is then ``searched`` in the state, all zero before the
    first round, so that a run that goes on elsewhere has the same."""

    @abstractmethod
    def coefficients(
        self, rounds: int, separation: int, most: int | None, searched: torch.Tensor | None = None
    ) -> np.ndarray:
        """Return the first column of C, float64 ``[rounds]``, positive and not growing.

        Args:
            rounds: of the whole run (n).
            separation: least number of rounds from one participation of a client to its next (b).
            most: participations of a client at most (k); None is what the rounds have room for.
            searched: what `search` has found; None searches where that is needed.
        """

    def search(self, rounds: int, separation: int, most: int | None) -> torch.Tensor:
        """Return what is searched for a run, float64."""
        del rounds, separation, most
        return torch.zeros(0, dtype=torch.float64)

    @abstractmethod
    def init(self, shape: tuple[int, ...], rounds: int, separation: int, most: int | None) -> State:
        """Return what is remembered from round to round before the first, zero."""

    @abstractmethod
    def next(
        self, noise: torch.Tensor, state: State, rounds: int, separation: int, most: int | None
    ) -> tuple[torch.Tensor, State]:
        """Return a round of ``C^-1 zeta``, given the round of zeta, and what is remembered after it.

        Rows that `mutated_rows` names may be changed in place.
        """

    def mutated_rows(self, state: State) -> dict[str, np.ndarray]:
        """Return which rows (int64) of which tensors `next` changes in place."""
        del state
        return {}


@dataclass(frozen=True)
class Independent(Correlation, name="independent"):
    """Draw the noise of every round anew: ``C = I``."""

    def coefficients(
        self, rounds: int, separation: int, most: int | None, searched: torch.Tensor | None = None
    ) -> np.ndarray:
        """Return 1 and zeros."""
        del separation, most, searched
        return np.eye(1, rounds)[0]

    def init(self, shape: tuple[int, ...], rounds: int, separation: int, most: int | None) -> State:
        """Return nothing."""
        del shape, rounds, separation, most
        return {}

    def next(
        self, noise: torch.Tensor, state: State, rounds: int, separation: int, most: int | None
    ) -> tuple[torch.Tensor, State]:
        """Return the noise as it is."""
        del rounds, separation, most
        return noise, state


@dataclass(frozen=True)
class BandedSquareRoot(Correlation, name="banded_square_root"):
    """Take the first bands of the square root of the matrix of prefix sums: ``c_0 = 1, c_j = c_{j-1} (2j - 1) / (2j)``.

    It remembers a vector for each band but one. With as many bands as a client rests rounds, the columns of one client do
    not overlap.

    Args:
        bands: of C (p); None is the separation.

    Reference: Kalinin and Lampert, "Banded square root matrix factorization for differentially private model training",
    NeurIPS 2024, equation 3.
    """

    bands: int | None = None

    def __post_init__(self) -> None:
        if self.bands is not None:
            count("bands", self.bands)

    def _bands(self, rounds: int, separation: int) -> int:
        """Return the number of bands of so many rounds."""
        return min(rounds, separation if self.bands is None else self.bands)

    def coefficients(
        self, rounds: int, separation: int, most: int | None, searched: torch.Tensor | None = None
    ) -> np.ndarray:
        """Return the bands, and zeros behind them."""
        del most, searched
        j = np.arange(1, rounds)
        column = np.concatenate([[1.0], np.cumprod((2 * j - 1) / (2 * j))])
        column[self._bands(rounds, separation) :] = 0.0
        return column

    def init(self, shape: tuple[int, ...], rounds: int, separation: int, most: int | None) -> State:
        """Return zeros, ``[bands - 1, *shape]``."""
        del most
        return {"correlated": torch.zeros(self._bands(rounds, separation) - 1, *shape), "at": torch.tensor(0)}

    def next(
        self, noise: torch.Tensor, state: State, rounds: int, separation: int, most: int | None
    ) -> tuple[torch.Tensor, State]:
        """Return ``y_t = zeta_t - sum_{j=1}^{p-1} c_j y_{t-j}``, which is written over the oldest y."""
        del rounds
        rows, at = state["correlated"], int(state["at"])
        if not len(rows):
            return noise, state
        column = self.coefficients(len(rows) + 1, separation, most)
        age = (at - 1 - np.arange(len(rows))) % len(rows) + 1  # of what is in each row
        now = noise - torch.from_numpy(column[age]).to(rows) @ rows
        rows[at % len(rows)] = now
        return now, {"correlated": rows, "at": torch.tensor(at + 1)}

    def mutated_rows(self, state: State) -> dict[str, np.ndarray]:
        """Return the oldest row."""
        rows = len(state["correlated"])
        return {"correlated": np.array([int(state["at"]) % rows])} if rows else {}
