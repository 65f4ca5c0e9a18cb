"""Choose the clients that have been absent the longest (FedLaAvg)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.types import Federation, Report, State
from turnout.pieces.selection.by_record import ByRecord


@dataclass(frozen=True)
class LongestAbsent(ByRecord, name="longest_absent"):
    """Choose the `cohort_size` available clients that took part longest ago, those that never did first.

    State: ``last [N]``, the round of each client's last participation, -1 before.

    Args:
        cohort_size: clients in a round (K).

    Raises:
        ConfigurationError: for a cohort that is empty or larger than the federation.

    Example:
        >>> from turnout.pieces.base.trial import select
        >>> select(LongestAbsent(cohort_size=3))
        [1, 65, 76]

    Reference: Yan et al., "Federated optimization under intermittent client availability", INFORMS Journal on Computing 2024.
    """

    client_rows = ("last",)

    def init(self, federation: Federation) -> State:
        """Return -1 for all clients."""
        return {"last": torch.full((federation.num_clients,), -1, dtype=torch.int64)}

    def rank(self, clients: np.ndarray, version: int, record: State) -> np.ndarray:
        """Return the round of each client's last participation."""
        return record["last"].numpy()[clients]

    def new(self, clients: np.ndarray, record: State) -> np.ndarray:
        """Return a mask of the clients that never took part."""
        return record["last"].numpy()[clients] < 0

    def apply(self, report: Report, version: int, state: State) -> State:
        """Return the record with the clients of this step."""
        state["last"][torch.from_numpy(report.client)] = version
        return state
