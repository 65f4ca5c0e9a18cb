"""State of a client: its identity, its memory between tasks, and the report that is not yet taken."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cached_property

from turnout.core.types import State
from turnout.protocol.survey import FIRST_TASK
from turnout_serve.client.sum_history import SumHistory
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import digest


@dataclass(frozen=True)
class Pending:
    """A report that the server has not yet answered.

    Attributes:
        task: task of the report.
        body: bytes of the report.
        memory: memory of the client once the report is taken.
    """

    task: Assignment
    body: bytes
    memory: State

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bytes, which names the report."""
        return digest(self.body)


class ClientState:
    """State of a client, which is lost when the process ends; see `turnout_serve.client.state_folder.StateFolder`.

    Attributes:
        token: authenticates the client.
        client: number of the client; None before it is enrolled.
        run: name of the run; None before it is enrolled.
        memory: a row by name; None before the first task.
        last: the last task of the training whose report was taken, which made this memory; None before the first.
        pending: the report that is not yet taken.
        sums: what the client has sent to sums.
        is_resumed: True if an earlier process has stored this state.
    """

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        self.client: int | None = None
        self.run: str | None = None
        self.memory: State | None = None
        self.last: int | None = None
        self.pending: Pending | None = None
        self.sums, self.is_resumed = SumHistory(), False

    def enrolled(self, client: int, run: str) -> None:
        """Set the number of the client, and the name of the run."""
        self.client, self.run = client, run

    def hold(self, pending: Pending) -> None:
        """Keep a report until the server has answered it."""
        self.pending = pending

    def settle(self, pending: Pending) -> None:
        """Take over the memory of the pending report, which the server has taken."""
        self.last, self.memory, self.pending = self.last_after(pending), pending.memory, None

    def last_after(self, pending: Pending) -> int | None:
        """Return the last task of the training once a report is taken; evaluations and queries change no memory."""
        return pending.task.task if pending.task.task < FIRST_TASK else self.last

    def drop(self) -> None:
        """Delete the pending report, and keep the memory from before."""
        self.pending = None

    def forget(self) -> None:
        """Delete the memory and the pending report, which are those of another client, but not what was sent to sums."""
        self.last = self.memory = self.pending = None
