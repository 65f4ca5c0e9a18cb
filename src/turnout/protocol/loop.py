"""Carry out the actions of a pace, for a simulation in virtual time and for a server on a network.

`carry_out` performs the actions that need no model: it sends and drops tasks and sets timers until a server step or the end
of a phase is due. `use` performs the latter: it collects the reports and passes them to the coordinator. A driver implements
`Timing`, which starts and ends tasks, and `Clients`, which returns their reports. A simulation calls the coordinator in place
of `use`, because it yields the tasks of clients, and ends with any error.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from turnout.core.types import Report
from turnout.protocol.batch import Batch, Stepped
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.pace import Ask, Drop, Gather, SetTimer, Step
from turnout.protocol.pace.actions import select
from turnout.protocol.scheduler import Scheduler


class Timing(Protocol):
    """Start and end the tasks of clients."""

    def ask(self, ask: Ask) -> None:
        """Send tasks to clients."""

    def dropped(self, drop: Drop) -> None:
        """End tasks without using them."""

    def timer(self, timer: SetTimer) -> None:
        """Set a timer."""


class Clients(Protocol):
    """Collect the reports of clients."""

    def reports_of(self, coordinator: Coordinator, batch: Batch) -> Report:
        """Return the reports of a batch, in its order; an empty report for a phase after training."""
        ...

    def stepped(self, action: Step | Gather, stepped: Stepped | None) -> None:
        """Record a server step, or the end of a phase (None)."""

    def unusable(self, error: Exception, action: Step | Gather) -> Collection[int] | None:
        """Return the tasks of an action whose reports cause an error, so that the action is repeated without them.

        Returns:
            The tasks; empty if the action is to be repeated unchanged, because the cause, something else that clients
            sent, has been removed. None if the error ends the run.
        """
        ...


def carry_out(source: Coordinator | Scheduler, timing: Timing, time: float) -> Step | Gather | None:
    """Carry out actions up to the next one that needs a model, and return that one.

    Args:
        source: the source of actions: a coordinator, or a scheduler if nothing is trained.
        timing: the driver that starts and ends tasks and sets timers.
        time: the present time in seconds.

    Returns:
        The action, for `use`; None if there is none before the next event.
    """
    while (action := source.next(time)) is not None:
        match action:
            case Ask():
                timing.ask(action)
            case Drop():
                timing.dropped(action)
            case SetTimer():
                timing.timer(action)
            case Step() | Gather():
                return action
    return None


def use(
    coordinator: Coordinator, clients: Clients, action: Step | Gather, timing: Timing | None = None
) -> Stepped | None:
    """Pass the reports of an action to the coordinator.

    Args:
        coordinator: coordinator, which takes the step or processes the reports of the phase.
        clients: driver that collects the reports.
        action: action that `carry_out` returned.
        timing: driver that ends tasks whose reports cannot be used; if None, such a report ends the run.

    Returns:
        The outcome of the server step; None if the action is not a step.
    """
    while True:
        batch = coordinator.batch(action)
        try:
            stepped = coordinator.take(batch, clients.reports_of(coordinator, batch))
            break
        except Exception as error:
            tasks = None if timing is None else clients.unusable(error, action)
            if tasks is None or timing is None:
                raise
            lost = select(action, [task in tasks for task in action.tasks])
            if lost.tasks:
                timing.dropped(Drop(list(lost.tasks), list(lost.clients), "unusable"))
            action = select(action, [task not in tasks for task in action.tasks])
    clients.stepped(action, stepped)
    return stepped
