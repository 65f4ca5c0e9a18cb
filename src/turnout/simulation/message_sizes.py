"""Measure the messages of a simulation: what clients send and receive in each phase."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from turnout.core.types import Task
from turnout.protocol.federated_server import FederatedServer
from turnout.protocol.pace import Pace, Phase
from turnout.simulation.dispatch import SimulatedClients


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
        """Return the size of a report of a phase, and of what a client receives.

        The messages of phases after training have the size with all clients.
        """
        server, state = self._server, self._server.state
        algorithm, federation, masked = server.algorithm, server.federation, None
        if (extra := algorithm.aggregation.extra) is not None and phase in ("train", *extra.names):
            together = self._pace.masks_together(federation.num_clients)
            masked = extra.bytes(phase, together, len(state.params))
            if phase != "train":
                return masked
        smallest = np.array([self._workers.workspace.data.train.sizes.argmin()])
        inputs = algorithm.per_client_inputs(smallest, state, federation)
        first = -1 if phase == "prepare" else 0
        report, _ = self._workers.step(
            smallest, Task(state.params, first, federation.seed, phase, server.shared(), inputs)
        )
        if masked is not None:
            report = replace(report, vector_bytes=masked[0])
        return report.nbytes, self.down(phase)

    def down(self, phase: Phase = "train") -> int:
        """Return the size of what a client receives in a phase: the broadcast, the version, and its own inputs."""
        algorithm, state = self._server.algorithm, self._server.state
        inputs = algorithm.per_client_inputs(np.zeros(1, dtype=np.int64), state, self._server.federation)
        broadcast = algorithm.broadcast_bytes(state, alone=phase == "prepare")
        return broadcast + 8 + sum(value.nbytes for value in inputs.values())
