"""Measure the messages between a simulated server and its clients, and count their bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from turnout.core.types import Task
from turnout.protocol.federated_server import FederatedServer
from turnout.protocol.pace import Pace, Phase
from turnout.simulation.dispatch import SimulatedClients
from turnout.simulation.work_times import Effort

_NUMBER = 8  # bytes of the version in every task


class Traffic:
    """Bytes to clients and from clients by phase, without reports that are lost or not sent.

    A client that has measured a model does not receive it again to train.

    Args:
        efforts: the sizes of the messages of each phase.

    Example:
        >>> traffic = Traffic({"train": Effort(1, bytes_down=100, bytes_up=40)})
        >>> traffic.asked("train", [3, 7])
        >>> traffic.reported("train", 1)
        >>> traffic.take()
        {'train': (200, 40)}
    """

    def __init__(self, efforts: Mapping[Phase, Effort]) -> None:
        self._efforts = efforts
        self._down, self._up = dict.fromkeys(efforts, 0), dict.fromkeys(efforts, 0)
        self._measuring: set[int] = set()  # clients that have received the present model

    def asked(self, phase: Phase, clients: Collection[int]) -> None:
        """Count the tasks that the server sends."""
        receivers, down = set(clients), self._efforts[phase].bytes_down
        again = len(receivers & self._measuring) if phase == "train" else 0
        self._down[phase] += (len(receivers) - again) * down + again * min(down, _NUMBER)
        self._measuring = receivers if phase == "measure" else set()

    def reported(self, phase: Phase, number: int) -> None:
        """Count the reports that clients send."""
        self._up[phase] += number * self._efforts[phase].bytes_up

    def take(self) -> dict[Phase, tuple[int, int]]:
        """Return the bytes to clients and from clients since the last call, by phase."""
        taken = {phase: (down, self._up[phase]) for phase, down in self._down.items()}
        self._down, self._up = dict.fromkeys(taken, 0), dict.fromkeys(taken, 0)
        return taken


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
        return broadcast + _NUMBER + sum(value.nbytes for value in inputs.values())
