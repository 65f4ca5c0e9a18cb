"""The tasks of open evaluations and queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from turnout.protocol.survey import FIRST_TASK
from turnout_serve.server.journal.entries import Effects, Outcome
from turnout_serve.server.run.open_survey import OpenSurvey
from turnout_serve.wire.assignment import Assignment


class SurveyTasks:
    """Give tasks of surveys to clients, and end them.

    Args:
        surveys: the open surveys, by number; entries may be added and removed.
    """

    def __init__(self, surveys: Mapping[int, OpenSurvey]) -> None:
        self._surveys = surveys
        self._open: dict[int, tuple[int, int]] = {}  # client and survey of each task
        self._of_client: dict[int, list[int]] = {}
        self._next = FIRST_TASK

    def give(self, survey: int, clients: Iterable[int], effects: Effects) -> None:
        """Give each client a task of a survey, after those that it has."""
        for client in clients:
            self._add(self._next, client, survey)
            self._next += 1
            effects.surveyed.append(client)

    def _add(self, task: int, client: int, survey: int) -> None:
        self._open[task] = client, survey
        self._of_client.setdefault(client, []).append(task)

    def survey_of(self, task: int | None, client: int | None) -> OpenSurvey | None:
        """Return the survey of a client's task if it is open, and None otherwise."""
        pair = None if task is None else self._open.get(task)
        return self._surveys[pair[1]] if pair is not None and pair[0] == client else None

    def assignment(self, client: int, task: int) -> Assignment | None:
        """Return a client's task if it is open, and None otherwise."""
        survey = self.survey_of(task, client)
        return None if survey is None else survey.assignment(task, client)

    def of_client(self, client: int) -> Assignment | None:
        """Return the oldest open task of a client; None where it has none."""
        return next(iter(self.all_of_client(client)), None)

    def all_of_client(self, client: int) -> list[Assignment]:
        """Return the open tasks of a client, the oldest first."""
        tasks = self._of_client.get(client, ())
        return [self._surveys[self._open[task][1]].assignment(task, client) for task in tasks]

    def at_work(self) -> Iterable[int]:
        """Return the clients that have a task."""
        return self._of_client.keys()

    def end(self, task: int, outcome: str, effects: Effects, digest: str | None = None) -> None:
        """End a task; with any outcome but ``"taken"``, its client has not answered.

        Args:
            task: its number.
            outcome: ``"taken"``, or the reason why not.
            effects: effects of the entry.
            digest: digest of the message that was taken.
        """
        client, survey = self._open.pop(task)
        self._of_client[client].remove(task)
        if not self._of_client[client]:
            del self._of_client[client]
        if outcome != "taken":
            self._surveys[survey].survey.failed(client, outcome)
        effects.outcomes.append(Outcome(task, client, outcome, digest))

    def end_client(self, client: int, reason: str, effects: Effects) -> None:
        """End all tasks of a client."""
        for task in list(self._of_client.get(client, ())):
            self.end(task, reason, effects)

    def end_survey(self, survey: int, reason: str, effects: Effects) -> None:
        """End all tasks of a survey."""
        for task in [task for task, (_, number) in self._open.items() if number == survey]:
            self.end(task, reason, effects)

    def facts(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {"next": self._next, "tasks": [[task, *pair] for task, pair in self._open.items()]}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Restore what `facts` returned; the surveys are restored before."""
        for task, client, survey in facts["tasks"]:
            self._add(task, client, survey)
            self._surveys[survey].survey.open.add(client)
        self._next = facts["next"]
