"""Choose clients whose share of the objective is large relative to how often they take part (F3AST)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.types import Report, State
from turnout.pieces.base import SmoothedRates
from turnout.pieces.selection.by_record import ByRecord


@dataclass(frozen=True)
class LeastServed(SmoothedRates, ByRecord, name="least_served"):
    """Choose the `cohort_size` available clients with the largest ``p_k / r_k``, which reduce the variance most.

    r_k is the smoothed rate at which client k takes part (`SmoothedRates`). The variance that the choice of cohorts adds to
    an unbiased step grows with ``H(r) = sum_k p_k^2 / r_k``, whose slope is ``-(p_k / r_k)^2``.

    With `shares`, each round asks and ranks all N clients.

    State: ``rate [N]`` and ``last [N]``.

    Args:
        cohort_size: clients in a round (K).
        beta: of the smoothing, in (0, 1].
        shares: p, the clients' shares of the objective; None is 1/N each.

    Raises:
        ConfigurationError: for a cohort that is empty or larger than the federation, besides the errors of `SmoothedRates`.

    Example:
        >>> from turnout.pieces.base.trial import select
        >>> select(LeastServed(cohort_size=3))
        [1, 65, 76]

    Reference: Ribero, Vikalo and de Veciana, "Federated learning under intermittent client availability and time-varying
    communication constraints", IEEE JSTSP 2023.
    """

    client_rows = ("rate", "last")

    beta: float = 0.01
    shares: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_rates()

    def rank(self, clients: np.ndarray, version: int, record: State) -> np.ndarray:
        """Return ``r_k / p_k``."""
        return self.rate_before(clients, version, record) / self.share(clients, len(record["rate"]))

    def new(self, clients: np.ndarray, record: State) -> np.ndarray:
        """Return a mask of the clients that never took part, where all p are equal: their r is the lowest."""
        if self.shares is not None or self.beta == 1:
            return super().new(clients, record)
        return record["last"].numpy()[clients] < 0

    def apply(self, report: Report, version: int, state: State) -> State:
        """Return the record with the clients of this step."""
        self.note(report.client, version, state)
        return state
