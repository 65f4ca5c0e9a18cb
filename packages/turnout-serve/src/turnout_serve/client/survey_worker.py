"""Do the tasks of evaluations and queries of one client, or decline them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.types import State
from turnout.data.transforms import apply_transforms
from turnout.evaluation.queries import Question
from turnout.protocol.survey import SURVEYS
from turnout_serve.client.answers import Answerer
from turnout_serve.client.computer import Computer
from turnout_serve.client.evaluation import evaluation_sums
from turnout_serve.client.opting import ClientRequirement
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import WireError
from turnout_serve.wire.surveys import question_of

log = logging.getLogger("turnout.client")


class SurveyWorker:
    """Compute the answers of one client to evaluations and queries.

    Args:
        computer: model and data.
        row: row of the client's data.
        requirement: requirement of the client, which evaluations may report on.
        allows: which of ``"evaluations"`` and ``"queries"`` it answers.
        functions: functions of inputs and targets of its examples, by the names that a query may ask for.

    Attributes:
        answers: encodes the answers.
    """

    def __init__(
        self,
        computer: Computer,
        row: int,
        requirement: ClientRequirement,
        allows: Collection[str],
        functions: Mapping[str, Callable[..., Any]],
    ) -> None:
        self._computer, self._row, self._requirement = computer, row, requirement
        self._allows, self._functions = allows, functions
        self.answers = Answerer(computer.experiment.algorithm, computer.sums, computer.experiment.data.widths)

    def declines(self, task: Assignment) -> str | None:
        """Return why the client declines a task, one of `turnout.protocol.survey.DECLINES`; None where it does not."""
        if task.phase not in SURVEYS:
            log.warning("the server asks for an unknown phase", extra={"task": task.task, "phase": task.phase})
            return "unknown"
        if self.answers.refuses or ("evaluations" if task.phase == "evaluate" else "queries") not in self._allows:
            return "refused"
        if task.phase == "evaluate":  # with noise, the server must not learn whether a client has test examples
            return None if self.answers.noised or self._has_test_examples else "no test examples"
        try:
            question = question_of(task)
            self.answers.check(question)
        except (WireError, ConfigurationError):
            return "unknown"
        return None if question.of in ("features", "targets", *self._functions) else "unknown"

    def do(self, client: int, task: Assignment, model: State, memory: State) -> bytes | None:
        """Return the body of the message on a task; None gives the task up.

        Raises:
            WireError: if a query cannot be read.
        """
        if task.phase not in SURVEYS:
            return self.answers.later(task)
        question = question_of(task) if task.phase == "query" else None
        sums = self._evaluation(client, model, memory) if question is None else self._query(task, question)
        return self.answers.first(client, task, question, sums)

    @property
    def _has_test_examples(self) -> bool:
        test = self._computer.test
        return test is not None and bool(test.sizes[self._row])

    def _evaluation(self, client: int, model: State, memory: State) -> dict[str, Any] | None:
        """Return the sums of an evaluation; None where they are not finite, or there are no test examples."""
        computer = self._computer
        params, _ = computer.received(model)
        if computer.test is None or not self._has_test_examples:
            return None
        required = self._requirement.bound(client) if computer.sums.appeal else None
        clients, personal = computer.clients(client, self._row), computer.experiment.algorithm.personal
        return evaluation_sums(computer.sums, clients, computer.test, personal, params, memory, required)

    def _query(self, task: Assignment, question: Question) -> dict[str, Any] | None:
        """Return the sums of a query over the training examples; None where they cannot be computed."""
        try:
            return self._sums_of(question)
        except Exception as error:  # the owner of the data has written the function
            log.error("query not answered", extra={"task": task.task, "reason": repr(error)})
            return None

    def _sums_of(self, question: Question) -> dict[str, Any]:
        """Return the sums of a query over the training examples, with inputs as the model gets them."""
        computer = self._computer
        x, y = computer.shards.client(self._row)
        x = apply_transforms(computer.transforms, x, None, training=False)
        if question.kind == "label_histogram" or question.of == "targets":
            values = y
        elif question.of == "features":
            values = x
        else:
            values = torch.as_tensor(self._functions[question.of](x, y))
            if values.shape != (len(y),):
                raise ConfigurationError(
                    f"{question.of} returns {tuple(values.shape)}, needed a number for each example"
                )
        return question.sums(values, computer.experiment.data.widths["classes"])
