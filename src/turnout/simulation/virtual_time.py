"""A pace in virtual time: what would happen in a federation of clients who come, go, work and drop out.

Nothing is trained here. `VirtualTime.advance` goes on to the next server step and says which reports it takes and from
which versions they were trained; whoever trains does so then, when it is needed, or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from turnout.core.checks import ConfigurationError, counted, positive
from turnout.pieces.base import Selection
from turnout.population.availability import BoundAvailability
from turnout.population.availability.everyone import BoundEveryone
from turnout.protocol.choice import Choice
from turnout.protocol.cohorts import AvailableCohorts, RandomCohorts
from turnout.protocol.loop import carry_out
from turnout.protocol.pace import Ask, BoundPace, Course, Drop, Gather, Pace, Phase, SetTimer, Step, Training
from turnout.protocol.scheduler import Scheduler
from turnout.record.tasks import TaskLog
from turnout.simulation.clock import Clock
from turnout.simulation.work_times import WorkTimes

REPORT, DEATH, LEAVE, JOIN, TIMER = range(5)
"""Kinds of events, in the order in which those of the same moment happen: reports (by the number of the task), deaths, the
departures and then the arrivals of a new round of availability, deadlines. So a report counts that arrives exactly at the
deadline, or in the moment its client goes away."""

_NUMBER = 8  # bytes of the version, which every task tells
_PATIENCE = 10_000
_SOON = 128  # events that are looked ahead

Cohort = Callable[[Callable[[np.ndarray], np.ndarray], int, float], np.ndarray]
"""A selection: from who is there (bool ``[n]`` of client numbers ``[n]``), the version and the factor by which the cohort
is enlarged, the cohort without repeats, int64 ``[B]``."""


def at_random(
    pace: Pace,
    availability: BoundAvailability,
    seconds_per_round: float | None = None,
    cohort: Cohort | Selection | int | None = None,
    seed: int = 0,
    course: Course = Training(),  # noqa: B008  # a constant
) -> tuple[Scheduler, Choice]:
    """Return a pace in motion that asks clients at random, and who draws them.

    Args:
        pace: when the server asks and steps.
        availability: who is there in which round of availability.
        seconds_per_round: how long such a round lasts; None has one begin with every server step.
        cohort: the selection of a synchronous round; None is everyone who is there, a number is so many at random.
        seed: of choices.
        course: what a synchronous round asks clients for.

    Raises:
        ConfigurationError: for availability without a clock where rounds and server steps do not go together.
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
        scheduler: the pace, and whom it asks.
        choice: who is there; the scheduler's own.
        work: how long tasks take.
        seconds_per_round: how long a round of availability lasts; clients who are not there in the next one leave in the
            middle of their work. None has one begin with every server step and asks about it only when a cohort is chosen.

    Attributes:
        scheduler: as given.
        choice: as given.
        clock: the time, and what will happen.
        log: what became of tasks that trained.
        sent: bytes to clients and from them so far, by phase; not what is lost on the way, or not sent any more.

    Raises:
        ConfigurationError: if nobody is there for 10,000 rounds of availability in a row, or a step waits so long for certain
            clients.
    """

    def __init__(
        self, scheduler: Scheduler, choice: Choice, work: WorkTimes, seconds_per_round: float | None = None
    ) -> None:
        self.scheduler, self.choice = scheduler, choice
        self.work, self.clock, self.log = work, Clock(), TaskLog()
        self.seconds_per_round = seconds_per_round
        self._by_version = seconds_per_round is None
        self._lonely = self._asked = self._steps_missed = 0
        self._out: dict[int, tuple[int, int, float]] = {}  # task -> client, version, when it was asked
        self._arrived: dict[int, float] = {}
        self.sent: dict[Phase, list[int]] = {phase: [0, 0] for phase in work.efforts}
        self._measuring: set[int] = set()  # clients who have the present model already
        scheduler.start(0.0)
        if not self._by_version and not self.choice.always:
            self._set_round(1)

    @property
    def pace(self) -> BoundPace:
        """The state machine."""
        return self.scheduler.pace

    def advance(self, until: float = math.inf) -> Step | Gather | None:
        """Go on to the next server step, or to the end of a phase that comes before one; None if there is none in time.

        The time `until` is not passed then.

        Whoever trains does so before it goes on: later steps need the versions in ``pace.versions()``, but no others.
        """
        while True:
            if (action := carry_out(self.scheduler, self, self.clock.now)) is not None:
                self._use(action) if isinstance(action, Step) else self._gather(action)
                return action
            event = self.clock.pop(until)
            if event is None:
                return None
            self._happen(*event)

    def _happen(self, time: float, kind: int, number: int) -> None:
        """Tell the pace what happened."""
        if kind == REPORT:
            client, version, _ = self._out[number]
            self._arrived[number] = time
            self.scheduler.reported(time, client, number, version)
        elif kind == DEATH:
            self.scheduler.died(time, self._out[number][0], number)
        elif kind == LEAVE:
            self._leave(time, number)
        elif kind == JOIN:
            self._bear(bool(self._out))
            self._expect()
            self.scheduler.joined(time)
        else:
            self.scheduler.expired(time, number)

    def _set_round(self, number: int) -> None:
        """Have a round of availability begin."""
        assert self.seconds_per_round is not None
        time = number * self.seconds_per_round  # not added up, so that no error does
        self.clock.set(LEAVE, number, time)
        self.clock.set(JOIN, number, time)

    def _leave(self, time: float, number: int) -> None:
        """Begin a round of availability; those go who are not there any more."""
        self.choice.begin(number)
        self._set_round(number + 1)
        engaged = np.array(self.pace.engaged(), dtype=np.int64)
        gone = engaged[~self.choice.availability.available(engaged, number)]
        if len(gone):
            self.scheduler.left(time, gone.tolist())

    def _bear(self, somebody: bool) -> None:
        """Give up on a federation to which nobody comes any more."""
        self._lonely = 0 if somebody else self._lonely + 1
        if self._lonely > _PATIENCE:
            raise ConfigurationError(
                f"nobody has been at work for {_PATIENCE} rounds of availability in a row, up to second {self.clock.now:g}: "
                f"write another availability{'' if self._by_version else ' or longer rounds of it (seconds_per_round)'}, or "
                "have the run end before"
            )

    def _expect(self) -> None:
        """Give up on a step that waits for clients who do not come."""
        self._steps_missed += 1
        if self._steps_missed > _PATIENCE and (missing := self.pace.waits_for):
            raise ConfigurationError(
                f"the first step has a report of everyone (starts_with_all), and {counted(len(missing), 'client')} sent none "
                f"for {_PATIENCE} rounds of availability, client {missing[0]} among them: write starts_with_all=False, or an "
                "availability in which everyone comes"
            )

    def ask(self, ask: Ask) -> None:
        """Clients begin to work."""
        now, version = self.clock.now, ask.version
        self._lonely = 0
        ends = self.work.next(ask.clients, version, self._likely, ask.phase)
        self._send(ask)
        for task, client, seconds in zip(ask.tasks, ask.clients, ends, strict=True):
            self._out[task] = client, version, now
            if seconds >= 0:
                self.clock.set(REPORT, task, now + seconds)
            else:
                self.clock.set(DEATH, task, now + (-1.0 - seconds))

    def _send(self, ask: Ask) -> None:
        """Count what clients receive; who has measured at a model is told to train, and does not get it again."""
        clients, down = set(ask.clients), self.work.efforts[ask.phase].bytes_down
        again = len(clients & self._measuring) if ask.phase == "train" else 0
        self.sent[ask.phase][0] += (len(clients) - again) * down + again * min(down, _NUMBER)
        self._measuring = clients if ask.phase == "measure" else set()

    def _likely(self) -> list[int]:
        """Return some of those who may be asked next: whom the choice will try, or who will have nothing to do first."""
        tried = self.choice.likely()
        return tried or [self._out[task][0] for kind, task in self.clock.soon(_SOON) if kind in (REPORT, DEATH)]

    def timer(self, timer: SetTimer) -> None:
        """Have a timer run out."""
        self.clock.set(TIMER, timer.timer, timer.time)

    def _use(self, step: Step) -> None:
        """Take a server step."""
        self._steps_missed = 0
        if self._by_version and not step.tasks and self.pace.open.asked == self._asked:
            self._bear(False)
        self._asked = self.pace.open.asked
        asked = [self._out.pop(task)[2] for task in step.tasks]
        arrived = [self._arrived.pop(task) for task in step.tasks]
        self.log.end(
            step.version, task=step.tasks, client=step.clients, version=step.versions, asked=asked, ended=arrived
        )
        self.log.step(self.clock.now)
        self.sent["train"][1] += len(step.tasks) * self.work.efforts["train"].bytes_up

    def _gather(self, gather: Gather) -> None:
        """End a phase that no server step follows at once."""
        for task in gather.tasks:
            del self._out[task], self._arrived[task]
        self.sent[gather.phase][1] += len(gather.tasks) * self.work.efforts[gather.phase].bytes_up

    def dropped(self, drop: Drop) -> None:
        """Tasks have ended without being used."""
        ended = [self._out.pop(task) for task in drop.tasks]
        if drop.reason == "stale":
            self.sent["train"][1] += len(drop.tasks) * self.work.efforts["train"].bytes_up
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
        """All that it carries between two steps, as arrays in groups; neither the log nor the scheduler is part of it."""
        tasks = [(task, client, version) for task, (client, version, _) in self._out.items()]
        return {
            "clock": self.clock.state(),
            "work": self.work.state(),
            "virtual": {
                "lonely": np.array([self._lonely, self._asked]),
                "tasks": np.array(tasks, dtype=np.int64).reshape(-1, 3),
                "asked": np.array([asked for *_, asked in self._out.values()]),
                "arrived_tasks": np.array(list(self._arrived), dtype=np.int64),
                "arrived": np.array(list(self._arrived.values())),
            },
        }

    def restore(self, state: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Take over what `state` gave, so that all goes on as if nothing had happened."""
        self.clock.restore(dict(state["clock"]))
        self.work.restore(dict(state["work"]))
        own = state["virtual"]
        self._lonely, self._asked = own["lonely"].tolist()
        rows = zip(own["tasks"].tolist(), own["asked"].tolist(), strict=True)
        self._out = {task: (client, version, asked) for (task, client, version), asked in rows}
        self._arrived = dict(zip(own["arrived_tasks"].tolist(), own["arrived"].tolist(), strict=True))
