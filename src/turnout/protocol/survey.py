"""Track surveys of clients: evaluations and queries, whose answers are summed and leave the model unchanged.

A survey runs beside training, independently of the pace. A client may have tasks of surveys and a training task at the same
time, and does those of surveys first, so that it evaluates a model before it trains from it.
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

OF_EARLIER_SUMS = ("answered", "similar group")
"""The reasons for which a client declines a task because of what it has sent to earlier sums."""

DECLINES = ("no test examples", "refused", "unknown", *OF_EARLIER_SUMS)
"""The reasons for which a client declines a survey.

It has no test examples, its policy does not allow an answer, it does not know the requested figures, it has answered the
question before, or the group of a secure sum is too similar to that of an earlier one. The last two also decline tasks of
training under masks.
"""

FIRST_TASK = 10**14
"""The number of the first task of a survey; training tasks have smaller numbers."""


@dataclass(frozen=True)
class SurveyRequest:
    """The request of a survey.

    Attributes:
        number: number of the survey, from 0.
        phase: ``"evaluate"`` or ``"query"``.
        version: version of the model.
        share: probability with which a client is asked, drawn from (seed, number, client).
        ends: latest end, in seconds of the server.
        stays: True if the survey stays open for clients that join until it ends; False if it ends with the last answer.
        every: True for a survey that is repeated at an interval of steps.
        question: question of a query, as plain values.
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
    """The state of a survey.

    Args:
        request: the request.
        seed: seed of the run.

    Attributes:
        request: the request.
        answers: answers by client; for a secure sum, empty answers of the clients that completed the present phase.
        lost: reason why a client has not answered, by client.
        open: clients with a task.
        in_phases: True if a secure sum is past its first phase, so that no other client can join it.
    """

    def __init__(self, request: SurveyRequest, seed: int) -> None:
        self.request, self._key = request, stream("survey", seed, request.number)
        self.answers: dict[int, dict[str, Any]] = {}
        self.lost: dict[int, str] = {}
        self.open: set[int] = set()
        self.in_phases = False
        self._sole = -1  # the client that is asked if none is drawn

    def begin(self, available: Sequence[int]) -> list[int]:
        """Return the clients to ask, at least one of the available ones."""
        chosen = self._drawn(available)
        if len(available) and not len(chosen):
            numbers = uniform(fold(self._key, np.array(available, dtype=np.int64)))
            self._sole = available[int(numbers.argmin())]
            chosen = [self._sole]
        return self._ask(chosen)

    def joined(self, client: int) -> list[int]:
        """Return the clients to ask when a client joins: this client or none."""
        if self.in_phases or client in self.answers or client in self.open or self.lost.get(client, "left") != "left":
            return []
        if not self.lost and not self.answers and not self.open:
            return self.begin([client])
        return self._ask(self._drawn([client]) or ([client] if client == self._sole else []))

    def answered(self, client: int, answer: dict[str, Any]) -> None:
        """Record the answer of a client."""
        self.open.discard(client)
        self.answers[client] = answer

    def failed(self, client: int, reason: str) -> None:
        """Record that a client does not answer; one that left is asked again when it joins."""
        self.open.discard(client)
        self.lost[client] = reason

    def next_phase(self, clients: Sequence[int]) -> list[int]:
        """Start the next phase of a secure sum.

        Args:
            clients: clients that take part in the next phase, among those that completed the last one.
        """
        before, self.answers = self.answers, {}
        self.lost |= {client: "unsummed" for client in before if client not in set(clients)}
        self.in_phases = True
        return self._ask(clients)

    def opened(self, clients: Sequence[int], before: Iterable[int]) -> None:
        """Record the clients whose answers are in the sum.

        Args:
            clients: the clients.
            before: all clients that sent masked answers.
        """
        self.answers = {client: {} for client in clients}
        for client in clients:
            self.lost.pop(client, None)
        self.lost |= {client: "unsummed" for client in before if client not in self.answers}

    @property
    def done(self) -> bool:
        """True if no answers are outstanding, and no other client can be asked."""
        if self.in_phases:
            return not self.open
        return not self.request.stays and not self.open and bool(self.answers or self.lost)

    @property
    def reasons(self) -> dict[str, int]:
        """The number of clients that have not answered, by reason."""
        return dict(sorted(Counter(list(self.lost.values())).items()))

    def _ask(self, clients: Iterable[int]) -> list[int]:
        """Give clients a task, and return them."""
        clients = list(clients)
        self.open.update(clients)
        for client in clients:
            self.lost.pop(client, None)
        return clients

    def _drawn(self, clients: Sequence[int]) -> list[int]:
        """Return the clients that are asked according to the share of the request."""
        if self.request.share >= 1.0 or not len(clients):
            return list(clients)
        numbers = uniform(fold(self._key, np.array(clients, dtype=np.int64)))
        return [client for client, number in zip(clients, numbers.tolist(), strict=True) if number < self.request.share]

    def facts(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {
            "asked": vars(self.request),
            "answers": list(self.answers.items()),
            "lost": list(self.lost.items()),
            "any": self._sole,
            "in_phases": self.in_phases,
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any], seed: int) -> Survey:
        """Restore what `facts` returned; clients with a task are not part of it."""
        survey = cls(SurveyRequest(**facts["asked"]), seed)
        survey.answers, survey.lost = dict(facts["answers"]), dict(facts["lost"])
        survey._sole, survey.in_phases = facts["any"], facts.get("in_phases", False)
        return survey


@dataclass(frozen=True)
class OpenedSum:
    """The sum of clients' answers, if the server learns no single answer.

    Attributes:
        total: sums by name, float64; None if they could not be opened.
        why: the reason, if they could not be opened.
        deviations: standard deviation of the noise in each number of a sum, by name; 0 without noise.
        grid: number of which each number of a sum is a multiple, by name; empty without noise.
        least: lower bound of the number of examples by which a mean is divided.
        epsilon: upper bound of the privacy budget spent so far, including this answer; None without noise.
    """

    total: Mapping[str, np.ndarray] | None
    why: str = ""
    deviations: Mapping[str, float] = field(default_factory=dict)
    grid: Mapping[str, float] = field(default_factory=dict)
    least: float = 1.0
    epsilon: float | None = None


@dataclass(frozen=True)
class ClosedSurvey:
    """The outcome of a survey.

    Attributes:
        survey: answers, and the reasons why clients have not answered.
        seen: whether each of `clients` had contributed to the model, bool ``[n]``.
        opened: sum of the answers; None if the server receives single answers.
    """

    survey: Survey
    seen: np.ndarray
    opened: OpenedSum | None = None

    @property
    def clients(self) -> np.ndarray:
        """The clients that answered, ascending, int64 ``[n]``."""
        return np.array(sorted(self.survey.answers), dtype=np.int64)

    @property
    def sums(self) -> dict[str, np.ndarray]:
        """The answers, float64 ``[n, ...]`` by name."""
        rows = [self.survey.answers[client] for client in self.clients.tolist()]
        return {name: np.array([row[name] for row in rows], dtype=np.float64) for name in (rows[0] if rows else ())}
