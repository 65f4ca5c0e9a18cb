"""Select the clients with the longest absence (FedLaAvg)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.types import Federation, Report, State
from turnout.pieces.selection.by_record import ByRecord


@dataclass(frozen=True)
class LongestAbsent(ByRecord, name="longest_absent"):
    """Select the available clients whose last participation is longest ago (FedLaAvg).

    Clients that never took part come first. Ties are broken at random.

    Args:
        cohort_size: number of clients in a round (K), from 1 to the number of clients.

    State: ``last [N]``, the round of each client's last participation, -1 before its first, int64.

    Raises:
        ConfigurationError: if `cohort_size` is not positive or exceeds the number of clients.

    Example:
        >>> from turnout.base.trial import select
        >>> select(LongestAbsent(cohort_size=3))
        [1, 65, 76]

    Reference: Yan et al., "Federated optimization under intermittent client availability", INFORMS Journal on Computing
    2024.
    """

    client_rows = ("last",)

    def init(self, federation: Federation) -> State:
        """Return the record of no participation."""
        return {"last": torch.full((federation.num_clients,), -1, dtype=torch.int64)}

    def rank(self, clients: np.ndarray, version: int, record: State) -> np.ndarray:
        """Return the round of each client's last participation, int64 ``[n]``."""
        return record["last"].numpy()[clients]

    def new(self, clients: np.ndarray, record: State) -> np.ndarray:
        """Return a mask of the clients that never took part, bool ``[n]``."""
        return record["last"].numpy()[clients] < 0

    def apply(self, report: Report, version: int, state: State) -> State:
        """Return the record with the participants of this step."""
        state["last"][torch.from_numpy(report.client)] = version
        return state
