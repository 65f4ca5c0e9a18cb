"""Read the replies of a ClientApp as reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from flwr.app import ArrayRecord, MetricRecord, RecordDict  # pyright: ignore[reportMissingImports]
from safetensors import SafetensorError
from safetensors.torch import load

from turnout.core.types import Report
from turnout.deployment.wire.format import WireError, encode, manifest
from turnout.deployment.wire.messages import Coding, ReportFormat, report_body
from turnout.flower.arrays import Arrays
from turnout.flower.loop import ORDER, example
from turnout.flower.options import Options


def formats(rule: Options, arrays: Arrays) -> dict[str, ReportFormat]:
    """Return what reports look like, by phase."""
    algorithm, model = rule.algorithm, SimpleNamespace(layout=arrays.layout, initial=arrays.initial)
    coding, nulls = Coding.of(algorithm, rule.seed, cast("Any", model)), algorithm.aggregation.nulls_dropped
    bodies = {phase: report_body(_example(rule, arrays, phase)) for phase in algorithm.phases}
    return {phase: ReportFormat(manifest(load(body)), coding, nulls) for phase, body in bodies.items()}


def _example(rule: Options, arrays: Arrays, phase: str) -> Report:
    """Return a report of a phase as a client sends it that did not move."""
    seen = {name: torch.zeros(1, dtype=torch.float64) for name in rule.losses(phase)}
    if rule.mod and "train" in rule.kinds(phase):
        report = example(rule.algorithm, arrays, phase, rule.seed)
        return replace(report, seen=report.seen | seen)
    one, length = np.ones(1, dtype=np.int64), arrays.layout.num_shared if phase == "train" else 0
    return Report(one, one, one, one, arrays.initial.new_zeros((1, length)), seen=seen)


def body_of(rule: Options, arrays: Arrays, phase: str, model: torch.Tensor, replies: Mapping[str, RecordDict]) -> bytes:
    """Return the report of a client, of its replies by the type of message.

    Raises:
        WireError: where the replies lack what the algorithm reads.
    """
    tensors = {f"seen.{name}": torch.tensor([value]).double() for name, value in _losses(rule, phase, replies).items()}
    train, metrics = replies.get("train"), metrics_of(replies[rule.kinds(phase)[-1]])
    if rule.mod and train is not None:
        body = train.config_records.get(ORDER, {}).get("report")
        if not isinstance(body, bytes):
            raise WireError("the reply is not one of the mod: write mods=[turnout.flower.mod(...)] in the ClientApp")
        try:
            return encode(load(body) | tensors)
        except SafetensorError as error:
            raise WireError(f"the reply of the mod cannot be read: {error}") from None
    num_steps, delta = 0.0, model[:0]
    if train is not None:
        received = arrays.vector(arrays.tensors(model))  # in the types of the arrays
        record = next(iter(train.array_records.values()), ArrayRecord())
        delta = arrays.vector(record.to_torch_state_dict()) - received
        if any(piece.reads_steps for piece in rule.algorithm.weighting):
            num_steps = _number(metrics, rule.steps)
    counts = {"num_examples": _number(metrics, rule.examples), "num_steps": num_steps}
    return encode({"delta": delta[None], **{k: torch.tensor([round(v)]) for k, v in counts.items()}, **tensors})


def _losses(rule: Options, phase: str, replies: Mapping[str, RecordDict]) -> dict[str, float]:
    """Return what follows from the metrics of a client, by name."""
    others, values = {"loss": ("train", rule.train_loss), "start_loss_rms": ("evaluate", f"{rule.loss}_rms")}, {}
    for name in rule.losses(phase):
        kind, metric = others.get(name, ("evaluate", rule.loss))
        values[name] = _number(metrics := metrics_of(replies[kind]), metric)
        if name == "appeal_gap":
            required = rule.requirement
            values[name] -= _number(metrics, required) if isinstance(required, str) else required or 0.0
    return values


def metrics_of(content: RecordDict) -> MetricRecord:
    """Return the metrics of a reply."""
    return next(iter(content.metric_records.values()), MetricRecord())


def _number(metrics: MetricRecord, name: str) -> float:
    """Return one number of a record of metrics; raise `WireError` where there is none of this name."""
    value = metrics.get(name)
    if not isinstance(value, int | float):
        names = ", ".join(metrics) or "nothing"
        raise WireError(f"the metrics of the reply hold {names}, and the rule reads the number {name!r}")
    return float(value)


def mean(metrics: list[MetricRecord], examples: str) -> MetricRecord:
    """Return the mean of metrics by examples, of the numbers that all have."""
    metrics = [record for record in metrics if record.get(examples)]  # a report that was sent again has none
    names = set[str]().union(*metrics).intersection(*metrics) - {examples}
    numbers = [name for name in sorted(names) if all(isinstance(record[name], int | float) for record in metrics)]
    weights = [record[examples] for record in metrics]
    return MetricRecord(
        {name: float(np.average([record[name] for record in metrics], weights=weights)) for name in numbers}
    )
