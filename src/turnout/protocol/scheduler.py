"""Select the clients that a pace asks for, and pass its other actions on to the driver."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from turnout.protocol.choice import Choice
from turnout.protocol.cohorts import Cohorts
from turnout.protocol.pace import (
    PHASES,
    Action,
    Ask,
    BoundPace,
    Choose,
    Drop,
    Gather,
    Ignore,
    Phase,
    SetTimer,
    Step,
)

DriverAction = Ask | Gather | Step | Drop | Ignore | SetTimer
"""The actions that a driver carries out: those of a pace except `Choose`."""


class Scheduler:
    """Drive a pace: select the clients that it asks for, and queue its other actions.

    A driver reports an event by the method that is named as that of the pace, and then takes actions from `next`, one
    after the other, until there is none. It carries out a `Gather` or a `Step` before it takes the next action, because
    the next selection may depend on it.

    Args:
        pace: state machine of the pace.
        cohorts: selection of the cohort of a round.
        choice: selection of single clients; None for a pace that selects only cohorts.
        patient: if True, an empty cohort is selected again when a client joins; if False, it is passed to the pace.

    Attributes:
        pace: state machine of the pace.
        cohorts: selection of the cohort of a round.
        cohort: last cohort, ascending, int64 ``[B]``; a client that counts twice is in it twice.
        ask_phase: function that returns the clients to ask for a phase after training, at a version; empty if too few
            are left.
        may_begin: function that returns whether clients may be selected now; while they may not, none are until one joins.
    """

    def __init__(self, pace: BoundPace, cohorts: Cohorts, choice: Choice | None, *, patient: bool) -> None:
        self.pace, self.cohorts, self._choice, self._patient = pace, cohorts, choice, patient
        self.cohort = np.zeros(0, dtype=np.int64)
        self._queue: deque[Action] = deque()
        self.ask_phase: Callable[[Choose, int], list[int]] = lambda choose, _: list(choose.first)
        self.may_begin: Callable[[], bool] = lambda: True

    @property
    def _phases(self) -> tuple[Phase, ...]:
        """All phases of a `Choose`, in the order of their numbers in a checkpoint."""
        return (*PHASES, *self.pace.extra)

    @property
    def repeats(self) -> bool:
        """True if the cohort contains a client twice."""
        return len(self.cohort) > 1 and bool((self.cohort[1:] == self.cohort[:-1]).any())

    def start(self, time: float) -> None:
        """Start; called before any other event, and not after `restore`."""
        self._queue.extend(self.pace.start(time))

    def resume(self, time: float) -> None:
        """Continue after a step that was planned as the last one; tasks that were open then have ended."""
        self._queue = deque(self.pace.resume(time))

    def reported(self, time: float, client: int, task: int, version: int) -> None:
        """Handle the report of a task, trained from `version`."""
        self._queue.extend(self.pace.reported(time, client, task, version))
        self._add_idle((client,))

    def died(self, time: float, client: int, task: int) -> None:
        """Handle a client that gave up a task; it is still available."""
        self._queue.extend(self.pace.died(time, client, task))
        self._add_idle((client,))

    def left(self, time: float, clients: Sequence[int]) -> None:
        """Handle clients that became unavailable, with or without a task."""
        self._queue.extend(self.pace.left(time, clients))

    def joined(self, time: float, clients: Sequence[int] = ()) -> None:
        """Handle clients that became available."""
        self._add_idle(clients)
        self._queue.extend(self.pace.joined(time, clients))

    def expired(self, time: float, timer: int) -> None:
        """Handle a timer that expired."""
        self._queue.extend(self.pace.expired(time, timer))

    def enqueue(self, actions: Iterable[Action]) -> None:
        """Add actions that the pace returned for events without a method of this class."""
        self._queue.extend(actions)

    def next(self, time: float) -> DriverAction | None:
        """Return the next action; None if there is none before the next event."""
        while True:
            if not self._queue:
                self._queue.extend(self.pace.poll())
            if not self._queue:
                return None
            self._add_idle(self.pace.newly_idle(), are_available=False)
            action = self._queue.popleft()
            match action:
                case Choose():
                    try:
                        self._answer(time, action)
                    except Exception:
                        # Repeated with other measurements, or after the selection is repaired.
                        self._queue.appendleft(action)
                        raise
                    continue
                case Step(clients=clients):
                    # Clients that waited are idle now, and may have become unavailable meanwhile.
                    self._add_idle(clients, are_available=False)
                case Gather(clients=clients):
                    self._add_idle(clients)
                case Drop(clients=clients, reason=reason) if reason != "left":
                    self._add_idle(clients)
            return action

    def check_choice(self) -> None:
        """Try the next selection of a cohort, and raise the error that it would raise; no task is sent."""
        choose = self._queue[0] if self._queue else None
        if isinstance(choose, Choose) and choose.phase in PHASES and choose.most is None:
            self.cohorts(choose, self.pace.version)

    def _answer(self, time: float, choose: Choose) -> None:
        """Select clients, and pass them to the pace."""
        if choose.phase not in PHASES:
            self._queue.extend(self.pace.chosen(time, self._clients_of_phase(choose), choose.group))
            return
        if not self.may_begin():
            return
        if choose.most is None:
            cohort = self.cohorts(choose, self.pace.version)
            self.cohort = np.asarray(cohort, dtype=np.int64)
            clients = np.unique(self.cohort).tolist() if self.repeats else list(map(int, cohort))
        else:
            clients = self._single_clients(choose.most, choose.first)
            if len(clients) < choose.least:
                self._add_idle(clients)
                clients = []
        if clients or not self._patient:
            self._queue.extend(self.pace.chosen(time, clients))

    def _clients_of_phase(self, choose: Choose) -> list[int]:
        """Return the clients to ask for a phase after training: those of the phase before that are still available."""
        clients = np.array(self.ask_phase(choose, self.pace.version), dtype=np.int64)
        return clients.tolist() if self._choice is None else clients[self._choice.available(clients)].tolist()

    def _single_clients(self, most: int, first: Sequence[int]) -> list[int]:
        """Select at most `most` clients; those in `first` are preferred."""
        assert self._choice is not None
        clients = list(filter(self.pace.idle, first[:most]))
        return clients + self._choice.choose(most - len(clients), but=clients) if len(clients) < most else clients

    def _add_idle(self, clients: Sequence[int], are_available: bool = True) -> None:
        """Add clients that may have become idle to those that can be selected."""
        if self._choice is not None:
            self._choice.add(clients, are_available=are_available)

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """Return the state as arrays in groups. Call it while no action but a last `Choose` is queued."""
        pending = [action for action in self._queue if isinstance(action, Choose)][-1:]
        counts = [(-1 if choose.most is None else choose.most, choose.factor) for choose in pending]
        facts = {
            "wanted": np.array(counts).reshape(-1, 2),
            "first": np.array([client for choose in pending for client in choose.first], dtype=np.int64),
            "phase": np.array([self._phases.index(choose.phase) for choose in pending], dtype=np.int64),
            "of": np.array([(choose.group, choose.least) for choose in pending], dtype=np.int64).reshape(-1, 2),
            "cohort": self.cohort,
        }
        groups = {"pace": self.pace.state(), "scheduler": facts}
        return groups if self._choice is None else groups | {"choice": self._choice.state()}

    def restore(self, state: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Restore what `state` returned."""
        self.pace.restore(dict(state["pace"]))
        if self._choice is not None:
            self._choice.restore(dict(state["choice"]))
        facts = state["scheduler"]
        first, self.cohort = facts["first"].tolist(), facts["cohort"]
        of = facts.get("of", np.zeros((len(facts["phase"]), 2), dtype=np.int64))  # earlier versions had no groups
        pending = zip(facts["wanted"].tolist(), facts["phase"].tolist(), of.tolist(), strict=True)
        self._queue = deque(
            Choose(None if most < 0 else int(most), first, factor, self._phases[phase], group, least)
            for (most, factor), phase, (group, least) in pending
        )
