"""Synchronous training: a cohort is asked, and the server steps when it has reported or its time is up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from turnout.core.checks import ConfigurationError, positive, refuse
from turnout.protocol.pace.actions import Action, Choose, Course, Drop, Gather, Ignore, Phase, SetTimer, Step, Training
from turnout.protocol.pace.pace import BoundPace, Pace


@dataclass(frozen=True)
class Rounds(Pace, name="rounds"):
    """In every round a cohort of m clients is asked, and the server steps as soon as ``m / over_selection`` reported.

    Whoever has not reported by then, or by the deadline, is told to stop. A round also ends when nobody is at work any
    more; it may end without a report, as an empty step. A report that arrives exactly at the deadline counts.

    Where an algorithm measures before it chooses a cohort, or prepares before the first round, a round has that many phases:
    each chooses whom to ask, waits for all of them as long as the deadline allows, and gathers what they say. Where the
    aggregation declares further phases, those who trained are asked for them, and whoever sends its update is in the step.

    Attributes:
        deadline: greatest length of a phase in seconds from the moment its clients are asked; None waits for everybody.
        over_selection: the selection's cohort is enlarged by this factor, to be done when the number that it would have
            had without has reported; 1.3 asks 13 clients and takes the fastest 10.

    Raises:
        ConfigurationError: for a deadline that is not > 0, or a factor below 1.

    Example:
        >>> import turnout as to
        >>> from turnout.simulation.schedule import schedule
        >>> two = to.Population(speed=to.speed.Speed(compute=to.delay.Uniform(1, 2)))
        >>> schedule(to.pace.Rounds(deadline=1.5), two, num_clients=4, steps=3).outcomes()["late"]
        7

    Reference: Bonawitz et al., "Towards federated learning at scale: system design", MLSys 2019, section 2.2.
    """

    steps_are_rounds: ClassVar[bool] = True

    deadline: float | None = None
    over_selection: float = 1.0

    def __post_init__(self) -> None:
        if self.deadline is not None:
            positive("deadline", self.deadline)
        positive("over_selection", self.over_selection)
        if self.over_selection < 1:
            raise refuse(
                "over_selection", given=self.over_selection, needed="a factor >= 1", instead="1.3 asks 30% more"
            )

    def bind(self, num_clients: int, course: Course = Training()) -> BoundRounds:  # noqa: B008  # a constant
        """Return the state machine; any number of clients will do."""
        return BoundRounds(self, course, [0] * num_clients if course.continues else None)


class BoundRounds(BoundPace):
    """`Rounds` for one run.

    Attributes:
        options: the options.
        phases: what a round asks for.
        extra: the phases after training.
        phase: what is asked for now, or next.
        running: whether somebody was asked for it; if not, they are still to be chosen.
        kept: the version that each client keeps and trains from, by client; None has all train from the present one.
    """

    def __init__(self, options: Rounds, course: Course = Training(), kept: list[int] | None = None) -> None:  # noqa: B008
        super().__init__()
        self.options, self.phases, self.kept = options, course.phases, kept
        self.extra = self.phases[self.phases.index("train") + 1 :]
        self._sends_in = course.sends_in
        self.mixes_versions = kept is not None
        self.phase: Phase = self.phases[0]
        self.running = False
        self._begun = 0  # phases that are over: the number of the present one's timer
        self._needed = 0
        self._reports: list[tuple[int, int]] = []  # task, client
        self._trained: list[tuple[int, int]] = []  # the same of those who trained, in the extra phases

    def start(self, time: float) -> list[Action]:
        """Ask for those of the first phase."""
        del time
        return [self._choose()]

    def chosen(self, time: float, clients: Sequence[int], group: int = 0) -> list[Action]:
        """Ask them. Without anybody the round is empty; it ends at its deadline, or at once if there is none."""
        del group
        if self.running:
            raise ConfigurationError(f"round {self.version} is running: choose a cohort when it is over")
        deadline, trains = self.options.deadline, self.phase == "train"
        if not clients and self.phase in self.extra:
            return self._finish([])
        if not clients and (deadline is None or not trains):
            return self._close()
        asked: list[Action] = [self.open.ask(clients, self._asks_with, self.phase)] if clients else []
        self.running = True
        self._needed = max(1, math.floor(len(clients) / self.options.over_selection + 1e-9)) if trains else len(clients)
        return asked if deadline is None else [*asked, SetTimer(self._begun, time + deadline)]

    @property
    def _asks_with(self) -> int:
        """The version of the phase's tasks."""
        return -1 if self.phase == "prepare" else self.version

    @property
    def timers(self) -> set[int]:
        """The timer of the present phase."""
        return {self._begun}

    def reported(self, time: float, client: int, task: int, version: int) -> list[Action]:
        """Keep the report, or drop it; step if that were enough, or if it was the last one."""
        del time
        if (reason := self.open.why_not(task, client)) is not None:
            return [Ignore(task, client, reason)]
        if version != self.open.end(task):
            return [Drop([task], [client], "wrong version"), *self._close_if_done()]
        self._reports.append((task, client))
        return self._close_if_done()

    def all_reported(self, time: float) -> list[Action]:
        """Keep the reports of all who are at work, in one go, as if they had arrived at once."""
        del time
        self._reports += zip(*self.open.end_all(), strict=True)
        return self._close_if_done()

    def joined(self, time: float, clients: Sequence[int] = ()) -> list[Action]:
        """Choose again if there was nobody; whoever joins a running round waits for the next one."""
        del time, clients
        return [] if self.running else [self._choose()]

    def expired(self, time: float, timer: int) -> list[Action]:
        """Close the phase whose deadline `timer` was set for."""
        del time
        return self._close() if self.running and timer == self._begun else []

    def grow(self, num_clients: int) -> None:
        """Have new clients begin with the present model."""
        if self.kept is not None:
            self.kept += [self.version] * (num_clients - len(self.kept))

    def idle(self, client: int) -> bool:
        """Whether a client does not work."""
        return client not in self.open.of

    def ignores(self, client: int, comes: bool) -> bool:
        """Whether a round is running, for a client that comes; whether a client that goes does not work."""
        return self.running if comes else self.idle(client)

    def engaged(self) -> list[int]:
        """Everyone who works."""
        return list(self.open.of)

    def versions(self) -> set[int]:
        """Return the present version, and those that clients keep."""
        return {self.version, *(self.kept or ())}

    def in_hand(self) -> list[tuple[int, int, int]]:
        """Return the reports of the running phase: (task, client, version) in the order of arrival."""
        held = self._trained or self._reports
        return [(task, client, self._asks_with) for task, client in held]

    def state(self) -> dict[str, np.ndarray]:
        """All that it carries, as int64 arrays."""
        reports = np.array(self._reports, dtype=np.int64).reshape(-1, 2)
        place = self.phases.index(self.phase)
        kept = {} if self.kept is None else {"kept": np.array(self.kept, dtype=np.int64)}
        if self.extra:
            kept["trained"] = np.array(self._trained, dtype=np.int64).reshape(-1, 2)
        return (
            self.open.state()
            | kept
            | {
                "round": np.array([self.version, self.running, self._needed, place, self._begun]),
                "reports": reports,
            }
        )

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take over what `state` gave."""
        self.open.restore(state)
        self.version, running, self._needed, place, self._begun = state["round"].tolist()
        self.running, self.phase = bool(running), self.phases[place]
        self._reports = [(task, client) for task, client in state["reports"].tolist()]
        self.kept = None if self.kept is None else state["kept"].tolist()
        if self.extra:
            self._trained = [(task, client) for task, client in state["trained"].tolist()]

    def _choose(self) -> Choose:
        return Choose(None, factor=self.options.over_selection if self.phase == "train" else 1.0, phase=self.phase)

    def _close_if_done(self) -> list[Action]:
        """Close the round if enough have reported or nobody is left."""
        done = self.running and (len(self._reports) >= self._needed or not len(self.open))
        return self._close() if done else []

    def _close(self) -> list[Action]:
        """Stop whoever is at work; step, or gather what a phase without a step was for; go on to the next phase."""
        version = self._asks_with
        tasks, clients = self.open.end_all()
        arrived, self._reports = self._reports, []
        reported, by = _columns(arrived)
        late: list[Action] = [Drop(tasks, clients, "late")] if tasks else []
        self._begun += 1
        self.running = False
        if self.phase == "train":
            self._trained = arrived
            goes_on = bool(self.extra and arrived)
            return [*late, *(self._ask_next(by) if goes_on else self._finish(arrived))]
        gathered = Gather(self.phase, reported, by, version)
        if self.phase in self.extra:
            return [*late, *self._after_extra(gathered)]
        self.phase = self.phases[self.phases.index(self.phase) + 1]
        return [*late, gathered, self._choose()]

    def _after_extra(self, gathered: Gather) -> list[Action]:
        """Go on after an extra phase: without those who did not send their update, and after the last one with the step."""
        lost: list[Action] = []
        if gathered.phase == self._sends_in:
            sent = set(gathered.clients)
            lost = _unsummed([report for report in self._trained if report[1] not in sent])
            self._trained = [report for report in self._trained if report[1] in sent]
        last = gathered.phase == self.extra[-1]
        return [*lost, gathered, *(self._finish(self._trained) if last else self._ask_next(gathered.clients))]

    def _ask_next(self, clients: Sequence[int]) -> list[Action]:
        """Ask those who completed a phase for the next one."""
        self.phase = self.phases[self.phases.index(self.phase) + 1]
        return [Choose(None, clients, phase=self.phase)]

    def _finish(self, reports: list[tuple[int, int]]) -> list[Action]:
        """Step with these reports, (task, client), and go on to the next round."""
        unsummed = [] if reports else _unsummed(self._trained)
        tasks, by = _columns(reports)
        step = Step(self.version, tasks, by, self._trained_from(by))
        self.version += 1
        if self.kept is not None:
            for client in by:
                self.kept[client] = self.version
        self.phase = next(phase for phase in self.phases if phase != "prepare")
        self._trained = []
        return [*unsummed, step, self._choose()]

    def _trained_from(self, clients: Sequence[int]) -> tuple[int, ...]:
        """Return the version that each of these clients trained from."""
        if self.kept is None:
            return (self.version,) * len(clients)
        return tuple(self.kept[client] for client in clients)

    def _freed(self, time: float, clients: Sequence[int]) -> list[Action]:
        del time, clients
        return self._close_if_done()

    def _gone(self, time: float, clients: Sequence[int], working: Sequence[int]) -> list[Action]:
        del time, clients
        return self._close_if_done() if working else []


def _columns(reports: list[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the tasks of reports, and the clients."""
    return tuple(task for task, _ in reports), tuple(client for _, client in reports)


def _unsummed(reports: list[tuple[int, int]]) -> list[Action]:
    """Give up these reports, (task, client), for their updates are in no sum."""
    return [Drop([task for task, _ in reports], [client for _, client in reports], "unsummed")] if reports else []
