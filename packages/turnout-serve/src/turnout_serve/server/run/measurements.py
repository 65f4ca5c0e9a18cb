"""The measurements before the selection of a cohort on a server, without those that make the selection raise."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from turnout.protocol.federated_server import FederatedServer
from turnout.protocol.pace import Gather
from turnout_serve.server.run.reports import Reports
from turnout_serve.server.run.training_tasks import TrainingTasks

log = logging.getLogger("turnout.server")


class Measurements:
    """The measurements for the present round, by the tasks of the clients that have measured.

    Args:
        server: holds the measurements.
        reports: those that are still to be used.
        tasks: ends the tasks of clients.

    Attributes:
        task_of: the task of each client that has measured.
    """

    def __init__(self, server: FederatedServer, reports: Reports, tasks: TrainingTasks) -> None:
        self._server, self._reports, self._tasks = server, reports, tasks
        self.task_of: dict[int, int] = {}

    def gathered(self, action: Gather) -> None:
        """Record the tasks of a phase that is over."""
        if action.phase == "measure":
            self.task_of = dict(zip(action.clients, action.tasks, strict=True))

    def drop(self, rows: Sequence[int], error: Exception) -> None:
        """Drop the measurements in some rows, because they raise an error."""
        if not rows or (measured := self._server.measured) is None:
            return
        clients = np.unique(measured.client[list(rows)]).tolist()
        tasks = [self.task_of[client] for client in clients]
        log.error("measurements dropped", extra={"clients": clients, "reason": repr(error)})
        self._server.measure_by(measured.take(np.delete(np.arange(len(measured)), rows)))
        self._reports.exclude(tasks, repr(error))
        self._tasks.end(tasks, clients, "unusable")
