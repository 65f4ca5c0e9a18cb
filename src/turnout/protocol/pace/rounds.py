"""Synchronous training: a cohort is asked, and the server steps when it has reported or its time is up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from turnout.core.checks import ConfigurationError, positive, refuse
from turnout.protocol.pace.actions import Action, Choose, Course, Drop, Ignore, SetTimer, Step, Training
from turnout.protocol.pace.pace import Pace
from turnout.protocol.pace.phases import PhasedPace, Round, dropped


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


class BoundRounds(PhasedPace):
    """`Rounds` for one run.

    Attributes:
        options: the options.
        kept: the version that each client keeps and trains from, by client; None has all train from the present one.
    """

    def __init__(self, options: Rounds, course: Course = Training(), kept: list[int] | None = None) -> None:  # noqa: B008
        super().__init__(course)
        self.options, self.kept = options, kept
        self.mixes_versions = kept is not None
        self._round = Round(0, self.phases[0], is_running=False)
        self._closed = 0  # phases that are over: the number of the present one's timer
        self._needed = 0

    @property
    def running(self) -> bool:
        """Whether clients were asked for the present phase; if not, they are still to be chosen."""
        return self._round.is_running

    def start(self, time: float) -> list[Action]:
        """Ask for the clients of the first phase."""
        del time
        return [self._choose()]

    def chosen(self, time: float, clients: Sequence[int], group: int = 0) -> list[Action]:
        """Ask the clients. Without any, the round is empty and ends at its deadline, or at once if there is none."""
        del group
        if self.running:
            raise ConfigurationError(f"round {self.version} is running: choose a cohort when it is over")
        deadline, trains = self.options.deadline, self._round.phase == "train"
        if not clients and self._round.phase in self.extra:
            unsummed, self._round.trained = dropped(self._round.trained, "unsummed"), []
            return [*unsummed, *self._finish(self._round)]
        if not clients and (deadline is None or not trains):
            return self._close(self._round)
        version = self._asks_with(self._round)
        actions: list[Action] = [self.open.ask(clients, version, self._round.phase)] if clients else []
        self._round.is_running = True
        self._needed = max(1, math.floor(len(clients) / self.options.over_selection + 1e-9)) if trains else len(clients)
        return actions if deadline is None else [*actions, SetTimer(self._closed, time + deadline)]

    @property
    def timers(self) -> set[int]:
        """The timer of the present phase."""
        return {self._closed}

    def reported(self, time: float, client: int, task: int, version: int) -> list[Action]:
        """Keep or drop the report; close the phase if enough have reported, or if nobody is at work any more."""
        del time
        if (reason := self.open.why_not(task, client)) is not None:
            return [Ignore(task, client, reason)]
        if version != self.open.end(task):
            return [Drop([task], [client], "wrong version"), *self._close_if_done()]
        self._round.reports.append((task, client))
        return self._close_if_done()

    def all_reported(self, time: float) -> list[Action]:
        """Take the reports of all who are at work, as if they had arrived at once."""
        del time
        self._round.reports += zip(*self.open.end_all(), strict=True)
        return self._close_if_done()

    def joined(self, time: float, clients: Sequence[int] = ()) -> list[Action]:
        """Choose again if there was nobody; whoever joins a running round waits for the next one."""
        del time, clients
        return [] if self.running else [self._choose()]

    def expired(self, time: float, timer: int) -> list[Action]:
        """Close the phase whose deadline `timer` was set for."""
        del time
        return self._close(self._round) if self.running and timer == self._closed else []

    def grow(self, num_clients: int) -> None:
        """Let new clients begin with the present model."""
        if self.kept is not None:
            self.kept += [self.version] * (num_clients - len(self.kept))

    def idle(self, client: int) -> bool:
        """Return whether a client does not work."""
        return client not in self.open.of

    def ignores(self, client: int, comes: bool) -> bool:
        """Return whether a round is running, for a client that comes; whether it does not work, for one that goes."""
        return self.running if comes else self.idle(client)

    def engaged(self) -> list[int]:
        """Return the clients that work."""
        return list(self.open.of)

    def versions(self) -> set[int]:
        """Return the present version, and those that clients keep."""
        return {self.version, *(self.kept or ())}

    def in_hand(self) -> list[tuple[int, int, int]]:
        """Return the reports of the running phase: (task, client, version) in the order of arrival."""
        version = self._asks_with(self._round)
        return [(task, client, version) for task, client in self._round.trained or self._round.reports]

    def state(self) -> dict[str, np.ndarray]:
        """Return the state as int64 arrays."""
        phase = self.phases.index(self._round.phase)
        facts = np.array([self.version, self.running, self._needed, phase, self._closed])
        kept = {} if self.kept is None else {"kept": np.array(self.kept, dtype=np.int64)}
        trained = {"trained": _rows(self._round.trained)} if self.extra else {}
        return self.open.state() | kept | trained | {"round": facts, "reports": _rows(self._round.reports)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restore a state that `state` returned."""
        self.open.restore(state)
        self.version, running, self._needed, phase, self._closed = state["round"].tolist()
        reports, trained = (
            [(task, client) for task, client in state[name].tolist()] if name in state else []
            for name in ("reports", "trained")
        )
        self._round = Round(self.version, self.phases[phase], 0, (), reports, trained, bool(running))
        self.kept = None if self.kept is None else state["kept"].tolist()

    def _choose(self) -> Choose:
        factor = self.options.over_selection if self._round.phase == "train" else 1.0
        return Choose(None, factor=factor, phase=self._round.phase)

    def _close_if_done(self) -> list[Action]:
        """Close the phase if enough have reported or nobody is left."""
        done = self.running and (len(self._round.reports) >= self._needed or not len(self.open))
        return self._close(self._round) if done else []

    def _close(self, round: Round) -> list[Action]:
        """Close the phase; its timer no longer matters."""
        self._closed += 1
        return super()._close(round)

    def _end_tasks(self, round: Round) -> tuple[list[int], list[int]]:
        """Close the tasks of everybody who is at work."""
        del round
        return self.open.end_all()

    def _ask_next(self, round: Round, clients: Sequence[int]) -> list[Action]:
        """Ask for the next phase: after training those who completed the last one, and before it a choice of all."""
        actions = super()._ask_next(round, clients)
        return actions if round.phase in self.extra else [self._choose()]

    def _finish(self, round: Round) -> list[Action]:
        """Step with those who trained, and go on to the next round."""
        tasks, clients = tuple(task for task, _ in round.trained), tuple(client for _, client in round.trained)
        step = Step(self.version, tasks, clients, self._trained_from(clients))
        self.version += 1
        if self.kept is not None:
            for client in clients:
                self.kept[client] = self.version
        phase = next(phase for phase in self.phases if phase != "prepare")
        self._round = Round(self.version, phase, is_running=False)
        return [step, self._choose()]

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


def _rows(reports: list[tuple[int, int]]) -> np.ndarray:
    """Return reports, (task, client), as int64 ``[n, 2]``."""
    return np.array(reports, dtype=np.int64).reshape(-1, 2)
