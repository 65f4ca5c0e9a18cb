"""Encode the answers of a client to evaluations and queries, plain or masked for a sum."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from turnout.base.algorithm import Algorithm
from turnout.core.checks import ConfigurationError
from turnout.evaluation.queries import Question
from turnout.evaluation.sums import SumsForm
from turnout.protocol.answer_sum import AnswerLayout, AnswerSum
from turnout.protocol.secure.masker import VectorMasker
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import WireError, encode
from turnout_serve.wire.surveys import LARGEST, SURVEY, layout_of, sums_body

log = logging.getLogger("turnout.client")

MOST_SUMS = 16
"""Masked sums that a client takes part in at a time."""


class Answerer:
    """Encode answers as the client's own settings say, whatever the server asks for.

    Args:
        algorithm: algorithm of the run, with the masking, clipping and noise of answers.
        form: the sums of an evaluation.
        widths: see `Question.shapes`.

    Attributes:
        noised: True where sums of answers are noised; then a client without an answer sends zeros.
        refuses: True where no answer is ever given, because the run has noise and none for answers.
    """

    def __init__(self, algorithm: Algorithm, form: SumsForm, widths: Mapping[str, int]) -> None:
        self._sum, self._form, self._widths = AnswerSum.of(algorithm), form, widths
        plan = algorithm.noised_privacy
        self.noised = self._sum is not None and self._sum.noise is not None
        self.refuses = plan is not None and plan.answers is None
        self._maskers: dict[int, VectorMasker] = {}  # by the number of the survey

    def check(self, question: Question) -> None:
        """Check that a question can be answered.

        Raises:
            ConfigurationError: if not, with the reason.
        """
        self._layout(question) if self._sum is not None else question.shapes(self._widths)

    def first(
        self, client: int, task: Assignment, question: Question | None, sums: Mapping[str, Any] | None
    ) -> bytes | None:
        """Return the body of the first message: the sums, or the keys of a client that masks them.

        Args:
            client: number of the client.
            task: task of the survey.
            question: question of a query; None for an evaluation.
            sums: sums of the client; None where they could not be computed.
        """
        if sums is None and not self.noised:
            return None
        if self._sum is None:
            return sums_body(sums or {})
        if self.noised and sums is not None and not _fits(sums):
            sums = None  # a refusal by the server would reveal something of the data
        layout = self._layout(question)
        if self._sum.masking is None:
            return sums_body(_zeros(layout) if sums is None else sums)
        return self._masked(client, task, layout, sums)

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
        return layout_of(self._sum, question, self._form, self._widths)


def survey_of(task: Assignment) -> int:
    """Return the number of the survey of a task.

    Raises:
        WireError: if the task has none.
    """
    try:
        return int(task.tensors()[SURVEY][0])
    except (LookupError, ArithmeticError, ValueError, RuntimeError):
        raise WireError("the server's task does not say which evaluation or query it is of") from None


def _fits(sums: Mapping[str, Any]) -> bool:
    """Return whether sums are within the limits of the server."""
    return all(bool((np.abs(np.asarray(value, dtype=np.float64)) <= LARGEST).all()) for value in sums.values())


def _zeros(layout: AnswerLayout) -> dict[str, Any]:
    """Return the sums of a client without an answer."""
    return {name: np.zeros(shape).tolist() for name, shape in layout.shapes.items()}
