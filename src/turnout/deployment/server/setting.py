"""Prepare an experiment for a server, and check that it can be deployed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

from turnout.configuration import Configuration
from turnout.core.checks import ConfigurationError
from turnout.core.system import memory_bytes
from turnout.core.types import Federation, State
from turnout.data.federated import Shards
from turnout.data.transforms import Transform, bake
from turnout.deployment.client.computer import Computer
from turnout.deployment.client.worker import Worker
from turnout.deployment.server.deployable import check, within_delta
from turnout.deployment.wire.assignment import Assignment, plain_row
from turnout.deployment.wire.format import length, model_tensors, read_manifest
from turnout.deployment.wire.messages import Coding, ReportFormat
from turnout.deployment.wire.phases import PhaseFormat, input_shapes
from turnout.deployment.wire.privacy import ANSWERS, Visible, visible
from turnout.deployment.wire.surveys import SumsFormat, question_of
from turnout.engine.objective import Objective
from turnout.engine.trial import try_model
from turnout.evaluation.evaluate import columns, evaluate
from turnout.evaluation.queries import Question
from turnout.evaluation.sums import SumsForm, metric_sums
from turnout.pieces.base.algorithm import Algorithm
from turnout.protocol.answer_sum import AnswerLayout, AnswerSum
from turnout.protocol.pace import Pace, Phase
from turnout.protocol.published import Published
from turnout.protocol.secure.masked_sum import form_of, form_of_keys
from turnout.protocol.survey import FIRST_TASK, SURVEYS
from turnout.record.describe import describe
from turnout.simulation.trained import Trained


@dataclass(frozen=True, eq=False, kw_only=True)
class RunSetting:
    """The settings of a run on a server that only has the parameters of a model, and cannot compute it.

    Attributes:
        algorithm, pace, rounds, seed, evaluate_every, evaluate_share, record_weights: of the experiment.
        initial: the first model's shared part, ``[P]``.
        reports: formats of reports, by phase.
        sums: the sums of an evaluation by clients.
        widths: sizes of an example; see `turnout.evaluation.queries.Question.shapes`.
        heartbeat: seconds between two heartbeats of a client at work.
        task_deadline: maximum age of a task in seconds; None has no limit.
        description: the experiment as plain values.
        trained: names of the parameters of the model, for exports of a checkpoint.
        score: returns the columns of an evaluation, given version and parameters; None where the server evaluates nothing.
    """

    algorithm: Algorithm
    pace: Pace
    rounds: int
    seed: int
    evaluate_every: int
    evaluate_share: float = 0.0
    record_weights: bool
    initial: torch.Tensor
    reports: dict[Phase, ReportFormat]
    sums: SumsForm = field(default_factory=SumsForm)
    widths: dict[str, int] = field(default_factory=dict)
    heartbeat: float
    task_deadline: float | None = None
    description: dict[str, Any]
    trained: Trained
    score: Callable[[int, torch.Tensor], dict[str, float]] | None = None

    def evaluate(self, version: int, params: torch.Tensor, shared: State) -> dict[str, float]:
        """Evaluate the model of a version, with its shared vectors; empty where the server has no test examples."""
        del shared
        return {} if self.score is None else self.score(version, params)

    def expected(self, task: Assignment) -> ReportFormat | PhaseFormat | SumsFormat:
        """Return the format of a report on a task."""
        if task.task >= FIRST_TASK or task.phase in SURVEYS:
            return self.answer_format(task)
        aggregation = self.algorithm.aggregation
        if task.phase in aggregation.phases:
            return PhaseFormat(aggregation.form(task.phase, input_shapes(task), len(self.initial)))
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
            return PhaseFormat(form_of(task.phase, layout.masking.bits, input_shapes(task), layout.size))
        noised = self.answer_sum is not None
        if task.phase == "query":
            return SumsFormat.of_query(question_of(task), self.widths, noised)
        return SumsFormat.of_evaluation(self.sums, noised)

    def answer_layout(self, question: Question | None) -> AnswerLayout:
        """Return the layout of the answers to a query, or to an evaluation, as vectors that are summed.

        Raises:
            ConfigurationError: for a question whose answers cannot be summed.
        """
        assert self.answer_sum is not None
        if question is None:
            return self.answer_sum.layout(self.sums.shapes, labelled=self.sums.metric == "accuracy")
        return self.answer_sum.of_query(question, self.widths)

    def federation(self, num_clients: int) -> Federation:
        """Return the federation of a number of clients, as the server knows it."""
        initial = self.initial
        return Federation(num_clients, len(initial), device=initial.device, dtype=initial.dtype, seed=self.seed)

    def check_clients(self, min_clients: int, max_clients: int | None) -> int:
        """Return how many clients may enrol.

        Args:
            min_clients: number of clients when training begins.
            max_clients: maximum number of clients; None is as many as fit into memory, up to 100,000.

        Raises:
            ConfigurationError: where the algorithm cannot begin with so few, or its state does not fit for so many.
        """
        algorithm = self.algorithm
        algorithm.selection.check(min_clients)
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Setting(RunSetting):
    """The settings of a run on a server that has the model.

    Attributes:
        objective: model and loss.
        test: test examples of the server, and their transforms; None where it has none, or where models are personal.
        visible: what the server sees of a client.
    """

    objective: Objective
    test: tuple[Shards, tuple[Transform, ...]] | None
    visible: tuple[Visible, ...]

    @classmethod
    def of(
        cls,
        experiment: Configuration,
        heartbeat: float = 10.0,
        max_norm: float | Literal["auto"] | None = "auto",
        task_deadline: float | None = None,
    ) -> Setting:
        """Take the settings of an experiment, and do each task of one client once.

        Args:
            experiment: what is run.
            heartbeat: seconds between two heartbeats of a client at work.
            max_norm: see `turnout.deployment.server.options.Options`.
            task_deadline: maximum age of a task in seconds; None has no limit.

        Raises:
            ConfigurationError: for options that have no meaning between real machines.
        """
        check(experiment)
        computer = _tried_computer(experiment)
        algorithm, objective = experiment.algorithm, computer.objective
        initial = objective.initial[: objective.layout.num_shared]
        max_norm = norm_limit(initial, max_norm)
        return cls(
            algorithm=algorithm,
            pace=experiment.pace,
            rounds=experiment.rounds,
            seed=experiment.seed,
            evaluate_every=experiment.evaluate_every,
            evaluate_share=experiment.evaluate_share,
            record_weights=experiment.record_weights,
            initial=initial,
            reports={
                phase: _tried_report(computer, phase, initial, max_norm)
                for phase in algorithm.phases
                if phase not in algorithm.aggregation.phases
            },
            sums=experiment.sums_form(),
            widths=experiment.data.widths,
            objective=objective,
            test=_test(experiment),
            heartbeat=heartbeat,
            task_deadline=task_deadline,
            description=describe(experiment),
            visible=visible(algorithm) + (ANSWERS if experiment.evaluate_share else ANSWERS[1:]),
            trained=Trained.of_parts(experiment, objective, initial),
        )

    def federation(self, num_clients: int) -> Federation:
        """Return the federation of a number of clients, with the adapters of the model."""
        return replace(super().federation(num_clients), adapters=self.objective.network.adapters)

    def evaluate(self, version: int, params: torch.Tensor, shared: State) -> dict[str, float]:
        """Evaluate a model on the server's test examples."""
        del version
        if self.test is None:
            return {}
        shards, transforms = self.test
        self.objective.network.rebase(shared)
        return columns(evaluate(self.objective, params, shards, transforms).mean(), "test")


def _tried_computer(experiment: Configuration) -> Computer:
    """Return the model, algorithm and data of an experiment, after trying the model and the metrics on a minibatch."""
    computer, algorithm = Computer(experiment), experiment.algorithm
    measures = bool(algorithm.measurements or algorithm.selection.measurements)
    x, y = try_model(computer.clients(0, 0), getattr(algorithm.local, "batch_size", 16), measures)
    if experiment.metrics:
        objective = computer.objective
        metric_sums(experiment.named_metrics(), *objective.judged(objective.initial, iter([(x, y)]))[2:])
    return computer


def norm_limit(initial: torch.Tensor, max_norm: float | Literal["auto"] | None) -> float | None:
    """Return the maximum norm of an update; ``"auto"`` is 100 times that of the first model, or of ones if that is larger."""
    return 100.0 * max(length(initial), math.sqrt(len(initial))) if max_norm == "auto" else max_norm


def _tried_report(computer: Computer, phase: Phase, initial: torch.Tensor, max_norm: float | None) -> ReportFormat:
    """Return the format of the report that the client with the fewest examples makes in a phase."""
    algorithm = computer.experiment.algorithm
    num_clients = max(computer.shards.num_clients, getattr(algorithm.selection, "cohort_size", 1))
    federation = replace(computer.federation, num_clients=num_clients)
    row = int(computer.shards.sizes.argmin())
    rates = np.full(federation.num_clients, 0.5)  # of clients; the state is only used here
    state = algorithm.init(initial, Federation(**{**vars(federation), "rates": rates}))
    inputs = plain_row(algorithm.per_client_inputs(np.array([row]), state, federation), 0)
    task = Assignment(0, -1 if phase == "prepare" else 0, phase, 0, "", 0, 1.0, inputs)
    worker = Worker(computer, row)
    model = model_tensors(initial, algorithm.shared(state), algorithm.broadcast_dtype(initial.dtype))
    done = worker.do(row, task, model, worker.first_memory())
    if done is None:
        raise ConfigurationError("a client's first update holds NaN or infinity: write a smaller lr")
    coding = Coding.of(algorithm, computer.experiment.seed, computer.objective)
    return ReportFormat(read_manifest(done[0]), coding, algorithm.aggregation.nulls_dropped, max_norm)


def _test(experiment: Configuration) -> tuple[Shards, tuple[Transform, ...]] | None:
    """Return the test examples of the server, and their transforms."""
    data = experiment.data
    held_out = data.test or (data.client_test if Published(experiment.algorithm).data else None)
    if held_out is None or experiment.algorithm.personal is not None or not len(held_out.x):
        return None
    x, later = bake(data.transforms, held_out.x)
    return Shards(x, held_out.y, held_out.offsets).to(torch.device(experiment.device)), later


def _bytes(algorithm: Algorithm, initial: torch.Tensor, federation: Federation) -> int:
    """Return the bytes of the server's state for a number of clients."""
    state = algorithm.init(initial, federation)
    return sum(tensor.nbytes for slot in state.slots.values() for tensor in slot.values())
