"""Give clients training tasks, end them, and set the timers of the pace."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np

from turnout.protocol.coordinator import Coordinator
from turnout.protocol.pace import Ask, Drop, SetTimer
from turnout_serve.server.journal.entries import Outcome
from turnout_serve.server.run.blame import is_of_the_machine
from turnout_serve.server.run.extra_phases import ExtraPhases
from turnout_serve.server.run.ledger import Ledger
from turnout_serve.server.run.publication import Published
from turnout_serve.server.run.reports import Reports
from turnout_serve.server.run.task_book import TaskBook
from turnout_serve.wire.assignment import Assignment, plain_row

log = logging.getLogger("turnout.server")


class TrainingTasks:
    """Begin and end the training tasks of clients: the `Timing` of `turnout.protocol.loop`.

    Args:
        book: the open tasks of clients.
        coordinator: schedules tasks.
        reports: those that are still to be used.
        extra: the phases after training.
        ledger: counts tasks that are dropped; None counts nothing.
        publish: function that writes the present model to a file.
        heartbeat: seconds between two heartbeats of a client at work.

    Attributes:
        timers: when each timer expires, in seconds of the server.
        measured: the task of each client that has measured for the present round.
    """

    def __init__(
        self,
        book: TaskBook,
        coordinator: Coordinator,
        reports: Reports,
        extra: ExtraPhases,
        ledger: Ledger | None,
        publish: Callable[[], Published],
        heartbeat: float,
    ) -> None:
        self._book, self._coordinator, self._reports = book, coordinator, reports
        self._extra, self._ledger, self._publish, self._heartbeat = extra, ledger, publish, heartbeat
        self.timers: dict[int, float] = {}
        self.measured: dict[int, int] = {}

    def ask(self, ask: Ask) -> None:
        """Give clients tasks; where the messages of an extra phase make it impossible, they count as failed."""
        try:
            extra = self._extra.inputs(ask.phase, ask.clients)
        except Exception as error:
            if is_of_the_machine(error):
                raise
            log.error("phase aborted", extra={"phase": ask.phase, "reason": repr(error)})
            for client, task in zip(ask.clients, ask.tasks, strict=True):
                self._coordinator.scheduler.died(self._book.effects.time, client, task)
            return
        orders, model = self._coordinator.orders(ask), self._publish()
        for order in orders:
            told = plain_row(extra.get(order.client, order.inputs), 0)
            about = order.task, order.version, order.phase, order.repeat_index, model.digest, model.size
            self._book.add(order.client, Assignment(*about, self._heartbeat, told))
        self._book.effects.assigned += ask.clients

    def timer(self, timer: SetTimer) -> None:
        """Set a timer, and forget those that the pace does not wait for any more."""
        pending = self._coordinator.scheduler.pace.timers
        self.timers = {number: due for number, due in self.timers.items() if number in pending}
        self.timers[timer.timer] = timer.time
        self._book.effects.timers.append((timer.timer, timer.time))

    def dropped(self, drop: Drop) -> None:
        """End tasks without using their reports."""
        self.end(drop.tasks, drop.clients, self._book.effects.leave_reason if drop.reason == "left" else drop.reason)

    def end(self, tasks: Sequence[int], clients: Sequence[int], reason: str) -> None:
        """End tasks for a reason; their reports are forgotten."""
        for task, client in zip(tasks, clients, strict=True):
            self._book.end(Outcome(task, client, reason))
        self._reports.forget(tasks)
        if self._ledger is not None:
            self._ledger.drop(reason, clients)

    def drop_measurements(self, rows: Sequence[int], error: Exception) -> None:
        """Drop the measurements in some rows, because they raise an error."""
        server = self._coordinator.server
        if not rows or (measured := server.measured) is None:
            return
        clients = np.unique(measured.client[list(rows)]).tolist()
        tasks = [self.measured[client] for client in clients]
        log.error("measurements dropped", extra={"clients": clients, "reason": repr(error)})
        server.measure_by(measured.take(np.delete(np.arange(len(measured)), rows)))
        self._reports.exclude(tasks, repr(error))
        self.end(tasks, clients, "unusable")

    def end_all(self, reason: str) -> None:
        """End all open tasks for a reason."""
        for client, task in sorted(self._book.training(), key=lambda pair: pair[1].task):
            self.end([task.task], [client], reason)
