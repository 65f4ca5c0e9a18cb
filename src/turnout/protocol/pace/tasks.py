"""Track open tasks: who works on which, and from which version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Literal

import numpy as np

from turnout.core.checks import ConfigurationError
from turnout.protocol.pace.actions import Ask, Phase


class OpenTasks:
    """Tasks that were asked for and have not ended; a client has one at a time.

    Attributes:
        asked: how many tasks were ever asked for: the number of the next one.
        of: the task of each client at work.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.of: dict[int, int] = {}
        self._open: dict[int, tuple[int, int]] = {}  # task -> (client, version), in ascending order of tasks
        self._number: Counter[int] = Counter()  # of open tasks, by version

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, clients: Sequence[int], version: int, phase: Phase = "train") -> Ask:
        """Open a task for each of `clients`.

        Raises:
            ConfigurationError: for a client that is at work.
        """
        tasks = range(self.asked, self.asked + len(clients))
        of = dict(zip(clients, tasks, strict=True))
        if len(of) < len(clients) or (self.of and not self.of.keys().isdisjoint(of)):
            raise self._at_work(clients)
        self.of |= of
        self._open.update(zip(tasks, zip(clients, repeat(version)), strict=True))
        self.asked += len(clients)
        if clients:
            self._number[version] += len(clients)
        return Ask(tasks, clients, version, phase)

    def _at_work(self, clients: Sequence[int]) -> ConfigurationError:
        """Return the error for a client that has a task, or would have two."""
        of, numbered = dict(self.of), enumerate(clients, self.asked)
        client = next(client for task, client in numbered if of.setdefault(client, task) != task)
        return ConfigurationError(f"client {client} is at work on task {of[client]}: choose one that is idle")

    def why_not(self, task: int, client: int) -> Literal["ended", "unknown"] | None:
        """Return why a client has no such open task; None if it has."""
        if task in self._open:
            return None if self._open[task][0] == client else "unknown"
        return "ended" if 0 <= task < self.asked else "unknown"

    def end(self, task: int) -> int:
        """Close a task; return the version that it trains from."""
        client, version = self._open.pop(task)
        del self.of[client]
        self._number[version] -= 1
        if not self._number[version]:
            del self._number[version]
        return version

    def end_all(self) -> tuple[list[int], list[int]]:
        """Close all tasks; return tasks and clients, in the order in which they were asked."""
        tasks, clients = list(self._open), [client for client, _ in self._open.values()]
        self._open.clear()
        self.of.clear()
        self._number.clear()
        return tasks, clients

    def end_of(self, clients: Iterable[int]) -> tuple[list[int], list[int]]:
        """Close the tasks of some clients; return the tasks, and the clients that had one."""
        working = [client for client in clients if client in self.of]
        tasks = [self.of[client] for client in working]
        for task in tasks:
            self.end(task)
        return tasks, working

    def versions(self) -> set[int]:
        """Return the versions that are being trained from."""
        return set(self._number)

    def state(self) -> dict[str, np.ndarray]:
        """Return the state as int64 arrays."""
        rows = [(task, client, version) for task, (client, version) in self._open.items()]
        return {"asked": np.array(self.asked), "open": np.array(rows, dtype=np.int64).reshape(-1, 3)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restore a state that `state` returned."""
        self.asked = int(state["asked"])
        self._open = {task: (client, version) for task, client, version in state["open"].tolist()}
        self.of = {client: task for task, (client, _) in self._open.items()}
        self._number = Counter(version for _, version in self._open.values())
