"""Settings of a run on a server, and the formats of what its clients send."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch

from turnout.base.algorithm import Algorithm
from turnout.base.selection import check_selection
from turnout.core.checks import ConfigurationError
from turnout.core.system import memory_bytes
from turnout.core.types import Adapter, Federation, State
from turnout.evaluation.queries import Question
from turnout.evaluation.sums import SumsForm
from turnout.protocol.answer_sum import AnswerLayout, AnswerSum
from turnout.protocol.pace import Pace, Phase
from turnout.protocol.secure.masked_vectors import form_of, form_of_keys
from turnout.protocol.survey import FIRST_TASK, SURVEYS
from turnout.record.trained import Trained
from turnout_serve.server.run.deployable import within_delta
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import length
from turnout_serve.wire.messages import PhaseFormat, ReportFormat, input_shapes
from turnout_serve.wire.surveys import SumsFormat, layout_of, question_of


@dataclass(frozen=True, eq=False, kw_only=True)
class RunSetting:
    """The settings of a run on a server, which may have only the parameters of a model.

    Attributes:
        algorithm, pace, rounds, seed, evaluate_every, evaluate_share, record_weights: of the experiment.
        initial: the first model's shared part, ``[P]``.
        adapters: the low-rank adapters of the shared part.
        reports: formats of reports, by phase.
        sums: the sums of an evaluation by clients.
        widths: sizes of an example; see `turnout.evaluation.queries.Question.shapes`.
        heartbeat: seconds between two heartbeats of a client at work.
        task_deadline: maximum age of a task in seconds; None has no limit.
        max_examples: maximum number of examples in the answer to an evaluation or query; None is 2^40.
        min_answers: number of clients that must answer an evaluation or query before its figures are published.
        description: the experiment as plain values.
        trained: names of the parameters of the model, for exports of a checkpoint.
        score: function that returns the columns of an evaluation, given the version, parameters and shared vectors of a
            model; None where the server evaluates nothing.
    """

    algorithm: Algorithm
    pace: Pace
    rounds: int
    seed: int
    evaluate_every: int
    evaluate_share: float = 0.0
    record_weights: bool
    initial: torch.Tensor
    adapters: tuple[Adapter, ...] = ()
    reports: dict[Phase, ReportFormat]
    sums: SumsForm = field(default_factory=SumsForm)
    widths: dict[str, int] = field(default_factory=dict)
    heartbeat: float
    task_deadline: float | None = None
    max_examples: int | None = None
    min_answers: int = 3
    description: dict[str, Any]
    trained: Trained
    score: Callable[[int, torch.Tensor, State], dict[str, float]] | None = None

    def evaluate(self, version: int, params: torch.Tensor, shared: State) -> dict[str, float]:
        """Evaluate the model of a version, with its shared vectors; empty where the server has no test examples."""
        return {} if self.score is None else self.score(version, params, shared)

    def expected(self, task: Assignment) -> ReportFormat | PhaseFormat | SumsFormat:
        """Return the format of a report on a task."""
        if task.task >= FIRST_TASK or task.phase in SURVEYS:
            return self.answer_format(task)
        extra = self.algorithm.aggregation.extra
        if extra is not None and task.phase in extra.names:
            return PhaseFormat(form_of(task.phase, extra.masking.code.bits, input_shapes(task), len(self.initial)))
        return self.reports[task.phase]

    @cached_property
    def answer_sum(self) -> AnswerSum | None:
        """The sum of the answers of clients; None if the server sees the answer of each client."""
        return AnswerSum.of(self.algorithm)

    def answer_format(self, task: Assignment) -> SumsFormat | PhaseFormat:
        """Return the format of a message on the task of an evaluation or query."""
        if self.answer_sum is not None and self.answer_sum.masking is not None:
            if task.phase in SURVEYS:
                return PhaseFormat(form_of_keys())
            layout = self.answer_layout(question_of(task) if "question" in task.told else None)
            return PhaseFormat(form_of(task.phase, layout.masking.code.bits, input_shapes(task), layout.size))
        noised = self.answer_sum is not None
        if task.phase == "query":
            answers = SumsFormat.of_query(question_of(task), self.widths, noised)
        else:
            answers = SumsFormat.of_evaluation(self.sums, noised)
        return answers if noised else replace(answers, max_examples=self.max_examples)

    def answer_layout(self, question: Question | None) -> AnswerLayout:
        """Return the layout of the answers to a query, or to an evaluation, as vectors that are summed.

        Raises:
            ConfigurationError: if answers to the question cannot be summed.
        """
        assert self.answer_sum is not None
        return layout_of(self.answer_sum, question, self.sums, self.widths)

    def federation(self, num_clients: int) -> Federation:
        """Return the federation of a number of clients, as the server knows it."""
        initial = self.initial
        tensors = {"device": initial.device, "dtype": initial.dtype}
        return Federation(num_clients, len(initial), seed=self.seed, adapters=self.adapters, **tensors)

    def most_numbers(self, min_clients: int, max_clients: int) -> int:
        """Return how many clients may ever enroll, of whom `max_clients` are not removed."""
        try:
            _bytes(self.algorithm, self.initial, self.federation(min_clients + 1))
        except ConfigurationError:  # a piece has an option for each client
            return max_clients
        return within_delta(self.algorithm, 1 << 31, explicit=False)

    def check_clients(self, min_clients: int, max_clients: int | None) -> int:
        """Return how many clients may enroll.

        Args:
            min_clients: number of clients when training begins.
            max_clients: maximum number of clients; None is as many as fit into memory, up to 100,000.

        Raises:
            ConfigurationError: if the algorithm cannot begin with so few, or its state does not fit for so many.
        """
        algorithm = self.algorithm
        check_selection(algorithm.selection, min_clients)
        self.pace.bind(min_clients, algorithm)
        first = _bytes(algorithm, self.initial, self.federation(min_clients))
        try:
            per_client = _bytes(algorithm, self.initial, self.federation(min_clients + 1)) - first
        except ConfigurationError as error:  # a piece has an option for each client
            if max_clients not in (None, min_clients):
                raise ConfigurationError(f"max_clients: got {max_clients}, but {error}: leave it out") from None
            return min_clients
        most = 100_000 if max_clients is None else max_clients
        most = within_delta(algorithm, most, explicit=max_clients is not None)
        if most < min_clients:
            raise ConfigurationError(f"max_clients: got {most}, needed at least min_clients, {min_clients}")
        room = memory_bytes() / 2
        if first + per_client * (most - min_clients) > room:
            fit = min_clients + max(0, int((room - first) // per_client))
            raise ConfigurationError(
                f"{algorithm.name} keeps {per_client:,} bytes of every client on the server; {most:,} clients take "
                f"{per_client * most / 2**30:,.1f} GiB, and half of this machine's memory is {room / 2**30:,.1f} GiB: write "
                f"--max-clients {fit} or less, or take an algorithm that keeps less"
            )
        return most


def norm_unit(initial: torch.Tensor) -> float:
    """Return the norm of the first model, or of a vector of ones if that is larger."""
    return max(float(length(initial)), math.sqrt(len(initial)))


def norm_limit(initial: torch.Tensor, max_norm: float | Literal["auto"] | None) -> float | None:
    """Return the maximum norm of an update in any run; ``"auto"`` is 100 times `norm_unit`."""
    return 100.0 * norm_unit(initial) if max_norm == "auto" else max_norm


def _bytes(algorithm: Algorithm, initial: torch.Tensor, federation: Federation) -> int:
    """Return the bytes of the server's state for a number of clients."""
    state = algorithm.init(initial, federation)
    return sum(tensor.nbytes for slot in state.slots.values() for tensor in slot.values())
