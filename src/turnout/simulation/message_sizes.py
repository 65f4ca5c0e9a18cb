"""Measure the messages of a simulation: what clients send and receive in each phase."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from turnout.core.types import Task
from turnout.protocol.federated_server import FederatedServer
from turnout.protocol.pace import Pace, Phase
from turnout.simulation.dispatch import SimulatedClients
from turnout.simulation.work_times import Effort


class MessageSizes:
    """Measure messages by the task of one client, the one with the fewest examples.

    Args:
        workers: the clients.
        server: the server.
        pace: tells how many clients mask their updates together.
    """

    def __init__(self, workers: SimulatedClients, server: FederatedServer, pace: Pace) -> None:
        self._workers, self._server, self._pace = workers, server, pace

    def of(self, phase: Phase) -> tuple[int, int]:
        """Return the size of a report of a phase, and of what a client receives."""
        server, state = self._server, self._server.state
        smallest = np.array([self._workers.workspace.data.train.sizes.argmin()])
        inputs = server.algorithm.per_client_inputs(smallest, state, server.federation)
        first = -1 if phase == "prepare" else 0
        task = Task(state.params, first, server.federation.seed, phase, server.shared(), inputs)
        report, _ = self._workers.step(smallest, task)
        if phase == "train" and (sizes := self._masked(phase)) is not None:
            report = replace(report, vector_bytes=sizes[0])
        return report.nbytes, self.down(phase)

    def down(self, phase: Phase = "train") -> int:
        """Return the size of what a client receives in a phase: the broadcast, the version, and its own inputs."""
        algorithm, state = self._server.algorithm, self._server.state
        inputs = algorithm.per_client_inputs(np.zeros(1, dtype=np.int64), state, self._server.federation)
        broadcast = algorithm.broadcast_bytes(state, alone=phase == "prepare")
        return broadcast + 8 + sum(value.nbytes for value in inputs.values())

    def after_training(self) -> dict[Phase, Effort]:
        """Return the efforts of the phases after training: messages alone, of the size with all clients."""
        return {phase: Effort(0, *(self._masked(phase) or (0, 0))) for phase in self._server.algorithm.extra_phases}

    def _masked(self, phase: Phase) -> tuple[int, int] | None:
        """Return the sizes of messages that the aggregation declares, with all clients."""
        server = self._server
        if (extra := server.algorithm.aggregation.extra) is None:
            return None
        n = self._pace.masks_together(server.federation.num_clients)
        return extra.bytes(phase, n, len(server.state.params))
