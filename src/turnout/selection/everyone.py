"""Everyone who is there takes part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from turnout.core.algorithm import Selection


@dataclass(frozen=True)
class AllAvailable(Selection):
    """The cohort is every available client. It asks all N of them, as its cohort grows with N anyway."""

    def select(
        self, available: Callable[[np.ndarray], np.ndarray], num_clients: int, round: int, seed: int
    ) -> np.ndarray:
        """All available clients, ascending, int64 ``[B]``."""
        del round, seed
        return np.flatnonzero(available(np.arange(num_clients)))
