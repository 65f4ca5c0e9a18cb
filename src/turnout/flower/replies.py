"""Read the replies of a ClientApp as reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from flwr.app import ArrayRecord, MetricRecord, RecordDict  # pyright: ignore[reportMissingImports]
from safetensors import SafetensorError
from safetensors.torch import load

from turnout.core.types import Report, State, Task
from turnout.deployment.wire.format import Assignment, WireError, encode, manifest
from turnout.deployment.wire.messages import Coding, ReportFormat, report_body
from turnout.flower.arrays import Arrays
from turnout.flower.client import Direction, work
from turnout.flower.options import Options


class Replies:
    """What the replies of a run's clients mean.

    Args:
        rule: the options of the run.
        arrays: of its model.

    Attributes:
        formats: what reports look like, by phase.
    """

    def __init__(self, rule: Options, arrays: Arrays) -> None:
        self._rule, self._arrays, algorithm = rule, arrays, rule.algorithm
        coding, layout = None, arrays.layout
        if rule.mod and algorithm.guard:
            model = cast("Any", _Model(layout, arrays.vector(arrays.first)))
            coding = Coding.of(algorithm, rule.seed, model)
        phases = [phase for phase in algorithm.phases if phase not in algorithm.aggregation.phases]
        bodies = {phase: load(report_body(self._example(phase))) for phase in phases}
        nan = algorithm.aggregation.nulls_dropped
        self.formats = {phase: ReportFormat(manifest(body), coding, nan) for phase, body in bodies.items()}

    def _example(self, phase: str) -> Report:
        """Return a report of a phase, as a client sends it that did not move."""
        layout, seen = (
            self._arrays.layout,
            {name: torch.zeros(1, dtype=torch.float64) for name in self._rule.losses(phase)},
        )
        params = self._arrays.vector(self._arrays.first)[: layout.num_shared]
        if self._rule.mod and "train" in self._rule.kinds(phase):
            shared = {name: torch.zeros_like(params) for name in self._rule.algorithm.keeps}
            task = Task(params, 0, self._rule.seed, phase, shared)
            report = work(self._rule.algorithm, self._arrays, _Still(), 0, task, {})[0]
            return replace(report, seen=report.seen | seen)
        one = np.ones(1, dtype=np.int64)
        return Report(one, one, one, one, params.new_zeros((1, len(params) if phase == "train" else 0)), seen=seen)

    def body(self, task: Assignment, model: torch.Tensor, replies: Mapping[str, RecordDict]) -> bytes:
        """Return the report of a client as bytes; raise `WireError` where its replies lack what the algorithm reads."""
        rule, train = self._rule, replies.get("train")
        tensors: State = {f"seen.{name}": value for name, value in self._losses(task.phase, replies).items()}
        record = None if train is None else next(iter(train.config_records.values()), {}).get("report")
        if rule.mod and train is not None:
            if not isinstance(record, bytes):
                raise WireError(
                    "the reply is not one of the mod: write mods=[turnout.flower.mod(...)] in the ClientApp"
                )
            try:
                return encode(load(record) | tensors) if tensors else record
            except SafetensorError as error:
                raise WireError(f"the reply of the mod cannot be read: {error}") from None
        metrics, num_steps, delta = metrics_of(replies[rule.kinds(task.phase)[-1]]), 0, model[:0]
        if train is not None:
            arrays = next(iter(train.array_records.values()), ArrayRecord())
            received = self._arrays.vector(self._arrays.tensors(model))  # in the types of the arrays
            delta = self._arrays.vector(arrays.to_torch_state_dict()) - received
            if any(piece.reads_steps for piece in rule.algorithm.weighting):
                num_steps = round(number(metrics, rule.steps))
        counts = {"num_examples": round(number(metrics, rule.examples)), "num_steps": num_steps}
        return encode({"delta": delta[None], **{k: torch.tensor([v]) for k, v in counts.items()}, **tensors})

    def _losses(self, phase: str, replies: Mapping[str, RecordDict]) -> State:
        """Return what follows from the metrics of a client, float64 ``[1]`` by name."""
        rule = self._rule
        scores = metrics_of(replies.get("evaluate", RecordDict()))

        def gap() -> float:
            required = rule.requirement
            return number(scores, rule.loss) - (
                number(scores, required) if isinstance(required, str) else required or 0.0
            )

        read: dict[str, Callable[[], float]] = {
            "start_loss": lambda: number(scores, rule.loss),
            "start_loss_rms": lambda: number(scores, f"{rule.loss}_rms"),
            "appeal_gap": gap,
            "loss": lambda: number(metrics_of(replies["train"]), rule.train_loss),
        }
        return {name: torch.tensor([read[name]()], dtype=torch.float64) for name in rule.losses(phase)}


class _Still:
    """A training loop that does not move."""

    examples = 1

    def __call__(self, params: torch.Tensor, direction: Direction, stay: bool = False) -> tuple[torch.Tensor, int]:
        del stay
        direction(torch.zeros_like(params), params)
        return params, 1


class _Model:
    """What a compression reads of a model."""

    def __init__(self, layout: Any, initial: torch.Tensor) -> None:
        self.layout, self.initial = layout, initial


def metrics_of(content: RecordDict) -> MetricRecord:
    """Return the metrics of a reply."""
    return next(iter(content.metric_records.values()), MetricRecord())


def number(metrics: MetricRecord, name: str) -> float:
    """Return one number of a record of metrics; raise `WireError` where there is none of this name."""
    value = metrics.get(name)
    if not isinstance(value, int | float):
        names = ", ".join(metrics) or "nothing"
        raise WireError(f"the metrics of the reply hold {names}, and the rule reads the number {name!r}")
    return float(value)


def mean(metrics: list[MetricRecord], examples: str) -> MetricRecord:
    """Return the mean of metrics by examples, of those that all have."""
    metrics = [record for record in metrics if examples in record]  # a report that was sent again has none
    weights = [float(record[examples]) for record in metrics]
    names = {name for record in metrics for name, value in record.items() if isinstance(value, int | float)} - {
        examples
    }
    names = [name for name in sorted(names) if all(name in record for record in metrics)] if sum(weights) else []
    columns = {name: [float(record[name]) for record in metrics] for name in names}
    return MetricRecord({name: float(np.average(column, weights=weights)) for name, column in columns.items()})
