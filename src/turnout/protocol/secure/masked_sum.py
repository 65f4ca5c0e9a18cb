"""Run the server of a round whose updates are summed in secret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from turnout.core.types import Report
from turnout.distributed.sums import Summed
from turnout.protocol.federated_server import FederatedServer
from turnout.protocol.secure.attendance import Attendance
from turnout.protocol.secure.masked_vectors import MaskedVectors, Messages
from turnout.protocol.streaming import product_of_factors


class MaskedSum(MaskedVectors):
    """Compute the sum of the weighted updates of one round.

    Args:
        server: the server, whose weightings have factors that multiply the updates.
        attendance: clients in each phase.
        messages: messages of the clients.
    """

    def __init__(self, server: FederatedServer, attendance: Attendance, messages: Messages) -> None:
        extra = server.algorithm.aggregation.extra
        assert extra is not None
        super().__init__(extra.masking, len(server.state.params), attendance, messages)
        self._server = server

    def report(self, clients: Sequence[int]) -> tuple[Report | None, dict[int, str], str]:
        """Open the sum, as `total` does.

        Returns:
            The reports of the clients in the sum, with the sum in place of their updates, or None; and the rest of what
            `total` returns.
        """
        total, culprits, why = self.total(clients)
        if total is None:
            return None, culprits, why
        params, rows = self._server.state.params, np.searchsorted(self.dealt, self._attendance.masked)
        delta = Summed(torch.from_numpy(total).to(params.device), self.factors()[torch.from_numpy(rows)], params.dtype)
        return replace(self._announcements().take(rows), delta=delta), culprits, why

    def _announcements(self) -> Report:
        """Return the reports of all clients in the graph, without updates."""
        reports = Report.cat(self._messages.report(client) for client in self.dealt)
        return replace(reports, good=reports.finite())

    def factors(self) -> torch.Tensor:
        """Return the product of the weightings' factors of each client's update, float64 ``[n]``."""
        server, reports = self._server, self._announcements()
        chain, version = server.algorithm.weighting, int(reports.version[0])
        return product_of_factors(chain, server.state, server.federation, reports, version)
