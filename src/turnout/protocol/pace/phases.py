"""The phases of a round, for a whole cohort or for a group with its own round."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from turnout.protocol.pace.actions import Action, Choose, Course, Drop, Gather, Phase, Reason
from turnout.protocol.pace.pace import BoundPace


@dataclass
class Round:
    """The state of a round.

    Attributes:
        version: version that its clients train from.
        phase: present phase, or the next one if none is running.
        number: number of the group, from 1; 0 is the round of all clients.
        members: all clients of a group when it started; empty in the round of all clients.
        reports: (task, client) of the clients that completed the present phase.
        trained: (task, client) of the clients that trained and whose updates may still be in the step.
        is_running: True if the present phase has started; False if its clients are still to be selected.
    """

    version: int
    phase: Phase
    number: int = 0
    members: list[int] = field(default_factory=list)
    reports: list[tuple[int, int]] = field(default_factory=list)
    trained: list[tuple[int, int]] = field(default_factory=list)
    is_running: bool = True


class PhasedPace(BoundPace):
    """A pace that takes the clients of a round through one phase after the other.

    A phase ends when its clients have reported, or at its deadline. The clients that completed it are asked for the next one.
    A client that does not complete the phase in which updates are sent is not in the step.

    Attributes:
        phases: the phases of a round, in order.
        extra: the phases after training.
    """

    def __init__(self, course: Course) -> None:
        super().__init__()
        self.phases = course.phases
        self.extra = self.phases[self.phases.index("train") + 1 :]
        self._sends_in = course.sends_in

    @abstractmethod
    def _finish(self, round: Round) -> list[Action]:
        """Return the actions after the last phase of a round, or when no client is left in it."""

    def _end_tasks(self, round: Round) -> tuple[list[int], list[int]]:
        """Close the tasks of a round that are still open; return tasks and clients."""
        return self.open.end_of(round.members)

    def _asks_with(self, round: Round) -> int:
        """Return the version of the tasks of the present phase."""
        return -1 if round.phase == "prepare" else round.version

    def _close(self, round: Round) -> list[Action]:
        """End a phase, drop its open tasks as late, and continue with the next phase."""
        tasks, clients = self._end_tasks(round)
        late: list[Action] = [Drop(tasks, clients, "late")] if tasks else []
        arrived, round.reports, round.is_running = round.reports, [], False
        completed = tuple(client for _, client in arrived)
        if round.phase == "train":
            round.trained = arrived
            return [*late, *(self._ask_next(round, completed) if self.extra and arrived else self._finish(round))]
        reported = tuple(task for task, _ in arrived)
        versions = (self._asks_with(round),) * len(arrived)
        gathered = Gather(round.phase, reported, completed, versions, (round.number,))
        lost = self._leave_out(round, set(completed)) if round.phase == self._sends_in else []
        last = round.phase == self.phases[-1]
        return [*late, *lost, gathered, *(self._finish(round) if last else self._ask_next(round, completed))]

    def _leave_out(self, round: Round, sent: Collection[int]) -> list[Action]:
        """Drop the clients that trained but did not send their update."""
        lost = [report for report in round.trained if report[1] not in sent]
        round.trained = [report for report in round.trained if report[1] in sent]
        return dropped(lost, "unsummed")

    def _ask_next(self, round: Round, clients: Sequence[int]) -> list[Action]:
        """Ask the clients that completed a phase for the next one."""
        round.phase = self.phases[self.phases.index(round.phase) + 1]
        return [Choose(None, clients, phase=round.phase, group=round.number)]


def dropped(reports: Sequence[tuple[int, int]], reason: Reason) -> list[Action]:
    """Return a `Drop` of reports, (task, client); nothing if there are none."""
    return [Drop([task for task, _ in reports], [client for _, client in reports], reason)] if reports else []
