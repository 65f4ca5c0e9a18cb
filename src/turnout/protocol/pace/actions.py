"""Define the actions that a pace returns to its driver, and why a task can end without being used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

Reason = Literal["stale", "late", "died", "left", "wrong version", "unsummed", "unusable"]
"""Why a task ended without being used: its report was older than allowed, or would have come too late; its client dropped
out of it, or went away; its report was about another version than the one that was asked for; its update did not get
into the sum of its round; or its report could not be read or used."""

REASONS: tuple[Reason, ...] = ("stale", "late", "died", "left", "wrong version", "unsummed", "unusable")


Phase = str
"""What a task asks for: ``"prepare"``, what corrections keep, before the first round; ``"measure"``, measurements alone,
before a cohort is chosen; ``"train"``; or a phase after training that the aggregation declares."""

PHASES: tuple[Phase, ...] = ("prepare", "measure", "train")
"""The phases up to training."""


class Course(Protocol):
    """The phases of a round; an algorithm declares those of its rounds."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of a round in their order; ``"prepare"`` comes before the first round only."""
        ...

    @property
    def sends_in(self) -> Phase:
        """The phase in which an update leaves its client; a client that does not complete it is not in the step."""
        ...

    @property
    def continues(self) -> bool:
        """True if a client trains from the model of the last step that it took part in."""
        ...


class Training(NamedTuple):
    """The course of rounds that train and do nothing else."""

    phases: tuple[Phase, ...] = ("train",)
    sends_in: Phase = "train"
    continues: bool = False


class Choose(NamedTuple):
    """Choose clients who are to be asked, and tell the pace by `chosen`.

    Attributes:
        most: at most so many; None leaves it to the selection.
        first: of these, all who are there come first, in this order; anyone else who is there and idle, after them. In a
            phase after training: the clients who completed the phase before, of whom those still there are asked.
        factor: by how much the selection should enlarge its cohort, >= 1.
        phase: what they will be asked for.
        group: whose phase that is, where groups of clients do rounds of their own; 0 is a new group, or the round of all.
        least: nobody is chosen where fewer are there.
    """

    most: int | None
    first: Sequence[int] = ()
    factor: float = 1.0
    phase: Phase = "train"
    group: int = 0
    least: int = 0


class Ask(NamedTuple):
    """Send the model of `version` to clients; each reports under the number of its task.

    Attributes:
        tasks: numbers of the tasks; ascending, never used twice in a run.
        clients: who does each.
        version: what they train from, the present version; -1 in the phase ``"prepare"``, whose minibatches are those of no
            round, at the model of version 0.
        phase: what they are asked for.
    """

    tasks: Sequence[int]
    clients: Sequence[int]
    version: int
    phase: Phase = "train"


class Gather(NamedTuple):
    """Take in what these reports say: a phase of a round is over that leaves the model as it is.

    The next `Choose` may depend on it, so it is answered afterwards.

    Attributes:
        phase: any but ``"train"``.
        tasks: whose reports, in the order in which they arrived; maybe none.
        clients: who did each.
        version: what the tasks were asked with.
        group: whose phase it is; 0 is the round of all.
    """

    phase: Phase
    tasks: Sequence[int]
    clients: Sequence[int]
    version: int
    group: int = 0


class Step(NamedTuple):
    """Take the server step from `version` to ``version + 1`` with these reports, in the order in which they arrived.

    Attributes:
        version: the version before the step.
        tasks: whose reports; none in an empty round.
        clients: who did each.
        versions: what each was trained from, so that its staleness is ``version - versions[i]``.
        groups: the groups that it uses; of the round of all, 0.
    """

    version: int
    tasks: Sequence[int]
    clients: Sequence[int]
    versions: Sequence[int]
    groups: Sequence[int] = (0,)


class Drop(NamedTuple):
    """These tasks have ended without being used; whoever is still at work on one may stop.

    Attributes:
        tasks: numbers of the tasks.
        clients: who did each.
        reason: why.
    """

    tasks: Sequence[int]
    clients: Sequence[int]
    reason: Reason


class Ignore(NamedTuple):
    """A report or a death changes nothing, because its task is not open.

    Attributes:
        task: the number that was given.
        client: who gave it.
        reason: ``"ended"`` (reported before, or given up by the server) or ``"unknown"`` (never asked of this client).
    """

    task: int
    client: int
    reason: Literal["ended", "unknown"]


class SetTimer(NamedTuple):
    """Call `expired` with `timer` at `time`; a timer that is no longer needed does no harm."""

    timer: int
    time: float


Action = Choose | Ask | Gather | Step | Drop | Ignore | SetTimer
