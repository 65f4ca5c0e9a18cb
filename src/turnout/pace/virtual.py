"""A pace in virtual time: what would happen in a federation of clients who come, go, work and drop out.

Nothing is trained here. `VirtualTime.advance` goes on to the next server step and says which reports it takes and from
which versions they were trained; whoever trains does so then, when it is needed, or not at all.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping

import numpy as np

from turnout.core.checks import ConfigurationError, positive
from turnout.pace.actions import Action, Ask, Choose, Drop, SetTimer, Step
from turnout.pace.choice import Choice
from turnout.pace.clock import Clock
from turnout.pace.log import Log
from turnout.pace.pace import Pace
from turnout.pace.rounds import enlarged
from turnout.pace.work import WorkTimes
from turnout.population.availability import BoundAvailability

REPORT, DEATH, LEAVE, JOIN, TIMER = range(5)
"""Kinds of events, in the order in which those of the same moment happen: reports (by the number of the task), deaths, the
departures and then the arrivals of a new round of availability, deadlines. So a report counts that arrives exactly at the
deadline, or in the moment its client goes away."""

_PATIENCE = 10_000
_SOON = 128  # events that are looked ahead

Cohort = Callable[[Callable[[np.ndarray], np.ndarray], int, float], np.ndarray]
"""A selection: from who is there (bool ``[n]`` of client numbers ``[n]``), the version and the factor by which the cohort
is enlarged, the cohort without repeats, int64 ``[B]``."""


class VirtualTime:
    """The driver of a pace in virtual time.

    Args:
        pace: when the server asks and steps.
        work: how long tasks take.
        availability: who is there in which round of availability.
        seconds_per_round: how long such a round lasts; clients who are not there in the next one leave in the middle of
            their work. None has one begin with every server step and asks about it only when a cohort is chosen.
        cohort: the selection of a synchronous round; None is everyone who is there, a number is so many at random.
        seed: of choices.

    Attributes:
        pace: the state machine.
        clock: the time, and what will happen.
        log: what became of tasks.

    Raises:
        ConfigurationError: for availability without a clock where rounds and server steps do not go together, or if
            nobody is there for 10,000 rounds of availability in a row.
    """

    def __init__(
        self,
        pace: Pace,
        work: WorkTimes,
        availability: BoundAvailability,
        *,
        seconds_per_round: float | None = None,
        cohort: Cohort | int | None = None,
        seed: int = 0,
    ) -> None:
        self.pace = pace.bind(availability.num_clients)
        self.work, self.clock, self.log = work, Clock(), Log()
        self.choice = Choice(availability, self.pace, seed)
        self.cohort = cohort
        self.seconds_per_round = seconds_per_round
        if seconds_per_round is not None:
            positive("seconds_per_round", seconds_per_round)
        self._by_version = seconds_per_round is None
        if self._by_version and not self.choice.always and not pace.steps_are_rounds:
            raise ConfigurationError(
                f"{type(pace).__name__} takes server steps whenever reports arrive, so availability needs rounds of its own: "
                "write seconds_per_round=..., how long clients stay as they are"
            )
        self._lonely = 0
        self._out: dict[int, tuple[int, int, float]] = {}  # task -> client, version, when it was asked
        self._arrived: dict[int, float] = {}
        self._todo: deque[Action] = deque(self.pace.start(0.0))
        if not self._by_version and not self.choice.always:
            self._set_round(1)

    def advance(self, until: float = math.inf) -> Step | None:
        """Go on to the next server step; None if there is none up to the time `until`, which is not passed then.

        Whoever trains does so before it goes on: later steps need the versions in ``pace.versions()``, but no others.
        """
        todo = self._todo
        while True:
            while todo:
                match todo.popleft():
                    case Choose() as wanted:
                        todo.extend(self._choose(wanted))
                    case Ask() as ask:
                        self._ask(ask)
                    case Step() as step:
                        self._use(step)
                        return step
                    case Drop() as drop:
                        self._drop(drop)
                    case SetTimer(timer, time):
                        self.clock.set(TIMER, timer, time)
            event = self.clock.pop(until)
            if event is None:
                return None
            todo.extend(self._happen(*event))

    def _happen(self, time: float, kind: int, number: int) -> list[Action]:
        """Tell the pace what happened."""
        if kind == REPORT:
            client, version, _ = self._out[number]
            self._arrived[number] = time
            actions = self.pace.reported(time, client, number, version)
            self.choice.add((client,))
            return actions
        if kind == DEATH:
            client = self._out[number][0]
            actions = self.pace.died(time, client, number)
            self.choice.add((client,))
            return actions
        if kind == LEAVE:
            return self._leave(time, number)
        if kind == JOIN:
            return self._join(time)
        return self.pace.expired(time, number)

    def _set_round(self, number: int) -> None:
        """Have a round of availability begin."""
        assert self.seconds_per_round is not None
        time = number * self.seconds_per_round  # not added up, so that no error does
        self.clock.set(LEAVE, number, time)
        self.clock.set(JOIN, number, time)

    def _leave(self, time: float, number: int) -> list[Action]:
        """A round of availability begins; those go who are not there any more."""
        self.choice.begin(number)
        self._set_round(number + 1)
        engaged = np.array(self.pace.engaged(), dtype=np.int64)
        gone = engaged[~self.choice.availability.available(engaged, number)]
        return self.pace.left(time, gone.tolist()) if len(gone) else []

    def _join(self, time: float) -> list[Action]:
        """Those come who are there now."""
        self._bear(bool(self._out))
        return self.pace.joined(time)

    def _bear(self, somebody: bool) -> None:
        """Give up on a federation to which nobody comes any more."""
        self._lonely = 0 if somebody else self._lonely + 1
        if self._lonely > _PATIENCE:
            raise ConfigurationError(
                f"nobody has been at work for {_PATIENCE} rounds of availability in a row, up to second {self.clock.now:g}: "
                f"write another availability{'' if self._by_version else ' or longer rounds of it (seconds_per_round)'}, or "
                "have the run end before"
            )

    def _choose(self, wanted: Choose) -> list[Action]:
        """Answer the pace; where clients come by the clock and nobody is there, it is told when somebody is."""
        if wanted.most is None:
            clients = self._cohort(wanted.factor)
        else:
            clients = list(filter(self.pace.idle, wanted.first[: wanted.most]))
            if len(clients) < wanted.most:
                clients += self.choice.choose(wanted.most - len(clients), but=clients)
        if not clients and not self._by_version:
            return []
        if wanted.most is None:
            self._bear(bool(clients))
        return self.pace.chosen(self.clock.now, clients)

    def _cohort(self, factor: float) -> list[int]:
        """The cohort of a synchronous round."""
        if self._by_version:
            self.choice.begin(self.pace.version)
        if callable(self.cohort):
            return self.cohort(self._there, self.pace.version, factor).tolist()
        num_clients = self.choice.availability.num_clients
        return self.choice.choose(num_clients if self.cohort is None else enlarged(self.cohort, factor))

    def _there(self, clients: np.ndarray) -> np.ndarray:
        """Which of `clients` are there and idle, bool ``[n]``."""
        there = self.choice.availability.available(clients, self.choice.round)
        return there & np.array([self.pace.idle(client) for client in clients.tolist()], dtype=bool)

    def _ask(self, ask: Ask) -> None:
        """Clients begin to work."""
        now, version = self.clock.now, ask.version
        ends = self.work.next(ask.clients, version, self._likely)
        for task, client, seconds in zip(ask.tasks, ask.clients, ends, strict=True):
            self._out[task] = client, version, now
            if seconds >= 0:
                self.clock.set(REPORT, task, now + seconds)
            else:
                self.clock.set(DEATH, task, now + (-1.0 - seconds))

    def _likely(self) -> list[int]:
        """Some of those who may be asked next: whom the choice will try, or who will have nothing to do first."""
        tried = self.choice.likely()
        return tried or [self._out[task][0] for kind, task in self.clock.soon(_SOON) if kind in (REPORT, DEATH)]

    def _use(self, step: Step) -> None:
        """The server steps."""
        asked = [self._out.pop(task)[2] for task in step.tasks]
        self.log.used(step, asked, [self._arrived.pop(task) for task in step.tasks], self.clock.now)
        self.choice.add(step.clients, surely_there=False)  # those who waited are idle now, others may have gone away

    def _drop(self, drop: Drop) -> None:
        """Tasks have ended without being used."""
        ended = [self._out.pop(task) for task in drop.tasks]
        self.log.dropped(drop, [version for _, version, _ in ended], [asked for *_, asked in ended], self.clock.now)
        for task in drop.tasks:
            self._arrived.pop(task, None)
            self.clock.cancel(REPORT, task)
            self.clock.cancel(DEATH, task)
        if drop.reason != "left":
            self.choice.add(drop.clients)

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """All that it carries between two steps, as arrays in groups; the log is not part of it."""
        tasks = [(task, client, version) for task, (client, version, _) in self._out.items()]
        # Between two steps nothing is to be done but to answer the last question, if that.
        wanted = [action for action in self._todo if isinstance(action, Choose)][-1:]
        counts = [(-1 if choose.most is None else choose.most, choose.factor) for choose in wanted]
        first = [client for choose in wanted for client in choose.first]
        return {
            "pace": self.pace.state(),
            "clock": self.clock.state(),
            "choice": self.choice.state(),
            "work": self.work.state(),
            "virtual": {
                "lonely": np.array(self._lonely),
                "tasks": np.array(tasks, dtype=np.int64).reshape(-1, 3),
                "asked": np.array([asked for *_, asked in self._out.values()]),
                "arrived_tasks": np.array(list(self._arrived), dtype=np.int64),
                "arrived": np.array(list(self._arrived.values())),
                "wanted": np.array(counts).reshape(-1, 2),
                "first": np.array(first, dtype=np.int64),
            },
        }

    def restore(self, state: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Take over what `state` gave, so that all goes on as if nothing had happened."""
        parts = {"pace": self.pace, "clock": self.clock, "choice": self.choice, "work": self.work}
        for name, part in parts.items():
            part.restore(dict(state[name]))
        own = state["virtual"]
        self._lonely = int(own["lonely"])
        rows = zip(own["tasks"].tolist(), own["asked"].tolist(), strict=True)
        self._out = {task: (client, version, asked) for (task, client, version), asked in rows}
        self._arrived = dict(zip(own["arrived_tasks"].tolist(), own["arrived"].tolist(), strict=True))
        first = own["first"].tolist()
        self._todo = deque(
            Choose(None if count < 0 else int(count), first, factor) for count, factor in own["wanted"].tolist()
        )
