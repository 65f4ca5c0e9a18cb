"""The open tasks of surveys, by their number and by client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from turnout.deployment.wire.format import Assignment
from turnout.protocol.survey import FIRST_TASK


class SurveyTasks:
    """Number the tasks of surveys, and say what each of them asks for.

    All tasks of a survey are alike but for their numbers, and for what a client alone is told in a later phase of a sum.

    Attributes:
        orders: the task of each survey, without its number.
    """

    def __init__(self) -> None:
        self.orders: dict[int, Assignment] = {}
        self._clients: dict[int, tuple[int, int]] = {}  # client and survey of each open task
        self._of: dict[int, list[int]] = {}  # open tasks of each client
        self._told: dict[int, dict[int, dict[str, Any]]] = {}  # what each client is told in a later phase, by survey
        self._next = FIRST_TASK

    def make(self, client: int, survey: int) -> None:
        """Give a client a task of a survey, behind those that it has."""
        self._clients[self._next] = client, survey
        self._of.setdefault(client, []).append(self._next)
        self._next += 1

    def end(self, task: int) -> tuple[int, int]:
        """Take a task out of the open ones, and return its client and its survey."""
        client, survey = self._clients.pop(task)
        self._of[client].remove(task)
        if not self._of[client]:
            del self._of[client]
        return client, survey

    def begin_phase(self, survey: int, phase: str, told: dict[int, dict[str, Any]]) -> None:
        """Have later tasks of a survey ask for another phase, with what each client alone is told."""
        self._told[survey] = told
        self.orders[survey] = replace(self.orders[survey], phase=phase)

    def close(self, survey: int) -> None:
        """Forget a survey without open tasks."""
        self.orders.pop(survey, None)
        self._told.pop(survey, None)

    def whose(self, task: int | None) -> tuple[int, int] | tuple[None, None]:
        """Return the client and the survey of a task; nobody's where it is not open."""
        return self._clients.get(task, (None, None)) if task is not None else (None, None)

    def of_client(self, client: int) -> list[int]:
        """Return the open tasks of a client, the oldest first."""
        return list(self._of.get(client, ()))

    def of_survey(self, survey: int) -> list[int]:
        """Return the open tasks of a survey."""
        return [task for task, (_, of) in self._clients.items() if of == survey]

    def at_work(self) -> Iterable[int]:
        """Return the clients that have a task."""
        return self._of.keys()

    def assignment(self, task: int) -> Assignment:
        """Return an open task as its client receives it."""
        client, survey = self._clients[task]
        order = self.orders[survey]
        return replace(order, task=task, told=self._told.get(survey, {}).get(client, order.told))

    def facts(self) -> dict[str, Any]:
        """Return all of it but the orders, as plain values."""
        return {
            "next": self._next,
            "tasks": [[task, *of] for task, of in self._clients.items()],
            "told": [[survey, list(of.items())] for survey, of in self._told.items()],
        }

    def restore(self, facts: Mapping[str, Any]) -> list[Sequence[int]]:
        """Restore what `facts` returned, and return the client and the survey of each open task."""
        self._told = {survey: dict(of) for survey, of in facts.get("told", ())}
        for task, client, survey in facts["tasks"]:
            self._next = task
            self.make(client, survey)
        self._next = facts["next"]
        return list(self._clients.values())
