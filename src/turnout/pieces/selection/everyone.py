"""Everyone who is there takes part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.types import Candidates
from turnout.pieces.base import Selection


@dataclass(frozen=True)
class AllAvailable(Selection, name="all_available"):
    """The cohort is every available client. It asks all N of them, as its cohort grows with N anyway.

    Example:
        >>> from turnout.pieces.base.trial import select
        >>> select(AllAvailable(), num_clients=5)
        [0, 1, 2, 3, 4]
    """

    needs_rounds = None

    takes_all = True

    def enlarged(self, factor: float) -> AllAvailable:
        """Return the same selection: there is nobody else."""
        return self

    def select(self, candidates: Candidates) -> np.ndarray:
        """All available clients, ascending, int64 ``[B]``."""
        return candidates.everyone()
