"""Select clients with a large share of the objective relative to their participation rate (F3AST)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.base import SmoothedRates
from turnout.core.types import Report, State
from turnout.pieces.selection.by_record import ByRecord


@dataclass(frozen=True)
class LeastServed(SmoothedRates, ByRecord, name="least_served"):
    """Select the available clients with the largest share of the objective relative to their participation rate (F3AST).

    The cohort is the `cohort_size` clients with the largest ``p_k / r_k``. Here p_k is the share of client k in the
    objective, and r_k is an exponential average of its participation: ``r_k <- (1 - beta) r_k + beta 1_k`` in each
    round, where 1_k is 1 if the client takes part, and 0 otherwise, from ``r_k = 1 / N``. Ties are broken at random.

    With the weights ``p_k / r_k`` (`BySmoothedRate`) the step is unbiased, and the choice of cohorts adds a variance
    that grows with ``H(r) = sum_k p_k^2 / r_k``. Its derivative with respect to r_k is ``-(p_k / r_k)^2``, so these
    clients reduce it most.

    With `shares`, each round looks up and ranks all N clients.

    Args:
        cohort_size: number of clients in a round (K), from 1 to N.
        beta: smoothing factor, in (0, 1]. Larger values follow recent rounds more closely.
        shares: share p of each of the N clients in the objective, positive numbers that sum to 1. None means 1/N each.

    State: ``rate [N]``, r after the round ``last``, float64; ``last [N]``, the client's last round, -1 before the
    first, int64.

    Raises:
        ConfigurationError: if `cohort_size` or `beta` is out of range, or if `shares` are not positive numbers that sum
            to 1.

    Example:
        >>> from turnout.base.trial import select
        >>> select(LeastServed(cohort_size=3))
        [1, 65, 76]

    Reference: Ribero, Vikalo and de Veciana, "Federated learning under intermittent client availability and
    time-varying communication constraints", IEEE JSTSP 2023.
    """

    client_rows = ("rate", "last")

    beta: float = 0.01
    shares: tuple[float, ...] | None = None

    def rank(self, clients: np.ndarray, version: int, record: State) -> np.ndarray:
        """Return ``r_k / p_k``, float64 ``[n]``."""
        return self.rate_before(clients, version, record) / self.share(clients, len(record["rate"]))

    def new(self, clients: np.ndarray, record: State) -> np.ndarray:
        """Return a mask of the clients that never took part, whose r is the lowest, if all p are equal."""
        if self.shares is not None or self.beta == 1:
            return super().new(clients, record)
        return record["last"].numpy()[clients] < 0

    def apply(self, report: Report, version: int, state: State) -> State:
        """Return the record with the participants of this step."""
        self.note(report.client, version, state)
        return state
