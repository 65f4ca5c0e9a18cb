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
from turnout.pieces.weighting.normalize import DivideByLocalSteps
from turnout.protocol.counts import CountLimits
from turnout_flower.arrays import Arrays
from turnout_flower.loop import ORDER, example
from turnout_flower.options import Options
from turnout_serve.wire.format import WireError, encode, manifest
from turnout_serve.wire.messages import Coding, ReportFormat, report_body


def formats(rule: Options, arrays: Arrays, max_norm: float | None) -> dict[str, ReportFormat]:
    """Return the format of reports by phase."""
    objective: Any = arrays  # a coding reads its layout and initial model alone
    coding, nulls = Coding.of(rule.algorithm, rule.seed, objective), rule.algorithm.nulls_dropped
    bodies = {phase: report_body(_example(rule, arrays, phase)) for phase in rule.algorithm.phases}
    counts = CountLimits(None, rule.max_examples, rule.max_steps)
    return {
        phase: ReportFormat(manifest(load(body)), coding, nulls, max_norm, counts) for phase, body in bodies.items()
    }


def _example(rule: Options, arrays: Arrays, phase: str) -> Report:
    """Return an example report of a phase, with a zero update."""
    trains = "train" in rule.kinds(phase)
    report = example(rule.algorithm, arrays, phase, rule.seed) if trains else _report(arrays.shared[:0], 1, 1, {})
    return replace(report, seen=report.seen | _seen(dict.fromkeys(rule.losses(phase), 0.0)))


def body_of(rule: Options, arrays: Arrays, phase: str, model: torch.Tensor, replies: Mapping[str, RecordDict]) -> bytes:
    """Return the body of a report from the replies of a client, by the type of message.

    Raises:
        WireError: if the replies cannot be read, or lack inputs of the algorithm.
    """
    try:
        return _body(rule, arrays, phase, model, replies)
    except WireError:
        raise
    except Exception as error:  # the bytes of a client may raise anything; only its own report is lost
        raise WireError(f"the reply cannot be read: {error!r}") from error


def _body(rule: Options, arrays: Arrays, phase: str, model: torch.Tensor, replies: Mapping[str, RecordDict]) -> bytes:
    """Return the body of a report, see `body_of`; raises any error for malformed replies."""
    losses, train = _losses(rule, phase, replies), replies.get("train")
    if rule.mod and train is not None:
        body = train.config_records.get(ORDER, {}).get("report")
        if not isinstance(body, bytes):
            raise WireError("the reply is not one of the mod: write mods=[turnout_flower.mod(...)] in the ClientApp")
        return encode(load(body) | {f"seen.{name}": value for name, value in _seen(losses).items()})
    metrics, num_steps, delta = metrics_of(replies[rule.kinds(phase)[-1]]), 0.0, model[:0]
    if train is not None:
        received = arrays.vector(arrays.tensors(model))  # in the types of the arrays
        record = next(iter(train.array_records.values()), ArrayRecord())
        delta = arrays.vector(record.to_torch_state_dict()) - received
        if any(isinstance(piece, DivideByLocalSteps) for piece in rule.algorithm.weighting):
            num_steps = number(metrics, rule.steps)
    return report_body(_report(delta, number(metrics, rule.examples), num_steps, losses))


def _report(delta: torch.Tensor, num_examples: float, num_steps: float, losses: Mapping[str, float]) -> Report:
    """Return the report of one client, without its number and version, which the server knows."""
    examples, steps, zero = (np.array([round(value)], dtype=np.int64) for value in (num_examples, num_steps, 0))
    return Report(zero, zero, examples, steps, delta[None], seen=_seen(losses))


def _seen(losses: Mapping[str, float]) -> dict[str, torch.Tensor]:
    """Return numbers as `Report.seen`."""
    return {name: torch.tensor([value], dtype=torch.float64) for name, value in losses.items()}


def _losses(rule: Options, phase: str, replies: Mapping[str, RecordDict]) -> dict[str, float]:
    """Return the inputs of pieces from the metrics of a client, by name."""
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
        WireError: if there is no number of this name.
    """
    value = metrics.get(name)
    if not isinstance(value, int | float):
        names = ", ".join(metrics) or "nothing"
        raise WireError(f"the metrics of the reply hold {names}, and the rule reads the number {name!r}")
    return float(value)


def mean(metrics: Sequence[tuple[int, MetricRecord]], examples: str) -> MetricRecord:
    """Return the means of the metrics that all clients have, weighted by their numbers of examples.

    Args:
        metrics: the number of examples and the metrics of each client.
        examples: the name of the metric of that number, which is left out.
    """
    # A report that was sent again after a restart has no metrics.
    metrics = [(weight, record) for weight, record in metrics if weight and record]
    numbers = [{name: v for name, v in record.items() if isinstance(v, int | float)} for _, record in metrics]
    names = set[str]().union(*numbers).intersection(*numbers) - {examples}
    total = sum(weight for weight, _ in metrics)
    sums = {name: sum(w * row[name] for (w, _), row in zip(metrics, numbers, strict=True)) for name in sorted(names)}
    return MetricRecord({name: value / total for name, value in sums.items()})
