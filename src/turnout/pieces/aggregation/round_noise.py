"""Draw the noise of a private sum in each round, correlated over rounds if wanted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.base import WithState
from turnout.core.types import Federation, State
from turnout.privacy.correlation import Correlation, Independent
from turnout.privacy.noise import GridNoise, server_words

CONTROL = "control_"
"""The prefix of names in the state of the noise of control variates."""


@dataclass(frozen=True)
class RoundNoise:
    """Gaussian noise for each round of a run, on the grid of its sums.

    Attributes:
        correlation: correlation of the noise over rounds.
        rounds, separation, most: the run for which it is computed, see `Correlation.coefficients`.
        prefixes: a prefix of names in the state for each vector that has noise: none for updates, ``control_`` for control
            variates.
    """

    correlation: Correlation
    rounds: int
    separation: int
    most: int | None
    prefixes: tuple[str, ...] = ("",)

    @property
    def _run(self) -> tuple[int, int, int | None]:
        return self.rounds, self.separation, self.most

    def column(self, searched: tuple[float, ...] | None) -> tuple[float, ...] | None:
        """Return the first column of the correlation's matrix; None for independent noise.

        Args:
            searched: the coefficients that were searched; None searches them if necessary.
        """
        if isinstance(self.correlation, Independent):
            return None
        values = None if searched is None else torch.tensor(searched, dtype=torch.float64).view(2, -1)
        return tuple(self.correlation.coefficients(*self._run, values).tolist())

    def search(self) -> list[float] | None:
        """Return the coefficients that the correlation searches for a run; None without a search."""
        return self.correlation.search(*self._run).flatten().tolist() if self.correlation.is_searched else None

    def init(self, federation: Federation) -> State:
        """Return the initial state."""
        return {
            prefix + name: value.to(federation.device) if name == "correlated" else value
            for prefix in self.prefixes
            for name, value in self.correlation.init((federation.num_params,), *self._run).items()
        }

    def grid(self, multiplier: float, sensitivity: float, num_params: int) -> GridNoise:
        """Return the grid of a vector's noise; where noise is correlated, it has to be the same in all rounds."""
        rounds = 1 if isinstance(self.correlation, Independent) else self.rounds
        return GridNoise(multiplier, sensitivity, max(num_params, 1) * rounds)

    def next(self, prefix: str, grid: GridNoise, release: int, state: State, federation: Federation) -> WithState:
        """Return the noise of a release in steps of the grid, integers as float64 ``[P]``, and the new state.

        Args:
            prefix: the vector, one of `prefixes`.
            grid: see `grid`.
            release: the number of earlier releases.
            state: a state with that of `init`.
            federation: the clients and the seed.
        """
        purpose = "noise of the controls" if prefix else "noise of the model"
        words = server_words(purpose, federation, release)
        drawn = grid.drawn(words, federation.num_params, federation.device)
        noise, remembered = self.correlation.next(drawn, self._remembered(prefix, state), *self._run)
        return noise, state | {prefix + name: value for name, value in remembered.items()}

    def mutated_rows(self, state: State) -> dict[str, np.ndarray]:
        """Return the rows that `next` overwrites, by name."""
        return {
            prefix + name: rows
            for prefix in self.prefixes
            for name, rows in self.correlation.mutated_rows(self._remembered(prefix, state)).items()
        }

    def _remembered(self, prefix: str, state: State) -> State:
        """Return the state of the correlation for one vector, without prefixes."""
        return {name: state[prefix + name] for name in self.correlation.init((0,), *self._run)}
