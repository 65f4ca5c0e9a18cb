"""Run a pace in virtual time, in a federation whose clients join, leave, work and drop out.

Nothing is trained here. `VirtualTime.advance` advances to the next server step and returns the reports that it uses and the
versions from which they were trained, so that training can be deferred to the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from turnout.base import Selection
from turnout.core.checks import ConfigurationError, positive
from turnout.population.availability import BoundAvailability
from turnout.population.availability.independent import BoundEveryone
from turnout.protocol.choice import Choice
from turnout.protocol.cohorts import AvailableCohorts, RandomCohorts
from turnout.protocol.loop import carry_out
from turnout.protocol.pace import Ask, BoundPace, Course, Drop, Gather, Pace, SetTimer, Step, Training
from turnout.protocol.scheduler import Scheduler
from turnout.record.tasks import TaskLog
from turnout.simulation.clock import Clock
from turnout.simulation.messages import Traffic
from turnout.simulation.stall import Stall
from turnout.simulation.work_times import WorkTimes

REPORT, DEATH, LEAVE, JOIN, TIMER = range(5)
"""Kinds of events, in the order of simultaneous ones: reports, deaths, the departures and then the arrivals of a new round of
availability, deadlines. A report therefore counts if it arrives exactly at the deadline, or when its client leaves."""

_LOOK_AHEAD = 128  # events

Cohort = Callable[[Callable[[np.ndarray], np.ndarray], int, float], np.ndarray]
"""A function of which clients are available (a function from client numbers ``[n]`` to bool ``[n]``), the version, and the
factor by which the cohort is enlarged, that returns a cohort without repeats, int64 ``[B]``."""


def at_random(
    pace: Pace,
    availability: BoundAvailability,
    seconds_per_round: float | None,
    cohort: Cohort | Selection | int | None,
    seed: int,
    course: Course = Training(),  # noqa: B008  # a constant
) -> tuple[Scheduler, Choice]:
    """Return the scheduler of a pace that selects clients at random, and the choice that draws them.

    Args:
        pace: the pace.
        availability: the availability of clients.
        seconds_per_round: duration of a round of availability; None starts one with every server step.
        cohort: selects the cohort of a synchronous round; None selects all available clients, a number that many at random.
        seed: the seed of selections.
        course: the phases of a round.

    Raises:
        ConfigurationError: if rounds of availability have no duration, and server steps are no rounds.
    """
    bound, everyone = pace.bind(availability.num_clients, course), isinstance(availability, BoundEveryone)
    if seconds_per_round is not None:
        positive("seconds_per_round", seconds_per_round)
    elif not everyone and not pace.steps_are_rounds:
        raise ConfigurationError(
            f"{type(pace).__name__} takes server steps whenever reports arrive, so availability needs rounds of its own: "
            "write Population(seconds_per_round=60), how long clients stay as they are"
        )
    choice = Choice(availability, bound, seed, always=everyone)
    clock = seconds_per_round is not None
    if isinstance(cohort, Selection):
        cohorts = AvailableCohorts(cohort, choice, seed, by_version=not clock)
    else:
        cohorts = RandomCohorts(choice, cohort, by_version=not clock)
    return Scheduler(bound, cohorts, choice, patient=clock), choice


class VirtualTime:
    """The driver of a pace in virtual time.

    Args:
        scheduler: the scheduler of the pace.
        choice: the choice of the scheduler, which knows the available clients.
        work: the durations of tasks.
        seconds_per_round: duration of a round of availability; clients that are unavailable in the next one drop their tasks.
            None starts one with every server step, and looks up availability only when a cohort is selected.

    Attributes:
        scheduler: the scheduler of the pace.
        choice: the choice of the scheduler.
        clock: the time and the pending events.
        log: the outcomes of training tasks.
        traffic: bytes to clients and from clients.

    Raises:
        ConfigurationError: if no client works for 10,000 consecutive rounds of availability, or a step waits that long for
            certain clients.
    """

    def __init__(self, scheduler: Scheduler, choice: Choice, work: WorkTimes, seconds_per_round: float | None) -> None:
        self.scheduler, self.choice = scheduler, choice
        self.work, self.clock, self.log = work, Clock(), TaskLog()
        self.seconds_per_round = seconds_per_round
        self._by_version = seconds_per_round is None
        self._stall = Stall(self._by_version)
        self._num_sent = 0  # tasks sent before the last step
        self._open: dict[int, tuple[int, int, float]] = {}  # task -> client, version, time at which it was sent
        self._arrived: dict[int, float] = {}  # task -> time
        self.traffic = Traffic(work.efforts)
        scheduler.start(0.0)
        if not self._by_version and not self.choice.always:
            self._set_round(1)

    @property
    def pace(self) -> BoundPace:
        """The state machine."""
        return self.scheduler.pace

    def advance(self, until: float = math.inf) -> Step | Gather | None:
        """Advance to the next server step, or to the end of a phase before one.

        Train the reports of a step before the next call: later steps need the versions in ``pace.versions()`` and no others.

        Args:
            until: time at which to stop.

        Returns:
            The action; None if there is none up to and including `until`.
        """
        while True:
            if (action := carry_out(self.scheduler, self, self.clock.now)) is not None:
                self._use(action) if isinstance(action, Step) else self._gather(action)
                return action
            event = self.clock.pop(until)
            if event is None:
                return None
            self._dispatch(*event)

    def _dispatch(self, time: float, kind: int, number: int) -> None:
        """Report an event to the scheduler."""
        if kind == REPORT:
            client, version, _ = self._open[number]
            self._arrived[number] = time
            self.scheduler.reported(time, client, number, version)
        elif kind == DEATH:
            self.scheduler.died(time, self._open[number][0], number)
        elif kind == LEAVE:
            self._leave(time, number)
        elif kind == JOIN:
            if self._open:
                self._stall.working()
            else:
                self._stall.idle(time)
            self._stall.waited(self.pace)
            self.scheduler.joined(time)
        else:
            self.scheduler.expired(time, number)

    def _set_round(self, number: int) -> None:
        """Schedule the start of a round of availability."""
        assert self.seconds_per_round is not None
        time = number * self.seconds_per_round  # a product, because a running sum would accumulate rounding errors
        self.clock.set(LEAVE, number, time)
        self.clock.set(JOIN, number, time)

    def _leave(self, time: float, number: int) -> None:
        """Start a round of availability; working clients that are unavailable in it leave."""
        self.choice.begin(number)
        self._set_round(number + 1)
        busy = np.array(self.pace.busy(), dtype=np.int64)
        leaving = busy[~self.choice.available(busy)]
        if len(leaving):
            self.scheduler.left(time, leaving.tolist())

    def ask(self, ask: Ask) -> None:
        """Schedule the ends of new tasks."""
        now, version = self.clock.now, ask.version
        self._stall.working()
        ends = self.work.next(ask.clients, version, self._next_candidates, ask.phase)
        self.traffic.asked(ask.phase, ask.clients)
        for task, client, seconds in zip(ask.tasks, ask.clients, ends, strict=True):
            self._open[task] = client, version, now
            if seconds >= 0:  # a negative number is a death, see `WorkTimes.next`
                self.clock.set(REPORT, task, now + seconds)
            else:
                self.clock.set(DEATH, task, now + (-1.0 - seconds))

    def _next_candidates(self) -> list[int]:
        """Return clients that may get a task next: those that the choice will try, or those that finish first."""
        candidates = self.choice.next_candidates()
        soon = self.clock.soon(_LOOK_AHEAD)
        return candidates or [self._open[task][0] for kind, task in soon if kind in (REPORT, DEATH)]

    def timer(self, timer: SetTimer) -> None:
        """Schedule the expiry of a timer."""
        self.clock.set(TIMER, timer.timer, timer.time)

    def _use(self, step: Step) -> None:
        """Record a server step."""
        self._stall.stepped()
        if self._by_version and not step.tasks and self.pace.open.next_task == self._num_sent:
            self._stall.idle(self.clock.now)
        self._num_sent = self.pace.open.next_task
        asked = [self._open.pop(task)[2] for task in step.tasks]
        arrived = [self._arrived.pop(task) for task in step.tasks]
        self.log.end(
            step.version, task=step.tasks, client=step.clients, version=step.versions, asked=asked, ended=arrived
        )
        self.log.step(self.clock.now)
        self.traffic.reported("train", len(step.tasks))

    def _gather(self, gather: Gather) -> None:
        """Record the end of a phase before a server step."""
        for task in gather.tasks:
            del self._open[task], self._arrived[task]
        self.traffic.reported(gather.phase, len(gather.tasks))

    def dropped(self, drop: Drop) -> None:
        """Record tasks that ended without being used, and cancel their events."""
        ended = [self._open.pop(task) for task in drop.tasks]
        if drop.reason == "stale":
            self.traffic.reported("train", len(drop.tasks))
        self.log.end(
            reason=drop.reason,
            task=drop.tasks,
            client=drop.clients,
            version=[version for _, version, _ in ended],
            asked=[asked for *_, asked in ended],
            ended=[self.clock.now] * len(ended),
        )
        for task in drop.tasks:
            self._arrived.pop(task, None)
            self.clock.cancel(REPORT, task)
            self.clock.cancel(DEATH, task)

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """Return the state between two steps, as arrays in groups, without the log and the scheduler."""
        tasks = [(task, client, version) for task, (client, version, _) in self._open.items()]
        return {
            "clock": self.clock.state(),
            "work": self.work.state(),
            "virtual": {
                "lonely": np.array([self._stall.idle_rounds, self._num_sent]),
                "tasks": np.array(tasks, dtype=np.int64).reshape(-1, 3),
                "asked": np.array([asked for *_, asked in self._open.values()]),
                "arrived_tasks": np.array(list(self._arrived), dtype=np.int64),
                "arrived": np.array(list(self._arrived.values())),
            },
        }

    def restore(self, state: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Restore what `state` returned."""
        self.clock.restore(dict(state["clock"]))
        self.work.restore(dict(state["work"]))
        virtual = state["virtual"]
        self._stall.idle_rounds, self._num_sent = virtual["lonely"].tolist()
        rows = zip(virtual["tasks"].tolist(), virtual["asked"].tolist(), strict=True)
        self._open = {task: (client, version, asked) for (task, client, version), asked in rows}
        self._arrived = dict(zip(virtual["arrived_tasks"].tolist(), virtual["arrived"].tolist(), strict=True))
