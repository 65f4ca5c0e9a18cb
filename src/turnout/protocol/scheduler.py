"""Answer the questions of a pace by a selection, and pass its other actions on to the driver."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from turnout.protocol.choice import Choice
from turnout.protocol.cohorts import Cohorts
from turnout.protocol.pace import (
    PHASES,
    Action,
    Ask,
    BoundPace,
    Choose,
    Drop,
    Gather,
    Ignore,
    Phase,
    SetTimer,
    Step,
)

Told = Ask | Gather | Step | Drop | Ignore | SetTimer
"""The actions of a driver: all those of a pace but its questions."""


class Scheduler:
    """Drive a pace: choose the clients that it asks for, and queue its other actions.

    A driver says what happened, by the methods that the pace has for it, and then takes from `next` what is to be done, one
    action after the other until there is none. What needs a model (`Gather`, `Step`) is to be carried out before the next
    action is taken, for whoever is chosen then may depend on it.

    Args:
        pace: the state machine.
        cohorts: who chooses the cohort of a round.
        choice: who chooses single clients, and knows who became idle; None for a pace that wants no single ones.
        patient: whether a cohort of nobody is put off until somebody joins; if not, the pace is told that there is nobody.

    Attributes:
        pace: as given.
        cohorts: as given.
        cohort: who was chosen last, ascending, with those who count twice twice, int64 ``[B]``.
        through: whom to ask for an extra phase, after training, at a version; nobody where too few are left.
    """

    def __init__(self, pace: BoundPace, cohorts: Cohorts, choice: Choice | None, *, patient: bool) -> None:
        self.pace, self.cohorts, self._choice, self._patient = pace, cohorts, choice, patient
        self.cohort = np.zeros(0, dtype=np.int64)
        self._todo: deque[Action] = deque()
        self.through: Callable[[Choose, int], list[int]] = lambda wanted, _: list(wanted.first)

    @property
    def _phases(self) -> tuple[Phase, ...]:
        """All phases that a choice can be for, by their numbers in a checkpoint."""
        return (*PHASES, *self.pace.extra)

    def start(self, time: float) -> None:
        """Begin; before anything else, and not after `restore`."""
        self._todo.extend(self.pace.start(time))

    def resume(self, time: float) -> None:
        """Go on behind a step that was planned to be the last one: tasks that were open by then have ended."""
        self._todo = deque(self.pace.resume(time))

    def reported(self, time: float, client: int, task: int, version: int) -> None:
        """Take the report of a task, trained from `version`."""
        self._todo.extend(self.pace.reported(time, client, task, version))
        self._free((client,))

    def died(self, time: float, client: int, task: int) -> None:
        """Note that a client gave up a task; it is there and may be chosen again."""
        self._todo.extend(self.pace.died(time, client, task))
        self._free((client,))

    def left(self, time: float, clients: Sequence[int]) -> None:
        """Clients went away, at work or not."""
        self._todo.extend(self.pace.left(time, clients))

    def joined(self, time: float, clients: Sequence[int] = ()) -> None:
        """Clients came."""
        self._free(clients)
        self._todo.extend(self.pace.joined(time, clients))

    def expired(self, time: float, timer: int) -> None:
        """Note that a timer has run out."""
        self._todo.extend(self.pace.expired(time, timer))

    def happened(self, actions: Iterable[Action]) -> None:
        """Take over what the pace said of something that this class has no method for."""
        self._todo.extend(actions)

    def next(self, time: float) -> Told | None:
        """Return the next thing to do; None if nothing is to be done until something happens."""
        while True:
            if not self._todo:
                self._todo.extend(self.pace.more())
            if not self._todo:
                return None
            self._free(self.pace.freed(), surely_there=False)
            action = self._todo.popleft()
            match action:
                case Choose():
                    try:
                        self._answer(time, action)
                    except Exception:
                        self._todo.appendleft(action)  # it is asked again, by other measurements or a mended selection
                        raise
                    continue
                case Step(clients=clients):  # those who waited are idle now, others may have gone away
                    self._free(clients, surely_there=False)
                case Gather(clients=clients):
                    self._free(clients)
                case Drop(clients=clients, reason=reason) if reason != "left":
                    self._free(clients)
            return action

    def check_choice(self) -> None:
        """Raise what the choice raises that is to be made next, if it does; nobody is asked."""
        if (
            self._todo
            and isinstance(wanted := self._todo[0], Choose)
            and wanted.phase in PHASES
            and wanted.most is None
        ):
            self.cohorts(wanted, self.pace.version)

    def _answer(self, time: float, wanted: Choose) -> None:
        """Answer a question of the pace by choosing clients."""
        if wanted.phase not in PHASES:
            self._todo.extend(self.pace.chosen(time, self._of_those(wanted), wanted.group))
            return
        if wanted.most is None:
            cohort = self.cohorts(wanted, self.pace.version)
            self.cohort = np.asarray(cohort, dtype=np.int64)
            repeats = len(self.cohort) > 1 and bool((self.cohort[1:] == self.cohort[:-1]).any())
            clients = np.unique(self.cohort).tolist() if repeats else list(map(int, cohort))
        else:
            clients = self._single_clients(wanted.most, wanted.first)
            if len(clients) < wanted.least:
                self._free(clients)
                clients = []
        if clients or not self._patient:
            self._todo.extend(self.pace.chosen(time, clients))

    def _of_those(self, wanted: Choose) -> list[int]:
        """Return the clients to ask for an extra phase: those of the phase before that are still available, or nobody."""
        clients = np.array(self.through(wanted, self.pace.version), dtype=np.int64)
        return clients.tolist() if self._choice is None else clients[self._choice.here(clients)].tolist()

    def _single_clients(self, most: int, first: Sequence[int]) -> list[int]:
        """Choose at most `most` clients; those in `first` come first."""
        assert self._choice is not None
        clients = self._choice.of_these(first[:most])
        return clients + self._choice.choose(most - len(clients), but=clients) if len(clients) < most else clients

    def _free(self, clients: Sequence[int], surely_there: bool = True) -> None:
        """Tell the choice that clients may have become idle."""
        if self._choice is not None:
            self._choice.add(clients, surely_there=surely_there)

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """Return the state as arrays in groups; to be called while at most the last question is unanswered."""
        wanted = [action for action in self._todo if isinstance(action, Choose)][-1:]
        counts = [(-1 if choose.most is None else choose.most, choose.factor) for choose in wanted]
        facts = {
            "wanted": np.array(counts).reshape(-1, 2),
            "first": np.array([client for choose in wanted for client in choose.first], dtype=np.int64),
            "phase": np.array([self._phases.index(choose.phase) for choose in wanted], dtype=np.int64),
            "of": np.array([(choose.group, choose.least) for choose in wanted], dtype=np.int64).reshape(-1, 2),
            "cohort": self.cohort,
        }
        groups = {"pace": self.pace.state(), "scheduler": facts}
        return groups if self._choice is None else groups | {"choice": self._choice.state()}

    def restore(self, state: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Take over what `state` gave, so that all goes on as if nothing had happened."""
        self.pace.restore(dict(state["pace"]))
        if self._choice is not None:
            self._choice.restore(dict(state["choice"]))
        facts = state["scheduler"]
        first, self.cohort = facts["first"].tolist(), facts["cohort"]
        of = facts.get("of", np.zeros((len(facts["phase"]), 2), dtype=np.int64))  # earlier versions had no groups
        wanted = zip(facts["wanted"].tolist(), facts["phase"].tolist(), of.tolist(), strict=True)
        self._todo = deque(
            Choose(None if most < 0 else int(most), first, factor, self._phases[phase], group, least)
            for (most, factor), phase, (group, least) in wanted
        )
