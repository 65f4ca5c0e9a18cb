"""Protocols of the extra phases of an aggregation: messages between server and clients after training.

An aggregation with `ExtraPhases` provides an `Attendance` and the summands of clients, which is all that a simulation
needs. Between machines, a `ServerSide` and a `ClientSide` write and read the messages, and the driver serializes the
tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from turnout.base.weighting import Weighting
from turnout.core.types import Federation, Report, ServerState, State

Form = dict[str, tuple[torch.dtype, tuple[int, ...]]]
"""Type and shape of the tensors of a message, by name."""


class Attendance(Protocol):
    """Decide which clients take part in the extra phases of one round, without messages."""

    opens: bool
    """True if the step has the sum of the round after the last phase."""

    def ask(self, phase: str, clients: Sequence[int]) -> list[int]:
        """Return the clients to ask for a phase, from those that completed the phase before.

        The list is empty if too few are left.
        """
        ...

    def gathered(self, phase: str, clients: Sequence[int]) -> None:
        """Record the clients that completed a phase."""
        ...

    def used(self) -> Sequence[int]:
        """Return the clients whose updates are in the step; empty if the sum cannot be opened."""
        ...

    def state(self) -> dict[str, np.ndarray]:
        """Return the state as arrays, by name."""
        ...

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restore the state that `state` returned."""


class Messages(Protocol):
    """The messages of one round that a server has received, by phase and client."""

    def report(self, client: int) -> Report:
        """Return the report of a client's training without its update."""
        ...

    def tensors(self, phase: str, client: int) -> State:
        """Return the tensors of a message, ``[1, ...]`` by name."""
        ...

    def inputs(self, phase: str, client: int) -> State:
        """Return the inputs of a client's task in a phase, ``[1, ...]`` by name."""
        ...


class ServerSide(Protocol):
    """The server's side of the extra phases of one round."""

    def inputs(self, phase: str, clients: Sequence[int]) -> dict[int, State]:
        """Return the inputs of clients' tasks in a phase, ``[1, ...]`` by name, for each client."""
        ...

    def gathered(self, phase: str, clients: Sequence[int]) -> tuple[list[int], dict[int, str]]:
        """Read the messages of a completed phase.

        Returns:
            The clients that are excluded from the sum, and the reason for each client that violated the protocol.
        """
        ...

    def report(self, clients: Sequence[int]) -> tuple[Report | None, dict[int, str], str]:
        """Compute the sum of the round.

        Args:
            clients: clients that completed the last phase.

        Returns:
            The reports of the clients in the sum, with the sum in place of their updates, or None without a sum; the
            reason for each client that violated the protocol; and the reason why there is no sum.
        """
        ...


class ClientSide(Protocol):
    """The client's side of the extra phases, over all rounds."""

    def announce(self, client: int, version: int, report: Report, memory: State) -> State | None:
        """Return the tensors to send in place of an update, ``[1, ...]`` by name; None if the update is not finite.

        Args:
            client: number of the client.
            version: version of the round.
            report: report of the client, with the update.
            memory: memory of the client after the update is sent.
        """
        ...

    def answer(self, phase: str, version: int, inputs: State, memory: State) -> tuple[State, State] | None:
        """Do a later phase of the same round.

        Args:
            phase: name of the phase.
            version: version of the round.
            inputs: inputs of the task, by name.
            memory: present memory of the client.

        Returns:
            The tensors to send and the new memory; None if the client drops out.
        """
        ...

    def drop_out(self, reason: str) -> None:
        """Leave the round, for a given reason."""


Shapes = Mapping[str, tuple[int, ...]]
"""Shapes of the inputs of a task, by name."""


class ExtraPhases(Protocol):
    """The phases of a round after training, and the messages in them."""

    names: ClassVar[tuple[str, ...]]
    """Names of the phases, in order; at least one."""

    sends_in: ClassVar[str]
    """The phase in which an update leaves its client. A client that does not complete it is not in the step."""

    @property
    def sums_groups(self) -> bool:
        """True if sums over groups of clients, each with its own version, can be added up in one step."""
        ...

    def attendance(self, seed: int, version: int) -> Attendance:
        """Return the attendance of the round from `version`, or of the group with that number."""
        ...

    def server_side(
        self,
        weighting: Sequence[Weighting],
        state: ServerState,
        federation: Federation,
        attendance: Any,
        messages: Messages,
    ) -> ServerSide:
        """Return the server's side of a round.

        Args:
            weighting: chain of weightings.
            state: state of the server.
            federation: known properties of the federation.
            attendance: the attendance of the round, as `attendance` returned it.
            messages: messages of the round that the server has received.
        """
        ...

    def client_side(self) -> ClientSide:
        """Return the client's side."""
        ...

    def form(self, phase: str, inputs: Shapes, num_params: int) -> Form:
        """Return the type and shape of the tensors in a client's message.

        Args:
            phase: name of the phase.
            inputs: shapes of the inputs of the task, by name.
            num_params: P.
        """
        ...

    def bytes(self, phase: str, num_clients: int, num_params: int) -> tuple[int, int]:
        """Return the bytes that each of `num_clients` clients sends and receives in a phase, beside those of any task.

        In the phase ``"train"``, the bytes are sent in place of the update.
        """
        ...

    def summand(self, factors: torch.Tensor, report: Report, seed: int | None, /) -> torch.Tensor:
        """Return the summands in place of ``f_b Delta_b``, float64 ``[B, P]``.

        Args:
            factors: products f_b of the weighting chain's factors, float64 ``[B]``.
            report: the reports, with the updates Delta_b, ``[B, P]``.
            seed: seed of a simulation, from which noise of the clients is derived; None on a client of a real server,
                which draws its own noise.
        """
        ...
