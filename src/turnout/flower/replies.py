"""Read the replies of a ClientApp as reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, MetricRecord, RecordDict  # pyright: ignore[reportMissingImports]
from safetensors.torch import load

from turnout.core.types import Report
from turnout.deployment.wire.format import WireError, encode, manifest
from turnout.deployment.wire.messages import Coding, ReportFormat, report_body
from turnout.flower.arrays import Arrays
from turnout.flower.loop import ORDER, example
from turnout.flower.options import Options


def formats(rule: Options, arrays: Arrays, max_norm: float | None) -> dict[str, ReportFormat]:
    """Return what reports look like, by phase."""
    objective: Any = arrays  # of which a coding reads the layout and the first model
    coding, nulls = Coding.of(rule.algorithm, rule.seed, objective), rule.algorithm.aggregation.nulls_dropped
    bodies = {phase: report_body(_example(rule, arrays, phase)) for phase in rule.algorithm.phases}
    return {phase: ReportFormat(manifest(load(body)), coding, nulls, max_norm) for phase, body in bodies.items()}


def _example(rule: Options, arrays: Arrays, phase: str) -> Report:
    """Return a report of a phase as a client sends it that did not move."""
    trains = "train" in rule.kinds(phase)
    report = example(rule.algorithm, arrays, phase, rule.seed) if trains else _report(arrays.shared[:0], 1, 1, {})
    return replace(report, seen=report.seen | _seen(dict.fromkeys(rule.losses(phase), 0.0)))


def body_of(rule: Options, arrays: Arrays, phase: str, model: torch.Tensor, replies: Mapping[str, RecordDict]) -> bytes:
    """Return the report of a client, of its replies by the type of message.

    Raises:
        WireError: where the replies lack what the algorithm reads, or cannot be read.
    """
    try:
        return _body(rule, arrays, phase, model, replies)
    except WireError:
        raise
    except Exception as error:  # records are bytes that a client wrote, and whatever these make raise is its own loss
        raise WireError(f"the reply cannot be read: {error!r}") from error


def _body(rule: Options, arrays: Arrays, phase: str, model: torch.Tensor, replies: Mapping[str, RecordDict]) -> bytes:
    losses, train = _losses(rule, phase, replies), replies.get("train")
    if rule.mod and train is not None:
        body = train.config_records.get(ORDER, {}).get("report")
        if not isinstance(body, bytes):
            raise WireError("the reply is not one of the mod: write mods=[turnout.flower.mod(...)] in the ClientApp")
        return encode(load(body) | {f"seen.{name}": value for name, value in _seen(losses).items()})
    metrics, num_steps, delta = metrics_of(replies[rule.kinds(phase)[-1]]), 0.0, model[:0]
    if train is not None:
        received = arrays.vector(arrays.tensors(model))  # in the types of the arrays
        record = next(iter(train.array_records.values()), ArrayRecord())
        delta = arrays.vector(record.to_torch_state_dict()) - received
        if any(piece.reads_steps for piece in rule.algorithm.weighting):
            num_steps = number(metrics, rule.steps)
    return report_body(_report(delta, number(metrics, rule.examples), num_steps, losses))


def _report(delta: torch.Tensor, num_examples: float, num_steps: float, losses: Mapping[str, float]) -> Report:
    """Return the report of one client, whose number and version the server knows."""
    examples, steps, zero = (np.array([round(value)], dtype=np.int64) for value in (num_examples, num_steps, 0))
    return Report(zero, zero, examples, steps, delta[None], seen=_seen(losses))


def _seen(losses: Mapping[str, float]) -> dict[str, torch.Tensor]:
    """Return numbers as the server reads them client by client."""
    return {name: torch.tensor([value], dtype=torch.float64) for name, value in losses.items()}


def _losses(rule: Options, phase: str, replies: Mapping[str, RecordDict]) -> dict[str, float]:
    """Return what follows from the metrics of a client, by name."""
    others, values = {"loss": ("train", rule.train_loss), "start_loss_rms": ("evaluate", f"{rule.loss}_rms")}, {}
    for name in rule.losses(phase):
        kind, metric = others.get(name, ("evaluate", rule.loss))
        values[name] = number(metrics := metrics_of(replies[kind]), metric)
        if name == "appeal_gap":
            required = rule.requirement
            values[name] -= number(metrics, required) if isinstance(required, str) else required or 0.0
    return values


def metrics_of(content: RecordDict) -> MetricRecord:
    """Return the metrics of a reply."""
    return next(iter(content.metric_records.values()), MetricRecord())


def number(metrics: MetricRecord, name: str) -> float:
    """Return one number of a record of metrics.

    Raises:
        WireError: where there is none of this name.
    """
    value = metrics.get(name)
    if not isinstance(value, int | float):
        names = ", ".join(metrics) or "nothing"
        raise WireError(f"the metrics of the reply hold {names}, and the rule reads the number {name!r}")
    return float(value)


def mean(metrics: Sequence[tuple[int, MetricRecord]], examples: str) -> MetricRecord:
    """Return the mean of metrics by numbers of examples, of the numbers that all have.

    Args:
        metrics: of each client, beside the number of examples in its report.
        examples: the name of that number, which is left out.
    """
    metrics = [(weight, record) for weight, record in metrics if weight and record]  # one sent again has no metrics
    numbers = [{name: v for name, v in record.items() if isinstance(v, int | float)} for _, record in metrics]
    names = set[str]().union(*numbers).intersection(*numbers) - {examples}
    total = sum(weight for weight, _ in metrics)
    sums = {name: sum(w * row[name] for (w, _), row in zip(metrics, numbers, strict=True)) for name in sorted(names)}
    return MetricRecord({name: value / total for name, value in sums.items()})
