"""One open evaluation or query: its tasks, its messages, and the sum of its answers."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from turnout.core.types import State
from turnout.evaluation.queries import Question
from turnout.protocol.survey import FIRST_TASK, OpenedSum, Survey
from turnout_serve.server.run.blame import is_of_the_machine
from turnout_serve.server.run.publication import Published
from turnout_serve.server.run.setting import RunSetting
from turnout_serve.server.run.summed_survey import SummedSurvey
from turnout_serve.wire.assignment import Assignment, PlainTensor, plain_row
from turnout_serve.wire.surveys import SURVEY, SumsFormat, question_tensor

_PHASES = 10**12  # the timer of a phase is -1 - survey - phase * this

log = logging.getLogger("turnout.server")


class OpenSurvey:
    """An evaluation or query whose answers arrive.

    Args:
        setting: setting of the run.
        survey: the clients that were asked, and their answers.
        order: the task of every client, but for its number.
        secret: hexadecimal, which the noise of its sum follows from; empty where it is not noised, or has none of its own.
        read: function that returns the body of a message, by its task and its digest.

    Attributes:
        survey, order, secret: as given; `order` asks for the present phase of a masked sum.
        masked: the messages of a masked sum; None where the server sees the answer of each client.
        inputs: inputs of each client in a later phase of a masked sum.
        tasks: client of each open task.
    """

    def __init__(
        self, setting: RunSetting, survey: Survey, order: Assignment, secret: str, read: Callable[[int, str], bytes]
    ) -> None:
        self._setting, self._read = setting, read
        self.survey, self.order, self.secret = survey, order, secret
        masks = setting.answer_sum is not None and setting.answer_sum.masking is not None
        self.masked = SummedSurvey(setting, survey.request, read) if masks else None
        self.inputs: dict[int, dict[str, PlainTensor]] = {}
        self.tasks: dict[int, int] = {}

    @classmethod
    def begin(
        cls, setting: RunSetting, survey: Survey, model: Published, secret: str, read: Callable[[int, str], bytes]
    ) -> OpenSurvey:
        """Make a survey of a model."""
        request = survey.request
        inputs: State = {}
        if request.question:
            inputs["question"] = question_tensor(request.question)[None]
        if setting.answer_sum is not None and setting.answer_sum.masking is not None:
            inputs[SURVEY] = torch.tensor([request.number])
        about = request.version, request.phase, 0, model.digest, model.size, setting.heartbeat
        order = Assignment(FIRST_TASK, *about, plain_row(inputs, 0))
        return cls(setting, survey, order, secret, read)

    @property
    def number(self) -> int:
        """Number of the survey."""
        return self.survey.request.number

    @property
    def timer(self) -> int:
        """Number of the timer that ends the survey, or its present phase; negative, so that it is none of the pace's."""
        return -1 - self.number - (0 if self.masked is None else self.masked.step) * _PHASES

    def assignment(self, task: int, client: int) -> Assignment:
        """Return the task of a client."""
        return replace(self.order, task=task, told=self.inputs.get(client, self.order.told))

    def take(self, client: int, task: int, body: str) -> None:
        """Take the answer of a client, or its message in the present phase of a masked sum.

        Raises:
            WireError: if the message has another form.
        """
        assignment, answer = self.assignment(task, client), dict[str, Any]()
        if self.masked is not None:
            self.masked.take(client, body, assignment)
        else:
            expected = self._setting.answer_format(assignment)
            assert isinstance(expected, SumsFormat)
            answer = expected.read(self._read(task, body), checked=True)
        self.survey.answered(client, answer)

    def begin_phase(self, barred: Collection[int], earlier: Sequence[int]) -> list[int]:
        """Begin the next phase of a masked sum; return the clients to ask, or none where there is no further phase.

        Args:
            barred: clients that are excluded.
            earlier: groups of earlier sums, see `SummedSurvey.advance`.
        """
        if self.masked is None:
            return []
        completed = [client for client in self.survey.answers if client not in barred]
        try:
            clients = self.masked.advance(completed, earlier)
            inputs = self.masked.inputs(clients) if clients else {}
        except Exception as error:
            if is_of_the_machine(error):
                raise
            log.error("survey aborted", extra={"survey": self.number, "reason": repr(error)})
            return []
        if (phase := self.masked.phase) is not None:
            self._set_phase(phase, inputs)
        return clients

    def _set_phase(self, phase: str, inputs: Mapping[int, State]) -> None:
        """Have the tasks of clients ask for a phase of a masked sum, with the inputs of each client."""
        common = {name: value for name, value in self.order.told.items() if name in ("question", SURVEY)}
        self.inputs = {client: {**common, **plain_row(values, 0)} for client, values in inputs.items()}
        self.order = replace(self.order, phase=phase)

    @property
    def culprits(self) -> Mapping[int, str]:
        """Clients that broke the protocol of a masked sum, and how."""
        return {} if self.masked is None else self.masked.culprits

    def abandon(self) -> None:
        """Forget all answers, which must not be opened."""
        self.survey.lost |= dict.fromkeys(self.survey.answers, "unsummed")
        self.survey.answers, self.masked = {}, None

    def result(self, secret_of: Callable[[str, str], int]) -> OpenedSum | None:
        """Add up the answers, with noise where the run has some; return None where the server sees each answer.

        Args:
            secret_of: function that returns what the noise follows from, given the secret of the survey and all that
                clients sent.
        """
        if self._setting.answer_sum is None:
            return None
        request, answers = self.survey.request, self.survey.answers
        layout = self._setting.answer_layout(Question(**request.question) if request.question else None)
        if self.masked is not None:
            completed = list(answers)
            vector, used, reason = self.masked.total()
            self.survey.opened(used, completed)
            content = self.masked.bodies()
        else:
            vector, reason = (sum(map(layout.vector, answers.values())) if answers else None), "nobody has answered"
            content = [[client, answers[client]] for client in sorted(answers)]
        if vector is None:
            return OpenedSum(None, reason)
        assert isinstance(vector, np.ndarray)
        federation = self._setting.federation(1)
        if layout.server_noise is not None:
            # The noise depends on all messages: two sums with the same noise would give away their difference. Decoding a
            # message gives its sums in any order, and two noises of one sum would give away more of it than one.
            text = json.dumps([self.number, content], sort_keys=True)
            federation = replace(federation, secret=secret_of(self.secret, text))
        totals = layout.totals(vector, federation, self.number)
        return OpenedSum(totals, "", layout.deviations, layout.grid, layout.least_examples)


def survey_of(timer: int) -> int:
    """Return the number of the survey that a timer ends, or one phase of."""
    return (-1 - timer) % _PHASES


def facts_of(surveys: Collection[OpenSurvey]) -> dict[str, Any]:
    """Return the state of surveys as plain values."""
    return {
        "tasks": sorted([*pair, opened.number] for opened in surveys for pair in opened.tasks.items()),
        "open": [[opened.survey.facts(), opened.order.json()] for opened in surveys],
        "sums": [[opened.number, opened.masked.facts()] for opened in surveys if opened.masked is not None],
        "secrets": [[opened.number, opened.secret] for opened in surveys if opened.secret],
        "told": [[opened.number, list(opened.inputs.items())] for opened in surveys if opened.inputs],
    }


def restored(facts: Mapping[str, Any], setting: RunSetting, read: Callable[[int, str], bytes]) -> Iterator[OpenSurvey]:
    """Yield the surveys that `facts_of` saved.

    Args:
        facts: values that it returned.
        setting, read: as for `OpenSurvey`.
    """
    secrets, sums, inputs = (dict(facts.get(name, ())) for name in ("secrets", "sums", "told"))
    for saved, order in facts["open"]:
        survey = Survey.of(saved, setting.seed)
        number = survey.request.number
        opened = OpenSurvey(setting, survey, Assignment.read(order), secrets.get(number, ""), read)
        if opened.masked is not None and number in sums:
            opened.masked.restore(sums[number])
        opened.inputs = dict(inputs.get(number, ()))
        opened.tasks = {task: client for task, client, of in facts["tasks"] if of == number}
        survey.open.update(opened.tasks.values())
        yield opened
