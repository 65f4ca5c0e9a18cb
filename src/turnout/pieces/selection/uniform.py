"""Select a cohort of fixed size uniformly at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.base import Enlargeable, enlarged_size
from turnout.core.candidates import Candidates
from turnout.pieces.selection.draws import first_available
from turnout.pieces.selection.fixed_size import FixedSize


@dataclass(frozen=True)
class Uniform(FixedSize, Enlargeable, name="uniform"):
    """Select `cohort_size` of the available clients uniformly at random without replacement, or all if fewer are available.

    Clients are asked for their availability in a random order, a function of (seed, round) alone, until enough are
    available. The cost is about cohort_size / (fraction available) queries, whatever the number of clients.

    Args:
        cohort_size: number of clients in a round, from 1 to the number of clients; a share of the clients, such as 0.1; or
            None for all clients. The default is 10, or all clients if there are fewer.

    Raises:
        ConfigurationError: if `cohort_size` is none of these, or exceeds the number of clients.

    Example:
        >>> import numpy as np, turnout as to
        >>> from turnout.core.candidates import Candidates
        >>> everyone = lambda clients: np.ones(len(clients), dtype=bool)
        >>> to.selection.Uniform(3).select(Candidates(everyone, num_clients=100, round=0, seed=0)).tolist()
        [1, 65, 76]
    """

    def enlarged(self, factor: float) -> Uniform:
        """Return the selection of ``cohort_size * factor`` clients, rounded up."""
        size = self.cohort_size
        if isinstance(size, float):
            return Uniform(size * factor if size * factor < 1.0 else None)
        return self if size is None else Uniform(type(size)(enlarged_size(size, factor)))

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort, ascending, int64 ``[B]``."""
        return np.sort(first_available(candidates, self.size(candidates.num_clients), candidates.num_clients))
