"""The status of a server for its operator: as JSON, as Prometheus text, and as a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from turnout_serve.server.run.figures import DECILES
from turnout_serve.server.service import Service
from turnout_serve.wire.bodies import Body
from turnout_serve.wire.status import DISTRIBUTIONS, Metric, Status
from turnout_serve.wire.words import WORDS


def status(service: Service, num_waiting: int, counts: Mapping[int, int]) -> Status:
    """Return the status of a server.

    Args:
        service: answers the requests of clients.
        num_waiting: open long polls.
        counts: answers so far by HTTP status.
    """
    setting, writer = service.driver.setting, service.writer
    figures = writer.figures.status
    if writer.failure is not None:
        figures = {**figures, "state": "failed", "failure": str(writer.failure)}
    return Status(
        run=service.run,
        algorithm=setting.algorithm.name,
        pace=type(setting.pace).__name__,
        rounds=setting.rounds,
        needed=service.min_clients,
        enrolled=service.num_clients,
        there=len(service.timeouts.presence),
        waiting=num_waiting,
        healthy=writer.healthy and not writer.stopping,
        seconds=round(service.clock(), 3),
        answers=as_fields(counts),
        **figures,
    )


def as_fields(counts: Mapping[int, int]) -> dict[str, int]:
    """Return counts by HTTP status as fields of a JSON object, ascending."""
    return {str(code): number for code, number in sorted(counts.items())}


def metrics(status: Status) -> str:
    """Return a status in the text format of Prometheus."""
    families: dict[str, list[str]] = {}
    for metric, samples in (*_samples(status), *_samples_by_name(status)):
        name = f"turnout_{metric.name}"
        lines = families.setdefault(name, [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"])
        for key, value in samples:
            label = f'{{{metric.label}="{_escaped(key)}"}}' if metric.label else ""
            lines.append(f"{name}{label} {int(value) if isinstance(value, bool) else value}")
    return "\n".join(line for lines in families.values() for line in lines) + "\n"


Samples = list[tuple[str, Any]]
"""Values of the label of a metric, and numbers."""


def _samples(body: Body) -> Iterator[tuple[Metric, Samples]]:
    """Yield the metrics that fields declare, with their samples."""
    for name, field in type(body).model_fields.items():
        value = getattr(body, name)
        metric = next((item for item in field.metadata if isinstance(item, Metric)), None)
        if isinstance(value, Body):
            yield from _samples(value)
        elif metric is not None and isinstance(value, Mapping):
            yield metric, list((dict.fromkeys(metric.usual, 0) | dict(value)).items())
        elif metric is not None and (number := metric.none if value is None else value) is not None:
            yield metric, [(metric.key, number)]


def _samples_by_name(status: Status) -> Iterator[tuple[Metric, Samples]]:
    """Yield a metric for each curve, with its last point, and for each distribution, with its quantiles."""
    for name, points in status.curves.items():
        if points and points[-1][1] is not None:
            yield Metric(name, "gauge", f"The last value of {name}."), [("", points[-1][1])]
    for name, deciles in status.heard.deciles.items():
        metric = Metric(f"client_{name}", "gauge", f"{DISTRIBUTIONS[name]}, quantiles over clients.", "quantile")
        yield metric, [(f"{level:g}", value) for level, value in zip(DECILES, deciles, strict=True)]


def _escaped(text: str) -> str:
    """Escape the value of a Prometheus label."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


@cache
def page() -> str:
    """Return the HTML page, which requests the status itself."""
    text = files("turnout_serve.server.http").joinpath("page.html").read_text(encoding="utf-8")
    return text.replace("{/* turnout_serve.wire.words */}", json.dumps(WORDS))
