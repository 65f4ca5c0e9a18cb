"""Train in one place, on the examples of all clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.base import PoolsExamples, Slots
from turnout.core.candidates import Candidates
from turnout.core.checks import ConfigurationError


@dataclass(frozen=True)
class OnePlace(PoolsExamples, name="one_place"):
    """Train in one place, which holds the examples of all clients: a baseline without federation.

    Each round is one task on the pooled training examples, whose minibatches are drawn from all of them. Its update is
    reported as that of client 0. There are no clients that could be absent, slow or dishonest, so an `Experiment` with it has
    a population that is always available, and synchronous rounds, whatever its settings say.

    Raises:
        ConfigurationError: if parameters are personal, or a piece acts on the updates or the memory of single clients.

    Example:
        >>> from turnout.base.trial import select
        >>> select(OnePlace(), num_clients=5)
        [0]
    """

    needs_simulation = (
        "it trains on the examples of all clients in one place, but those of real clients stay on their machines"
    )

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for pieces that act on single clients."""
        pieces = [algorithm.personal, *algorithm.guard, *algorithm.keeping]
        aggregation = algorithm.aggregation
        pieces += [] if aggregation.family.name_of(type(aggregation)) == "weighted_sum" else [aggregation]
        if names := " and ".join(type(piece).__name__ for piece in pieces if piece is not None):
            raise ConfigurationError(
                f"with all examples in one place there are no clients on which {names} could act: leave it out"
            )

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return client 0, which stands for the place."""
        return np.zeros(1, dtype=np.int64)
