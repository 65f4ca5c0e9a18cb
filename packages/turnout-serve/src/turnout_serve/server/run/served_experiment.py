"""Prepare an experiment for a server: check that it can be deployed, and do each task once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import torch

from turnout.configuration import Configuration
from turnout.core.checks import ConfigurationError
from turnout.core.types import Federation, State
from turnout.data.shards import Shards
from turnout.data.transforms import Transform, bake
from turnout.engine.objective import Objective
from turnout.engine.trial import try_model
from turnout.evaluation.evaluate import columns, evaluate
from turnout.evaluation.sums import metric_sums
from turnout.protocol.counts import CountLimits
from turnout.protocol.pace import Phase
from turnout.protocol.published import Published
from turnout.record.describe import describe
from turnout.record.trained import Trained
from turnout_serve.client.computer import Computer
from turnout_serve.client.worker import Worker
from turnout_serve.server.run.deployable import check
from turnout_serve.server.run.setting import RunSetting, norm_limit
from turnout_serve.wire.assignment import Assignment, plain_row
from turnout_serve.wire.format import model_tensors, read_manifest
from turnout_serve.wire.messages import Coding, ReportFormat
from turnout_serve.wire.privacy import ANSWERS, Visible, visible

_OF_EXPERIMENT = ("pace", "rounds", "seed", "evaluate_every", "evaluate_share", "record_weights")


class ServedExperiment(NamedTuple):
    """An experiment whose tasks were tried on this server, which has the model.

    Attributes:
        setting: the settings of the run.
        objective: model and loss.
        visible: figures that the server sees of a client.
    """

    setting: RunSetting
    objective: Objective
    visible: tuple[Visible, ...]

    @classmethod
    def of(
        cls,
        experiment: Configuration,
        heartbeat: float = 10.0,
        max_norm: float | Literal["auto"] | None = "auto",
        task_deadline: float | None = None,
        max_examples: int | None = None,
        min_answers: int = 3,
    ) -> ServedExperiment:
        """Take the settings of an experiment, and do each task of one client once.

        Args:
            experiment: what is run.
            heartbeat: seconds between two heartbeats of a client at work.
            max_norm, max_examples, min_answers: see `turnout_serve.server.options.Options`.
            task_deadline: maximum age of a task in seconds; None has no limit.

        Raises:
            ConfigurationError: if options have no meaning between real machines.
        """
        check(experiment)
        computer = _tried_computer(experiment)
        algorithm, objective = experiment.algorithm, computer.objective
        initial = objective.initial[: objective.layout.num_shared]
        test = _test(experiment)
        setting = RunSetting(
            algorithm=algorithm,
            **{name: getattr(experiment, name) for name in _OF_EXPERIMENT},
            initial=initial,
            adapters=objective.network.adapters,
            reports=_tried_reports(computer, initial, norm_limit(initial, max_norm), max_examples),
            sums=experiment.sums_form(),
            widths=experiment.data.widths,
            heartbeat=heartbeat,
            task_deadline=task_deadline,
            max_examples=max_examples,
            min_answers=min_answers,
            description=describe(experiment),
            trained=Trained.of(experiment, objective, initial),
            score=None if test is None else partial(_score, objective, *test),
        )
        return cls(setting, objective, visible(algorithm) + (ANSWERS if experiment.evaluate_share else ANSWERS[1:]))


def _score(
    objective: Objective, shards: Shards, transforms: tuple[Transform, ...], _: int, params: torch.Tensor, shared: State
) -> dict[str, float]:
    """Return the columns of the evaluation of a model on the server's test examples."""
    objective.network.rebase(shared)
    return columns(evaluate(objective, params, shards, transforms).mean(), "test")


def _tried_computer(experiment: Configuration) -> Computer:
    """Return the model, algorithm and data of an experiment, after trying the model and the metrics on a minibatch."""
    computer, algorithm = Computer(experiment), experiment.algorithm
    measures = bool(algorithm.measurements or algorithm.selection.measurements)
    x, y = try_model(
        computer.clients(0, 0), getattr(algorithm.local, "batch_size", 16), measures, experiment.data.num_classes
    )
    if experiment.metrics:
        objective = computer.objective
        metric_sums(experiment.named_metrics(), *objective.judged(objective.initial, iter([(x, y)]))[2:])
    return computer


def _tried_reports(
    computer: Computer, initial: torch.Tensor, max_norm: float | None, max_examples: int | None
) -> dict[Phase, ReportFormat]:
    """Return the format of the reports of each phase in which clients compute, with its limits."""
    algorithm = computer.experiment.algorithm
    # A private sum drops no report because of its client's data; its weights are bounded.
    counts = CountLimits(algorithm.local, None if algorithm.nulls_dropped else max_examples)
    return {
        phase: replace(_tried_report(computer, phase, initial), max_norm=max_norm, counts=counts)
        for phase in algorithm.phases
        if phase not in algorithm.extra_phases
    }


def _tried_report(computer: Computer, phase: Phase, initial: torch.Tensor) -> ReportFormat:
    """Return the format of the report, without limits, that the client with the fewest examples makes in a phase."""
    algorithm = computer.experiment.algorithm
    cohort = getattr(algorithm.selection, "cohort_size", 1)
    num_clients = max(computer.shards.num_clients, cohort if isinstance(cohort, int) else 1)
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
    return ReportFormat(read_manifest(done[0]), coding, algorithm.nulls_dropped)


def _test(experiment: Configuration) -> tuple[Shards, tuple[Transform, ...]] | None:
    """Return the test examples of the server, and their transforms; None where it has none, or where models are personal."""
    data = experiment.data
    held_out = data.test or (data.client_test if Published(experiment.algorithm).data else None)
    if held_out is None or experiment.algorithm.personal is not None or not len(held_out.x):
        return None
    x, later = bake(data.transforms, held_out.x)
    return Shards(x, held_out.y, held_out.offsets).to(torch.device(experiment.device)), later
