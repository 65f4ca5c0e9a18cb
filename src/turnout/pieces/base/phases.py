"""The extra phases of an aggregation: what a round asks of clients after training, and both sides of the exchange.

An aggregation that declares `Aggregation.phases` also gives an `Attendance`, which a simulation is content with. Between
machines a `ServerSide` and a `ClientSide` make and read the messages; whoever drives them turns tensors into bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch

from turnout.core.types import Report, State

Form = dict[str, tuple[torch.dtype, tuple[int, ...]]]
"""Type and shape of the tensors of a message, by name."""


class Attendance(Protocol):
    """Decide who takes part in the extra phases of one round, without any message."""

    opens: bool
    """True if the step has the sum of the round, once the last phase was gathered."""

    def ask(self, phase: str, clients: Sequence[int]) -> list[int]:
        """Return whom to ask for a phase, of the clients who completed the phase before; nobody where too few are left."""
        ...

    def gathered(self, phase: str, clients: Sequence[int]) -> None:
        """Note who completed a phase."""
        ...

    def used(self) -> Sequence[int]:
        """Return the clients whose updates are in the step; nobody where the sum cannot be opened."""
        ...

    def state(self) -> dict[str, np.ndarray]:
        """Return what it carries, as arrays."""
        ...

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restore what `state` returned."""


class Messages(Protocol):
    """The messages of one round that a server has received, by phase and client."""

    def report(self, client: int) -> Report:
        """Return what a client reported of its training, without its update."""
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
        """Return the inputs of clients' tasks in a phase, ``[1, ...]`` by name."""
        ...

    def gathered(self, phase: str, clients: Sequence[int]) -> tuple[list[int], dict[int, str]]:
        """Read the messages of a phase that is over.

        Returns:
            The clients that are left out of the sum, and those that broke the protocol, with how.
        """
        ...

    def report(self, clients: Sequence[int]) -> tuple[Report | None, dict[int, str], str]:
        """Compute the sum of the round.

        Args:
            clients: who completed the last phase.

        Returns:
            The reports of the clients in the sum, with the sum in place of their updates; None where there is no sum. Then
            the clients that broke the protocol, with how, and why there is no sum.
        """
        ...


class ClientSide(Protocol):
    """One client's side of the extra phases, round after round."""

    def announce(self, client: int, version: int, report: Report, memory: State) -> State | None:
        """Return what is sent of an update that stays here, ``[1, ...]`` by name; None where the update is not finite.

        Args:
            client: whose update it is.
            version: of the round.
            report: the update and its numbers, of one client.
            memory: what the client remembers once the update is sent.
        """
        ...

    def answer(self, phase: str, version: int, inputs: State, memory: State) -> tuple[State, State] | None:
        """Do a later phase of the same round.

        Args:
            phase: which one.
            version: of the round.
            inputs: the inputs of the task, by name.
            memory: what the client remembers now.

        Returns:
            The tensors to send and what is remembered then; None where the client drops out.
        """
        ...

    def drop_out(self, reason: str) -> None:
        """Give the round up."""


Shapes = Mapping[str, tuple[int, ...]]
"""Shapes of the inputs of a task, by name."""
