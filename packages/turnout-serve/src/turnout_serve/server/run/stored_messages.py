"""The messages of clients in the phases of one secure sum: files that are read when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from turnout.core.types import Report, State
from turnout_serve.server.run.setting import RunSetting
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import decode


class StoredMessages:
    """The last message of each client in each phase of a sum: the digest of its file, and its task.

    Args:
        setting: setting of the run.
        read: function that returns the body of a message, by its task and its digest.
    """

    def __init__(self, setting: RunSetting, read: Callable[[int, str], bytes]) -> None:
        self._setting, self._read = setting, read
        self._messages: dict[str, dict[int, tuple[str, Assignment]]] = {}

    def take(self, phase: str, client: int, body: str, task: Assignment) -> None:
        """Add the message of a client in a phase, in place of an earlier one."""
        self._messages.setdefault(phase, {})[client] = body, task

    def drop(self, clients: Iterable[int]) -> None:
        """Forget the messages of clients."""
        for client in clients:
            for messages in self._messages.values():
                messages.pop(client, None)

    def senders(self, phase: str) -> list[int]:
        """Return the clients that have sent a message of a phase, in the order of their first one."""
        return list(self._messages.get(phase, ()))

    def bodies(self) -> list[str]:
        """Return the digests of all messages."""
        return [body for messages in self._messages.values() for body, _ in messages.values()]

    def keep(self, clients: Iterable[int]) -> None:
        """Forget the messages of all other clients."""
        self.drop({client for messages in self._messages.values() for client in messages}.difference(clients))

    def report(self, client: int) -> Report:
        """Return the report of a client on its training, without its update."""
        version = self._messages["train"][client][1].version
        return self._setting.reports["train"].read(self._body("train", client), client, version, checked=True)

    def tensors(self, phase: str, client: int) -> State:
        """Return the tensors of a message."""
        return decode(self._body(phase, client), self._setting.expected(self._messages[phase][client][1]).manifest)

    def inputs(self, phase: str, client: int) -> State:
        """Return the inputs of the task of a client."""
        return self._messages[phase][client][1].tensors()

    def _body(self, phase: str, client: int) -> bytes:
        body, task = self._messages[phase][client]
        return self._read(task.task, body)

    def facts(self) -> list[list[Any]]:
        """Return the state as plain values."""
        return [
            [phase, client, body, task.json()]
            for phase, messages in self._messages.items()
            for client, (body, task) in messages.items()
        ]

    def restore(self, facts: Iterable[Sequence[Any]]) -> None:
        """Restore what `facts` returned."""
        for phase, client, body, task in facts:
            self.take(phase, client, body, Assignment.read(task))
