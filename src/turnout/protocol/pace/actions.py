"""The actions that a pace returns to its driver, and the reasons for which a task is dropped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Literal, NamedTuple, Protocol, TypeVar, get_args

Reason = Literal["stale", "late", "died", "left", "wrong version", "unsummed", "unusable"]
"""The reason for which a task is dropped.

``"stale"``: its report exceeds the maximum staleness. ``"late"``: it missed a deadline. ``"died"``: its client gave it
up. ``"left"``: its client disconnected. ``"wrong version"``: its report has another version than the task.
``"unsummed"``: its update is not in the secure sum of its round. ``"unusable"``: its report cannot be read or used.
"""

REASONS: tuple[Reason, ...] = get_args(Reason)

Phase = str
"""The phase of a round that a task belongs to.

``"prepare"`` initializes client memory, once, before the first round; ``"measure"`` measures before a cohort is
selected; ``"train"`` trains. The aggregation may declare phases after training.
"""

PHASES: tuple[Phase, ...] = ("prepare", "measure", "train")
"""The phases up to training."""


class Course(Protocol):
    """The phases of a round, as an algorithm declares them."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of a round, in order; ``"prepare"`` precedes the first round only."""
        ...

    @property
    def sends_in(self) -> Phase:
        """The phase in which clients send their updates; a client that does not complete it is not in the step."""
        ...

    @property
    def continues(self) -> bool:
        """True if a client trains from the model of the last step in which it participated."""
        ...


class Training(NamedTuple):
    """Rounds with one phase, ``"train"``."""

    phases: tuple[Phase, ...] = ("train",)
    sends_in: Phase = "train"
    continues: bool = False


class Choose(NamedTuple):
    """Select clients, and pass them to the pace by `chosen`.

    Attributes:
        most: the maximum number of clients; None leaves the number to the selection.
        first: preferred clients: those that are available are selected first, in this order, before other available, idle
            clients. In a phase after training: the clients that completed the phase before; those still available are asked.
        factor: the factor by which the selection enlarges its cohort, >= 1.
        phase: the phase of their tasks.
        group: the group whose phase it is, if groups have rounds of their own; 0 is a new group, or the round of all clients.
        least: no client is selected if fewer than this are available.
    """

    most: int | None
    first: Sequence[int] = ()
    factor: float = 1.0
    phase: Phase = "train"
    group: int = 0
    least: int = 0


class Ask(NamedTuple):
    """Send tasks with the model of `version` to clients.

    Attributes:
        tasks: task numbers; ascending and unique within a run.
        clients: client of each task.
        version: version of the model, the present one; in the phase ``"prepare"`` it is -1, which stands for the model
            of version 0 with minibatches outside all rounds.
        phase: phase of the tasks.
    """

    tasks: Sequence[int]
    clients: Sequence[int]
    version: int
    phase: Phase = "train"


class Gather(NamedTuple):
    """Process the reports of a phase that leaves the model unchanged.

    The next `Choose` may depend on these reports, so it is answered afterwards.

    Attributes:
        phase: the phase, which is not ``"train"``.
        tasks: the tasks that were reported, in the order of arrival; may be empty.
        clients: the client of each task.
        versions: the version that each task was sent with.
        groups: the group whose phase it is; 0 is the round of all clients.
    """

    phase: Phase
    tasks: Sequence[int]
    clients: Sequence[int]
    versions: Sequence[int]
    groups: Sequence[int] = (0,)


class Step(NamedTuple):
    """Take the server step from `version` to ``version + 1`` with the reports of these tasks, in the order of arrival.

    Attributes:
        version: the version before the step.
        tasks: the tasks that were reported; none in an empty round.
        clients: the client of each task.
        versions: the version that each report was trained from; its staleness is ``version - versions[i]``.
        groups: the groups whose updates it uses; 0 is the round of all clients.
    """

    version: int
    tasks: Sequence[int]
    clients: Sequence[int]
    versions: Sequence[int]
    groups: Sequence[int] = (0,)

    @property
    def phase(self) -> Phase:
        """The phase that the step ends."""
        return "train"


class Drop(NamedTuple):
    """End tasks without using them; clients that still work on one may stop.

    Attributes:
        tasks: task numbers.
        clients: the client of each task.
        reason: the reason.
    """

    tasks: Sequence[int]
    clients: Sequence[int]
    reason: Reason


class Ignore(NamedTuple):
    """Ignore a message about a task that is not open.

    Attributes:
        task: the task number in the message.
        client: the sender.
        reason: ``"ended"`` if the task was reported or dropped before, ``"unknown"`` if this client never had such a task.
    """

    task: int
    client: int
    reason: Literal["ended", "unknown"]


class SetTimer(NamedTuple):
    """Call `expired` with `timer` at `time`; timers that no longer have an effect may expire, too."""

    timer: int
    time: float


Action = Choose | Ask | Gather | Step | Drop | Ignore | SetTimer


_Reported = TypeVar("_Reported", bound=Gather | Step)


def select(action: _Reported, mask: Sequence[bool]) -> _Reported:
    """Return an action with only those tasks for which the mask is true."""
    return action._replace(
        tasks=tuple(compress(action.tasks, mask)),
        clients=tuple(compress(action.clients, mask)),
        versions=tuple(compress(action.versions, mask)),
    )
