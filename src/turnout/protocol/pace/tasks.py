"""Open tasks with their clients and versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Literal

import numpy as np

from turnout.core.checks import ConfigurationError
from turnout.protocol.pace.actions import Ask, Phase


class OpenTasks:
    """The tasks that were sent and have not ended; a client has at most one.

    Attributes:
        next_task: number of the next task.
        task_of: open task of each client.
    """

    def __init__(self) -> None:
        self.next_task = 0
        self.task_of: dict[int, int] = {}
        self._open: dict[int, tuple[int, int]] = {}  # task -> (client, version), in ascending order of tasks
        self._num_open: Counter[int] = Counter()  # number of open tasks, by version

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, clients: Sequence[int], version: int, phase: Phase = "train") -> Ask:
        """Open a task for each client.

        Raises:
            ConfigurationError: if a client has an open task.
        """
        tasks = range(self.next_task, self.next_task + len(clients))
        of = dict(zip(clients, tasks, strict=True))
        if len(of) < len(clients) or (self.task_of and not self.task_of.keys().isdisjoint(of)):
            raise self._at_work(clients)
        self.task_of |= of
        self._open.update(zip(tasks, zip(clients, repeat(version)), strict=True))
        self.next_task += len(clients)
        if clients:
            self._num_open[version] += len(clients)
        return Ask(tasks, clients, version, phase)

    def _at_work(self, clients: Sequence[int]) -> ConfigurationError:
        """Return the error for a client that has an open task, or that would receive two."""
        of, numbered = dict(self.task_of), enumerate(clients, self.next_task)
        client = next(client for task, client in numbered if of.setdefault(client, task) != task)
        return ConfigurationError(f"client {client} is at work on task {of[client]}: choose one that is idle")

    def why_closed(self, task: int, client: int) -> Literal["ended", "unknown"] | None:
        """Return the reason why a client has no such open task; None if it has one."""
        if task in self._open:
            return None if self._open[task][0] == client else "unknown"
        return "ended" if 0 <= task < self.next_task else "unknown"

    def end(self, task: int) -> int:
        """Close a task and return its version."""
        client, version = self._open.pop(task)
        del self.task_of[client]
        self._num_open[version] -= 1
        if not self._num_open[version]:
            del self._num_open[version]
        return version

    def end_all(self) -> tuple[list[int], list[int]]:
        """Close all tasks; return tasks and clients in the order in which the tasks were opened."""
        tasks, clients = list(self._open), [client for client, _ in self._open.values()]
        self._open.clear()
        self.task_of.clear()
        self._num_open.clear()
        return tasks, clients

    def end_of(self, clients: Iterable[int]) -> tuple[list[int], list[int]]:
        """Close the tasks of clients; return the tasks, and the clients that had one."""
        working = [client for client in clients if client in self.task_of]
        tasks = [self.task_of[client] for client in working]
        for task in tasks:
            self.end(task)
        return tasks, working

    def versions(self) -> set[int]:
        """Return the versions of open tasks."""
        return set(self._num_open)

    def state(self) -> dict[str, np.ndarray]:
        """Return the state as int64 arrays."""
        tasks = [(task, client, version) for task, (client, version) in self._open.items()]
        return {"asked": np.array(self.next_task), "open": rows(tasks, 3)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restore a state that `state` returned."""
        self.next_task = int(state["asked"])
        self._open = {task: (client, version) for task, client, version in state["open"].tolist()}
        self.task_of = {client: task for task, (client, _) in self._open.items()}
        self._num_open = Counter(version for _, version in self._open.values())


def rows(records: Sequence[tuple[int, ...]], width: int) -> np.ndarray:
    """Return records of integers as int64 ``[n, width]``."""
    return np.array(records, dtype=np.int64).reshape(-1, width)
