"""Select each client independently with one probability."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.base import Selection
from turnout.core.candidates import Candidates
from turnout.core.random import fold, stream, uniform
from turnout.core.ranges import Share


@dataclass(frozen=True)
class Poisson(Selection, name="poisson"):
    """Select each available client with one probability, independently of the others (Poisson sampling).

    A cohort may be empty. Differential privacy has the tightest accounting with this sampling: see
    ``PrivateSum(sampling_rate=...)``.

    Args:
        rate: probability of each client, in (0, 1].

    Raises:
        ConfigurationError: if `rate` is outside (0, 1].

    Example:
        >>> from turnout.base.trial import select
        >>> select(Poisson(0.05)), select(Poisson(0.05), round=1)
        ([12, 29, 32, 43, 46, 53, 63, 73], [26, 79])
    """

    rate: Share = 0.1

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort, ascending, int64 ``[B]``."""
        everyone = np.arange(candidates.num_clients)
        key = stream("selection by coins", candidates.seed, candidates.round)
        drawn = everyone[uniform(fold(key, everyone)) < self.rate]
        return drawn[candidates.available(drawn)]
