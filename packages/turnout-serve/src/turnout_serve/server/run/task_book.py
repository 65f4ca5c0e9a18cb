"""The open tasks of clients: of training, and of evaluations and queries."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from turnout.protocol.survey import FIRST_TASK
from turnout_serve.server.journal.entries import Effects, Outcome
from turnout_serve.wire.assignment import Assignment


class TaskBook:
    """The open tasks of each client. Any thread may read them while one changes them.

    Attributes:
        effects: effects of the entry that is applied, on which its tasks, outcomes and timers are noted.
    """

    def __init__(self) -> None:
        self._of_client: dict[int, tuple[Assignment, ...]] = {}
        self.effects = Effects()

    def add(self, client: int, task: Assignment) -> None:
        """Add a task of a client."""
        tasks = (*self.of_client(client), task)
        self._of_client[client] = tuple(sorted(tasks, key=lambda each: (each.task < FIRST_TASK, each.task)))

    def end(self, outcome: Outcome) -> None:
        """Remove a task, if it is open, and note its outcome.

        An entry may end a task twice: a step may drop a report that the same entry has taken. The last outcome counts.
        """
        client, task = outcome.client, outcome.task
        # Noted first: a thread that found the task in neither place would take it for one that there never was.
        self.effects.ended[task] = outcome
        if left := tuple(each for each in self.of_client(client) if each.task != task):
            self._of_client[client] = left
        else:
            self._of_client.pop(client, None)

    def of_client(self, client: int) -> tuple[Assignment, ...]:
        """Return the tasks of a client in the order in which it does them.

        It does those of evaluations and queries first, so that it evaluates a model before it trains from it.
        """
        return self._of_client.get(client, ())

    def get(self, client: int, task: int) -> Assignment | None:
        """Return a task of a client; None if it is not open."""
        return next((each for each in self.of_client(client) if each.task == task), None)

    def clients(self) -> Collection[int]:
        """Return the clients that have a task."""
        return self._of_client.keys()

    def training_of(self, client: int) -> Assignment | None:
        """Return the training task of a client."""
        return next((each for each in self.of_client(client) if each.task < FIRST_TASK), None)

    def training(self) -> Iterator[tuple[int, Assignment]]:
        """Yield the clients that have a training task, with the task; only the thread that changes the book may call this."""
        return ((client, tasks[-1]) for client, tasks in self._of_client.items() if tasks[-1].task < FIRST_TASK)
