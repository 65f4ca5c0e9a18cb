"""Ask clients something beside training, an evaluation or a query: a step that only sums, and leaves the model alone.

A survey goes on beside the pace, which knows nothing of it: a client has tasks of surveys and a task of training at a time,
and does those of surveys first, so that it judges a model before it trains from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from turnout.core.random import fold, stream, uniform

SurveyPhase = Literal["evaluate", "query"]
SURVEYS: tuple[SurveyPhase, ...] = ("evaluate", "query")
"""The phases of tasks that belong to no round."""

DECLINES = ("no test examples", "refused", "unknown")
"""Why a client declines a task of a survey: it holds out nothing, its policy does not allow an answer, or it does not know
what is asked for."""

FIRST_TASK = 10**14
"""The number of the first task of a survey; those of training are smaller."""


@dataclass(frozen=True)
class Asked:
    """What is asked, and of whom.

    Attributes:
        number: of the survey, from 0.
        phase: ``"evaluate"`` or ``"query"``.
        version: of the model.
        share: of the clients who are asked: each with this probability, drawn from (seed, number, client).
        ends: when it ends at the latest, in seconds of the server.
        stays: whether it goes on until then, for clients who come; otherwise it ends with the last answer.
        every: whether it is one that comes every so many steps.
        question: what a query asks for, as plain values.
    """

    number: int
    phase: SurveyPhase
    version: int
    share: float
    ends: float
    stays: bool = False
    every: bool = False
    question: Mapping[str, Any] = field(default_factory=dict)


class Survey:
    """Who was asked in one survey, and what became of that.

    Args:
        asked: what is asked.
        seed: of the run.

    Attributes:
        asked: as given.
        answers: what each client answered, by client; of a sum under masks nothing, but who completed the present phase.
        lost: why others who were asked have not, by client.
        open: clients who have a task.
        in_phases: whether those who sent keys are in the phases of a sum, so that nobody else can be.
    """

    def __init__(self, asked: Asked, seed: int) -> None:
        self.asked, self._key = asked, stream("survey", seed, asked.number)
        self.answers: dict[int, dict[str, Any]] = {}
        self.lost: dict[int, str] = {}
        self.open: set[int] = set()
        self.in_phases = False  # of a sum under masks, after the first
        self._any = -1  # who is asked because nobody else would be

    def begin(self, there: Sequence[int]) -> list[int]:
        """Return whom of those who are there to ask: at least one of them."""
        chosen = self._drawn(there)
        if len(there) and not len(chosen):
            numbers = uniform(fold(self._key, np.array(there, dtype=np.int64)))
            self._any = there[int(numbers.argmin())]
            chosen = [self._any]
        return self._ask(chosen)

    def joined(self, client: int) -> list[int]:
        """Return whom to ask now that a client came: it, or nobody."""
        if self.in_phases or client in self.answers or client in self.open or self.lost.get(client, "left") != "left":
            return []
        if not self.lost and not self.answers and not self.open:
            return self.begin([client])
        return self._ask(self._drawn([client]) or ([client] if client == self._any else []))

    def answered(self, client: int, answer: dict[str, Any]) -> None:
        """Take a client's answer."""
        self.open.discard(client)
        self.answers[client] = answer

    def failed(self, client: int, reason: str) -> None:
        """Note that a client does not answer; one that left is asked again when it comes back."""
        self.open.discard(client)
        self.lost[client] = reason

    def next_phase(self, clients: Sequence[int]) -> list[int]:
        """Ask those who sent their keys, or completed the last phase, for the next one; they have not answered before.

        Args:
            clients: whom to ask; of the others there is no answer.
        """
        before, self.answers = self.answers, {}
        self.lost |= {client: "unsummed" for client in before if client not in set(clients)}
        self.in_phases = True
        return self._ask(clients)

    def opened(self, clients: Sequence[int], before: Iterable[int]) -> None:
        """Note whose answers are in the sum.

        Args:
            clients: these.
            before: who might have been in it.
        """
        self.answers = {client: {} for client in clients}
        for client in clients:
            self.lost.pop(client, None)
        self.lost |= {client: "unsummed" for client in before if client not in self.answers}

    @property
    def done(self) -> bool:
        """Whether everybody who was asked has answered, or will not; in later phases of a sum, nobody else is asked."""
        if self.in_phases:
            return not self.open
        return not self.asked.stays and not self.open and bool(self.answers or self.lost)

    @property
    def reasons(self) -> dict[str, int]:
        """How many clients have not answered, by reason."""
        return dict(sorted(Counter(list(self.lost.values())).items()))

    def _ask(self, clients: Iterable[int]) -> list[int]:
        found = list(clients)
        self.open.update(found)
        for client in found:
            self.lost.pop(client, None)
        return found

    def _drawn(self, clients: Sequence[int]) -> list[int]:
        if self.asked.share >= 1.0 or not len(clients):
            return list(clients)
        numbers = uniform(fold(self._key, np.array(clients, dtype=np.int64)))
        return [client for client, number in zip(clients, numbers.tolist(), strict=True) if number < self.asked.share]

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "asked": vars(self.asked),
            "answers": list(self.answers.items()),
            "lost": list(self.lost.items()),
            "any": self._any,
            "in_phases": self.in_phases,
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any], seed: int) -> Survey:
        """Restore what `facts` returned, but for who has a task."""
        survey = cls(Asked(**facts["asked"]), seed)
        survey.answers, survey.lost = dict(facts["answers"]), dict(facts["lost"])
        survey._any, survey.in_phases = facts["any"], facts.get("in_phases", False)
        return survey


@dataclass(frozen=True)
class Opened:
    """The sum of clients' answers.

    Attributes:
        total: the sums by name, float64; None where they could not be opened.
        why: the reason of that.
        deviations: of the noise in each number of a sum, by name; all 0 where there is none.
        least: examples that a mean is divided by at least.
        epsilon: what the run has spent with this answer, at most; None without noise.
    """

    total: Mapping[str, np.ndarray] | None
    why: str = ""
    deviations: Mapping[str, float] = field(default_factory=dict)
    least: float = 1.0
    epsilon: float | None = None


@dataclass(frozen=True)
class Closed:
    """What came of a survey.

    Attributes:
        survey: who answered, and why others have not.
        seen: which of `clients` had been in a server step before the model was made, bool ``[n]``.
        opened: what the server learnt where it learns no single answer; None where it sees each.
    """

    survey: Survey
    seen: np.ndarray
    opened: Opened | None = None

    @property
    def clients(self) -> np.ndarray:
        """Who answered, ascending, int64 ``[n]``."""
        return np.array(sorted(self.survey.answers), dtype=np.int64)

    @property
    def sums(self) -> dict[str, np.ndarray]:
        """What they answered, float64 ``[n, ...]`` by name."""
        rows = [self.survey.answers[client] for client in self.clients.tolist()]
        return {name: np.array([row[name] for row in rows], dtype=np.float64) for name in (rows[0] if rows else ())}
