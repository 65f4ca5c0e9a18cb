"""Take clients through the phases of a round together: a whole cohort, or a group with a round of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from turnout.protocol.pace.actions import Action, Choose, Course, Drop, Gather, Phase, Reason
from turnout.protocol.pace.pace import BoundPace


@dataclass
class Round:
    """Clients that go through the phases of a round together.

    Attributes:
        version: what they train from.
        phase: what they are asked for now, or next.
        number: of the group, from 1 on; 0 is the round of all.
        members: everybody in a group when it began; empty in the round of all.
        reports: (task, client) of those who have completed the present phase.
        trained: the same of those who trained and whose updates may still be in the step.
        is_running: whether they were asked for the present phase; if not, they are still to be chosen.
    """

    version: int
    phase: Phase
    number: int = 0
    members: tuple[int, ...] = ()
    reports: list[tuple[int, int]] = field(default_factory=list)
    trained: list[tuple[int, int]] = field(default_factory=list)
    is_running: bool = True


class PhasedPace(BoundPace):
    """A pace that asks the clients of a round for one phase after the other.

    A phase is closed when its clients have reported, or when its time is up. Those who completed it are asked for the next
    one. Whoever does not complete the phase in which updates leave their clients is not in the step.

    Attributes:
        phases: what a round asks for, in order.
        extra: the phases after training.
    """

    def __init__(self, course: Course) -> None:
        super().__init__()
        self.phases = course.phases
        self.extra = self.phases[self.phases.index("train") + 1 :]
        self._sends_in = course.sends_in

    @abstractmethod
    def _finish(self, round: Round) -> list[Action]:
        """Return what follows when a round is through all of its phases, or nobody is left to train in it."""

    def _end_tasks(self, round: Round) -> tuple[list[int], list[int]]:
        """Close the tasks of those who are still at work in a phase; return tasks and clients."""
        return self.open.end_of(round.members)

    def _asks_with(self, round: Round) -> int:
        """Return the version of the tasks of a phase."""
        return -1 if round.phase == "prepare" else round.version

    def _close(self, round: Round) -> list[Action]:
        """End a phase without those still at work in it, and go on to the next one."""
        tasks, clients = self._end_tasks(round)
        late: list[Action] = [Drop(tasks, clients, "late")] if tasks else []
        arrived, round.reports, round.is_running = round.reports, [], False
        completed = tuple(client for _, client in arrived)
        if round.phase == "train":
            round.trained = arrived
            return [*late, *(self._ask_next(round, completed) if self.extra and arrived else self._finish(round))]
        reported = tuple(task for task, _ in arrived)
        gathered = Gather(round.phase, reported, completed, self._asks_with(round), round.number)
        lost = self._leave_out(round, set(completed)) if round.phase == self._sends_in else []
        last = round.phase == self.phases[-1]
        return [*late, *lost, gathered, *(self._finish(round) if last else self._ask_next(round, completed))]

    def _leave_out(self, round: Round, sent: Collection[int]) -> list[Action]:
        """Drop those who trained and did not send their update."""
        lost = [report for report in round.trained if report[1] not in sent]
        round.trained = [report for report in round.trained if report[1] in sent]
        return dropped(lost, "unsummed")

    def _ask_next(self, round: Round, clients: Sequence[int]) -> list[Action]:
        """Ask those who completed a phase for the next one."""
        round.phase = self.phases[self.phases.index(round.phase) + 1]
        return [Choose(None, clients, phase=round.phase, group=round.number)]


def dropped(reports: Sequence[tuple[int, int]], reason: Reason) -> list[Action]:
    """Return the action that gives up reports, (task, client); none without reports."""
    return [Drop([task for task, _ in reports], [client for _, client in reports], reason)] if reports else []
