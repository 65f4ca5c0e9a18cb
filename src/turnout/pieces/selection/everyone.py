"""Select all available clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.base import Enlargeable, TakesAll
from turnout.core.candidates import Candidates


@dataclass(frozen=True)
class AllAvailable(TakesAll, Enlargeable, name="all_available"):
    """Select all available clients.

    The availability of all N clients is looked up, since the size of the cohort grows with N anyway.

    Example:
        >>> from turnout.base.trial import select
        >>> select(AllAvailable(), num_clients=5)
        [0, 1, 2, 3, 4]
    """

    needs_rounds = None

    def enlarged(self, factor: float) -> AllAvailable:
        """Return the same selection, which is already the largest."""
        return self

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return all available clients, ascending, int64 ``[B]``."""
        return candidates.everyone()
