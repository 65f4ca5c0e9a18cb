"""State of a client: its identity, its memory between tasks, and the report that is not yet taken."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from turnout.core.types import State
from turnout.protocol.survey import FIRST_TASK
from turnout_serve.client.state_folder import StateFolder
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
    """State of a client.

    Args:
        folder: where the state survives the process; None loses it when the process ends.

    Attributes:
        token: authenticates the client.
        client: number of the client; None before it is enrolled.
        run: name of the run; None before it is enrolled.
        memory: a row by name; None before the first task.
        last: the last task of the training whose report was taken, which made this memory; None before the first.
        pending: the report that is not yet taken.
        sums: what the client has sent to sums.
        is_resumed: True if an earlier process has stored this state.

    Raises:
        CheckpointError: if another process uses the folder, or it is damaged; by all methods if the disk is full.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.token = secrets.token_urlsafe(32)
        self.client: int | None = None
        self.run: str | None = None
        self.memory: State | None = None
        self.last: int | None = None
        self.pending: Pending | None = None
        self.sums, self.is_resumed = SumHistory(), False
        self._folder = None if folder is None else StateFolder(folder)
        if self._folder is None:
            return
        if (saved := self._folder.read()) is None:
            self.sums = SumHistory(self._folder.add_sum)
            self._folder.write_identity(self.token, None, None)
            return
        self.token, self.client, self.run = saved.identity.token, saved.identity.client, saved.identity.run
        self.memory, self.sums, self.is_resumed = saved.memory, saved.sums, True
        self.last = _without_last(self.memory)
        self.pending = None if saved.report is None else Pending(*saved.report)
        _without_last(self.pending and self.pending.memory)

    def close(self) -> None:
        """Unlock the folder."""
        if self._folder is not None:
            self._folder.close()

    def enrolled(self, client: int, run: str) -> None:
        """Store the number of the client, and the name of the run."""
        self.client, self.run = client, run
        if self._folder is not None:
            self._folder.write_identity(self.token, client, run)

    def hold(self, pending: Pending) -> None:
        """Store a report until the server has answered it."""
        if self._folder is not None:
            last = {} if (task := self._after(pending)) is None else {_LAST: torch.tensor(task)}
            self._folder.hold(pending.task, pending.body, pending.memory | last)
        self.pending = pending

    def settle(self, pending: Pending) -> None:
        """Take over the memory of the pending report, which the server has taken."""
        if self._folder is not None:
            self._folder.settle()
        self.last, self.memory, self.pending = self._after(pending), pending.memory, None

    def _after(self, pending: Pending) -> int | None:
        """Return the last task of the training once a report is taken; evaluations and queries change no memory."""
        return pending.task.task if pending.task.task < FIRST_TASK else self.last

    def drop(self) -> None:
        """Delete the pending report, and keep the memory from before."""
        if self._folder is not None:
            self._folder.drop()
        self.pending = None

    def forget(self) -> None:
        """Delete the memory and the pending report, which are those of another client, but not what was sent to sums."""
        if self._folder is not None:
            self._folder.forget()
        self.last = self.memory = self.pending = None


_LAST = "last task"  # beside the memory in its file, so that both change at once


def _without_last(memory: State | None) -> int | None:
    """Remove the number of the last task from a stored memory, and return it."""
    last = None if memory is None else memory.pop(_LAST, None)
    return None if last is None else int(last)
