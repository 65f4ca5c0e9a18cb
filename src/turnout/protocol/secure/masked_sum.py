"""Run the server of a round whose updates are summed in secret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from turnout.base import Weighting
from turnout.core.types import Federation, Report, ServerState
from turnout.distributed.sums import Summed
from turnout.protocol.secure.attendance import Attendance
from turnout.protocol.secure.masked_vectors import MaskedVectors, Messages
from turnout.protocol.secure.masking import Masking
from turnout.protocol.streaming import product_of_factors


class MaskedSum(MaskedVectors):
    """Compute the sum of the weighted updates of one round.

    Args:
        masking: options of the sum.
        weighting: chain of weightings, whose factors multiply the updates.
        state: the server's state before the step.
        federation: known properties of the federation.
        attendance: clients in each phase.
        messages: messages of the clients.
    """

    def __init__(
        self,
        masking: Masking,
        weighting: Sequence[Weighting],
        state: ServerState,
        federation: Federation,
        attendance: Attendance,
        messages: Messages,
    ) -> None:
        super().__init__(masking, len(state.params), attendance, messages)
        self._weighting, self._state, self._federation = weighting, state, federation

    def report(self, clients: Sequence[int]) -> tuple[Report | None, dict[int, str], str]:
        """Open the sum, as `total` does.

        Returns:
            The reports of the clients in the sum, with the sum in place of their updates, or None; and the rest of what
            `total` returns.
        """
        total, culprits, why = self.total(clients)
        if total is None:
            return None, culprits, why
        params, rows = self._state.params, np.searchsorted(self.dealt, self._attendance.masked)
        delta = Summed(torch.from_numpy(total).to(params.device), self.factors()[torch.from_numpy(rows)], params.dtype)
        return replace(self._announcements().take(rows), delta=delta), culprits, why

    def _announcements(self) -> Report:
        """Return the reports of all clients in the graph, without updates."""
        reports = Report.cat(self._messages.report(client) for client in self.dealt)
        return replace(reports, good=reports.finite())

    def factors(self) -> torch.Tensor:
        """Return the product of the weightings' factors of each client's update, float64 ``[n]``."""
        reports = self._announcements()
        return product_of_factors(self._weighting, self._state, self._federation, reports, int(reports.version[0]))
