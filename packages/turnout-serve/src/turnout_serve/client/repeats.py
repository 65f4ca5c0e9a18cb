"""Decline tasks whose answers a server could subtract from earlier ones."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from turnout.protocol.secure.masking import Masking
from turnout.protocol.secure.overlap import as_bits, is_too_similar
from turnout.protocol.survey import FIRST_TASK, SURVEYS
from turnout_serve.client.sum_history import OpenedSum, SumHistory
from turnout_serve.client.survey_worker import MOST_SUMS
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import WireError, digest
from turnout_serve.wire.surveys import question_of, survey_of

log = logging.getLogger("turnout.client")

_MEMBERS = {"share": "neighbours", "mask": "senders", "open": "there"}
"""Input of each phase of a sum that lists its clients, unless ``clients`` does."""


class Repeats:
    """Decide which tasks a client declines because of what it has sent before, and record what it sends.

    A client masks its update once for a step. It answers a question once, unless its owner allows repeats or answers have
    noise. It contributes to no two sums of the same kind whose groups differ, but by fewer than `min_clients` members; of
    updates, where they start from the same model.

    Args:
        masking: options of the run's secure sum; None without one.
        widths: see `turnout.evaluation.queries.Question.shapes`.
        noised: True if answers have noise, which protects them however often they are given.
        allowed: True if the owner of the data allows more than one answer to a question.

    Attributes:
        history: what the client has sent.
    """

    def __init__(self, masking: Masking | None, widths: Mapping[str, int], *, noised: bool, allowed: bool) -> None:
        self._masking, self._widths, self._noised, self._allowed = masking, widths, noised, allowed
        self.history = SumHistory()
        self._begun: dict[
            int, OpenedSum
        ] = {}  # sums whose first message was sent, by survey; -1 is that of the training

    def declines(self, task: Assignment) -> str | None:
        """Return why the client declines a task, one of `turnout.protocol.survey.DECLINES`; None where it does not."""
        if task.phase in _MEMBERS:
            return self._declines_group(task)
        if task.phase in SURVEYS:
            free = self._noised or self._allowed
            return "answered" if not free and self._question(task) in self.history.answered else None
        if task.phase == "train" and (task.version, task.repeat) in self.history.masked:
            self.history.supersede(task.model)
            log.warning(
                "a masked update for this step was sent before: the server was restored from a copy",
                extra={"version": task.version},
            )
            return "answered"
        return None

    def _declines_group(self, task: Assignment) -> str | None:
        begun, group = self._begun.get(_sum_of(task)), self._group(task)
        if begun is None or group is None or self._masking is None:
            return None
        least = self._masking.min_clients
        if not any(
            is_too_similar(group, other.group, least) for other in self.history.opened if self._recalls(begun, other)
        ):
            return None
        log.warning(
            "the group of this sum differs from that of an earlier one by fewer clients than a sum has",
            extra={"kind": begun.kind, "version": task.version, "min_clients": least},
        )
        return "similar group"

    def _recalls(self, sum_: OpenedSum, other: OpenedSum) -> bool:
        """Return whether the difference of two sums could tell something of the clients that are in one of them alone."""
        if sum_.kind != other.kind or (self._noised and sum_.kind != "train"):
            return False
        if sum_.kind != "train":  # all sums of a kind have numbers in common, such as the number of examples
            return True
        return sum_.what == other.what and (sum_.version == other.version or sum_.what in self.history.superseded)

    def _group(self, task: Assignment) -> int | None:
        """Return the other clients of a sum; None if the task does not list all of them."""
        assert self._masking is not None
        sparse = self._masking.degree is not None
        name = "clients" if sparse and task.phase != "share" else _MEMBERS[task.phase]
        try:
            clients = task.tensors()[name][0].tolist()
            if sparse and name != "clients" and len(clients) == self._masking.even_degree:
                return None
            return as_bits(clients)
        except (KeyError, ValueError, TypeError, IndexError, WireError):  # the masking refuses it with a reason
            return None

    def begins(self, task: Assignment) -> None:
        """Note what the sum is about whose first message was computed, whatever the server says of it later."""
        if task.phase == "train" or task.phase in SURVEYS:
            while len(self._begun) > MOST_SUMS:
                del self._begun[next(iter(self._begun))]
            self._begun[_sum_of(task)] = self._about(task)

    def sends(self, task: Assignment) -> None:
        """Record what the report on a task gives away, before it is sent; a report may be sent again."""
        if task.phase in SURVEYS and self._masking is None:
            self._answers(self._question(task))
        elif task.phase == "mask" and task.task < FIRST_TASK:
            self.history.mask(task.version, task.repeat, self._begun.get(-1, self._about(task)).what)
        elif task.phase == "open":
            # A process that starts again knows the task alone.
            about = self._begun.get(_sum_of(task), self._about(task))
            if about.kind != "train":
                self._answers(about.what)
            if (group := self._group(task)) is not None:
                self.history.open(replace(about, group=group))

    def _answers(self, question: str) -> None:
        if not self._noised:
            self.history.answer(question)

    def _about(self, task: Assignment) -> OpenedSum:
        """Return what the sum of a task is about, without its group."""
        if task.phase not in SURVEYS and task.task < FIRST_TASK:
            return OpenedSum("train", task.model, task.version)
        return OpenedSum("query" if "question" in task.told else "evaluate", self._question(task), task.version)

    def _question(self, task: Assignment) -> str:
        """Return a digest of what a task of a survey asks for: an evaluation of a model, or the sums of a question."""
        if "question" not in task.told:
            return digest(f"evaluate {task.model}".encode())
        return digest(repr(("query", *question_of(task).summed(self._widths))).encode())


def _sum_of(task: Assignment) -> int:
    """Return the number of the survey of a task; -1 for training, and for a task that does not say."""
    try:
        return survey_of(task) if task.task >= FIRST_TASK or task.phase in SURVEYS else -1
    except WireError:
        return -1
