"""Synchronous training: a cohort is asked, and the server steps when it has reported or its time is up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from turnout.core.checks import ConfigurationError, positive, refuse
from turnout.pace.actions import Action, Choose, Drop, Ignore, SetTimer, Step
from turnout.pace.pace import BoundPace, Pace


@dataclass(frozen=True)
class Rounds(Pace):
    """In every round a cohort of m clients is asked, and the server steps as soon as ``m / over_selection`` reported.

    Whoever has not reported by then, or by the deadline, is told to stop. A round also ends when nobody is at work any
    more; it may end without a report, as an empty step. A report that arrives exactly at the deadline counts.

    Attributes:
        deadline: greatest length of a round in seconds from the moment the cohort is asked; None waits for everybody.
        over_selection: the selection's cohort is enlarged by this factor, to be done when the number that it would have
            had without has reported; 1.3 asks 13 clients and takes the fastest 10.

    Raises:
        ConfigurationError: for a deadline that is not > 0, or a factor below 1.

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

    def bind(self, num_clients: int) -> BoundRounds:
        """The state machine; any number of clients will do."""
        del num_clients
        return BoundRounds(self)


def enlarged(cohort_size: int, over_selection: float) -> int:
    """How many clients are asked so that `cohort_size` are enough: the product, rounded up."""
    return math.ceil(cohort_size * over_selection - 1e-9)


class BoundRounds(BoundPace):
    """`Rounds` for one run.

    Attributes:
        options: the options.
        running: whether a round is running; if not, its cohort is still to be chosen.
    """

    def __init__(self, options: Rounds) -> None:
        super().__init__()
        self.options = options
        self.running = False
        self._needed = 0
        self._reports: list[tuple[int, int]] = []  # task, client

    def start(self, time: float) -> list[Action]:
        """Ask for the cohort of the first round."""
        del time
        return [self._choose()]

    def chosen(self, time: float, clients: Sequence[int]) -> list[Action]:
        """Ask the cohort. Without anybody the round is empty; it ends at its deadline, or at once if there is none."""
        if self.running:
            raise ConfigurationError(f"round {self.version} is running: choose a cohort when it is over")
        deadline = self.options.deadline
        if not clients and deadline is None:
            return self._close()
        asked: list[Action] = [self.open.ask(clients, self.version)] if clients else []
        self.running = True
        self._needed = max(1, math.floor(len(clients) / self.options.over_selection + 1e-9))
        return asked if deadline is None else [*asked, SetTimer(self.version, time + deadline)]

    def reported(self, time: float, client: int, task: int, version: int) -> list[Action]:
        """Keep the report, or drop it; step if that were enough, or if it was the last one."""
        del time
        if (reason := self.open.why_not(task, client)) is not None:
            return [Ignore(task, client, reason)]
        if version != self.open.end(task):
            return [Drop([task], [client], "wrong version"), *self._close_if_done()]
        self._reports.append((task, client))
        return self._close_if_done()

    def joined(self, time: float, clients: Sequence[int] = ()) -> list[Action]:
        """Choose again if there was nobody; whoever joins a running round waits for the next one."""
        del time, clients
        return [] if self.running else [self._choose()]

    def expired(self, time: float, timer: int) -> list[Action]:
        """The deadline of round `timer` has passed."""
        del time
        return self._close() if self.running and timer == self.version else []

    def idle(self, client: int) -> bool:
        """Whether a client does not work."""
        return client not in self.open.of

    def engaged(self) -> list[int]:
        """Everyone who works."""
        return list(self.open.of)

    def versions(self) -> set[int]:
        """The present version: nobody trains from another one."""
        return {self.version}

    def state(self) -> dict[str, np.ndarray]:
        """All that it carries, as int64 arrays."""
        reports = np.array(self._reports, dtype=np.int64).reshape(-1, 2)
        return self.open.state() | {
            "round": np.array([self.version, self.running, self._needed]),
            "reports": reports,
        }

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take over what `state` gave."""
        self.open.restore(state)
        self.version, running, self._needed = state["round"].tolist()
        self.running = bool(running)
        self._reports = [(task, client) for task, client in state["reports"].tolist()]

    def _choose(self) -> Choose:
        return Choose(None, factor=self.options.over_selection)

    def _close_if_done(self) -> list[Action]:
        """Close the round if enough have reported or nobody is left."""
        done = self.running and (len(self._reports) >= self._needed or not len(self.open))
        return self._close() if done else []

    def _close(self) -> list[Action]:
        """Stop whoever is at work, step, and ask for the next cohort."""
        tasks, clients = self.open.end_of(list(self.open.of))
        reported, by = map(tuple, zip(*self._reports, strict=True)) if self._reports else ((), ())
        step = Step(self.version, reported, by, (self.version,) * len(by))
        self.version += 1
        self.running = False
        self._reports.clear()
        late: list[Action] = [Drop(tasks, clients, "late")] if tasks else []
        return [*late, step, self._choose()]

    def _freed(self, time: float, clients: Sequence[int]) -> list[Action]:
        del time, clients
        return self._close_if_done()

    def _gone(self, time: float, clients: Sequence[int], working: Sequence[int]) -> list[Action]:
        del time, clients
        return self._close_if_done() if working else []
