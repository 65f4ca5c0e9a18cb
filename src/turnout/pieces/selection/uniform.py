"""Choose a cohort of fixed size uniformly at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.types import Candidates
from turnout.pieces.base import enlarged_size
from turnout.pieces.selection.draws import first_available
from turnout.pieces.selection.fixed_size import FixedSize


@dataclass(frozen=True)
class Uniform(FixedSize, name="uniform"):
    """Choose `cohort_size` of the available clients uniformly at random, or all if there are fewer.

    Clients are asked in a random order, which is a function of (seed, round) alone, until enough are available. This
    costs about cohort_size / (fraction available) questions, however many clients there are.

    Attributes:
        cohort_size: clients in a round; at most the number of clients.

    Raises:
        ConfigurationError: for a cohort that is empty or larger than the federation.

    Example:
        >>> import numpy as np, turnout as to
        >>> from turnout.core.types import Candidates
        >>> everyone = lambda clients: np.ones(len(clients), dtype=bool)
        >>> to.selection.Uniform(3).select(Candidates(everyone, num_clients=100, round=0, seed=0)).tolist()
        [1, 65, 76]
    """

    def enlarged(self, factor: float) -> Uniform:
        """Return the selection of ``cohort_size * factor`` clients, rounded up."""
        return Uniform(enlarged_size(self.cohort_size, factor))

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort, ascending, int64 ``[B]``."""
        return np.sort(first_available(candidates, self.cohort_size, candidates.num_clients))
