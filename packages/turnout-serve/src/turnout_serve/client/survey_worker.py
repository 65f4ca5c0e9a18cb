"""Do the tasks of evaluations and queries of one client, plain or masked for a sum, or decline them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch

from turnout.core.checks import ConfigurationError
from turnout.core.types import State
from turnout.data.transforms import apply_transforms
from turnout.evaluation.queries import Question
from turnout.protocol.answer_sum import AnswerLayout, AnswerSum
from turnout.protocol.secure.masker import VectorMasker
from turnout.protocol.survey import SURVEYS
from turnout_serve.client.computer import Computer
from turnout_serve.client.evaluation import evaluation_sums
from turnout_serve.client.opting import ClientRequirement
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import WireError, encode
from turnout_serve.wire.surveys import LARGEST, layout_of, question_of, sums_body, survey_of

log = logging.getLogger("turnout.client")

MOST_SUMS = 16
"""Masked sums that a client takes part in at a time."""


class SurveyWorker:
    """Compute the answers of one client to evaluations and queries, as its own settings say, whatever the server asks for.

    Args:
        computer: model and data.
        row: row of the client's data.
        requirement: requirement of the client, which evaluations may report on.
        allows: which of ``"evaluations"`` and ``"queries"`` it answers.
        functions: functions of inputs and targets of its examples, by the names that a query may ask for.

    Attributes:
        noised: True where sums of answers are noised; then a client without an answer sends zeros.
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
        algorithm, self._widths = computer.experiment.algorithm, computer.experiment.data.widths
        self._sum, plan = AnswerSum.of(algorithm), algorithm.noised_privacy
        self.noised = self._sum is not None and self._sum.noise is not None
        self._refuses = plan is not None and plan.answers is None  # the run has noise, and none for answers
        self._maskers: dict[int, VectorMasker] = {}  # by the number of the survey

    def declines(self, task: Assignment) -> str | None:
        """Return why the client declines a task, one of `turnout.protocol.survey.DECLINES`; None where it does not."""
        if task.phase not in SURVEYS:
            log.warning("the server asks for an unknown phase", extra={"task": task.task, "phase": task.phase})
            return "unknown"
        if self._refuses or ("evaluations" if task.phase == "evaluate" else "queries") not in self._allows:
            return "refused"
        if task.phase == "evaluate":  # with noise, the server must not learn whether a client has test examples
            return None if self.noised or self._has_test_examples else "no test examples"
        try:
            question = question_of(task)
            question.shapes(self._widths) if self._sum is None else self._layout(question)
        except (WireError, ConfigurationError):
            return "unknown"
        return None if question.of in ("features", "targets", *self._functions) else "unknown"

    def do(self, client: int, task: Assignment, model: State, memory: State) -> bytes | None:
        """Return the body of the message on a task; None gives the task up.

        Raises:
            WireError: if a query cannot be read.
        """
        if task.phase not in SURVEYS:
            return self.later(task)
        question = question_of(task) if task.phase == "query" else None
        sums = self._evaluation(client, model, memory) if question is None else self._query(task, question)
        return self.encoded(client, task, question, sums)

    def encoded(
        self, client: int, task: Assignment, question: Question | None, sums: Mapping[str, Any] | None
    ) -> bytes | None:
        """Encode sums, or the keys of a client that masks them; sums that could not be computed are None.

        Args:
            client: number of the client.
            task: task of the survey.
            question: question of a query; None for an evaluation.
            sums: sums of the client.
        """
        if sums is None and not self.noised:
            return None
        if self._sum is None:
            return sums_body(sums or {})
        if self.noised and sums is not None and not _fits(sums):
            sums = None  # a refusal by the server would reveal something of the data
        layout = self._layout(question)
        if self._sum.masking is None:
            return sums_body({name: np.zeros(shape) for name, shape in layout.shapes.items()} if sums is None else sums)
        return self._masked(client, task, layout, sums)

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

    def _masked(
        self, client: int, task: Assignment, layout: AnswerLayout, sums: Mapping[str, Any] | None
    ) -> bytes | None:
        """Return the body with the keys of a client that masks its sums; None where they are too large."""
        try:
            codes = layout.encoded(sums)
        except ConfigurationError as error:
            log.error("not answered: a sum is too large", extra={"task": task.task, "reason": str(error)})
            return None
        number = survey_of(task)
        masker = VectorMasker(layout.masking)
        while len(self._maskers) >= MOST_SUMS:
            del self._maskers[next(iter(self._maskers))]
        self._maskers[number] = masker
        return encode(masker.advertise(client, number, lambda _: codes, {}))

    def later(self, task: Assignment) -> bytes | None:
        """Return the body of a message of a later phase; None where the client drops out."""
        try:
            number, inputs = survey_of(task), {name: value[0] for name, value in task.tensors().items()}
        except WireError as error:
            log.warning("a task of a survey cannot be read", extra={"task": task.task, "reason": str(error)})
            return None
        if (masker := self._maskers.get(number)) is None:
            log.info("answer lost", extra={"survey": number})
            return None
        done = masker.answer(task.phase, number, inputs, {})
        if task.phase == "open" or done is None:
            del self._maskers[number]
        return None if done is None else encode(done[0])

    def _layout(self, question: Question | None) -> AnswerLayout:
        assert self._sum is not None
        return layout_of(self._sum, question, self._computer.sums, self._widths)


def _fits(sums: Mapping[str, Any]) -> bool:
    """Return whether sums are within the limits of the server."""
    return all(bool((np.abs(np.asarray(value, dtype=np.float64)) <= LARGEST).all()) for value in sums.values())
