"""Carry out the actions of a pace: one loop for a simulation in virtual time and for a server on a network.

`carry_out` does what needs no model: it asks, drops and sets timers until a server step, or the end of a phase before one, is
due. `use` does what needs one: it gets the reports and passes them to the coordinator. A driver implements `Timing`, which
begins and ends tasks, and `Clients`, which returns their reports.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import compress
from typing import Protocol

from turnout.core.types import Report
from turnout.protocol.batch import Batch, Stepped
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.pace import Ask, Drop, Gather, SetTimer, Step
from turnout.protocol.scheduler import Told


class Source(Protocol):
    """The source of actions: a `Coordinator`, or a `Scheduler` alone where nothing is trained."""

    def next(self, time: float) -> Told | None:
        """Return the next action; None if there is none until something happens."""
        ...


class Timing(Protocol):
    """When the tasks of clients begin and end."""

    def ask(self, ask: Ask) -> None:
        """Give clients their tasks."""

    def dropped(self, drop: Drop) -> None:
        """End tasks that are not used."""

    def timer(self, timer: SetTimer) -> None:
        """Set a timer."""


class Clients(Protocol):
    """The reports of clients."""

    def reports_of(self, coordinator: Coordinator, batch: Batch) -> Report:
        """Return the reports of a batch, in its order; of a phase after training, those of nobody."""
        ...

    def stepped(self, action: Step | Gather, stepped: Stepped | None) -> None:
        """Take note of a server step, or of a phase that was gathered (None)."""

    def unusable(self, error: Exception, action: Step | Gather) -> Collection[int] | None:
        """Return on which tasks of an action the reports are to blame for an error, so that it is taken without them.

        None where the error ends the run. No task where the action is to be tried again, because the error came of something
        else that clients sent, and that is left out now.
        """
        ...


class Driver(Timing, Clients, Protocol):
    """An object that implements both protocols."""


def carry_out(source: Source, timing: Timing, time: float) -> Step | Gather | None:
    """Carry out actions up to the next one that needs a model, and return that one.

    Args:
        source: of the actions.
        timing: gives tasks, ends them, and sets timers.
        time: now, in seconds.

    Returns:
        The action, for `use`; None if there is nothing to do until something happens.
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
        coordinator: the server.
        clients: whose reports they are.
        action: what `carry_out` returned.
        timing: where tasks end whose reports cannot be used; None where that ends the run.

    Returns:
        What became of the server step; None of an action that only gathers.
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
            bad = [task in tasks for task in action.tasks]
            if any(bad):
                lost = list(compress(action.tasks, bad))
                timing.dropped(Drop(lost, list(compress(action.clients, bad)), "unusable"))
            action = without(action, bad)
    clients.stepped(action, stepped)
    return stepped


def without(action: Step | Gather, bad: Sequence[bool]) -> Step | Gather:
    """Return an action without some of its tasks."""
    good = [not drops for drops in bad]
    columns = {name: tuple(compress(getattr(action, name), good)) for name in ("tasks", "clients")}
    if isinstance(action, Step):
        columns["versions"] = tuple(compress(action.versions, good))
    return action._replace(**columns)
