"""Figures for the operator of a server: as plain values, as Prometheus text, and as a page."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from math import isfinite
from typing import Any

from turnout.deployment.server.figures import DECILES
from turnout.deployment.server.service import Service

WHAT = {
    "participation": "Contributions per server step",
    "staleness": "Mean staleness in server steps",
    "influence": "Influence over the fair share",
}


UNBEGUN: dict[str, Any] = {
    **dict.fromkeys(("version", "enrolled", "there", "at_work", "waiting", "seconds", "journal"), 0),
    **{name: {} for name in ("dropped", "barred", "curves", "heard")},
    **{"failure": None, "healthy": True, "privacy": None, "evaluation": None},
}
"""Figures of a run that has none yet."""


def status(service: Service, num_waiting: int, counts: dict[int, int]) -> dict[str, Any]:
    """Return the figures of a deployment.

    Args:
        service: whose.
        num_waiting: questions for work that are held.
        counts: answers so far by HTTP status.
    """
    driver, figures = service.driver, service.figures
    return {
        "run": service.run,
        "algorithm": driver.setting.algorithm.name,
        "pace": type(driver.setting.pace).__name__,
        "version": figures.version,
        "rounds": driver.setting.rounds,
        "state": figures.state if service.failure is None else "failed",
        "failure": None if service.failure is None else str(service.failure),
        "needed": service.min_clients,
        "enrolled": service.num_clients,
        "there": service.num_there,
        "at_work": figures.at_work,
        "waiting": num_waiting,
        "healthy": service.healthy and not service.stopping,
        "seconds": round(service.clock(), 3),
        "journal": figures.journal,
        "answers": {str(code): number for code, number in sorted(counts.items())},
        "dropped": figures.dropped,
        "barred": {str(client): why for client, why in figures.barred.items()},
        "curves": figures.curves,
        "privacy": None
        if figures.privacy is None
        else {**figures.privacy, "epsilon": _number(figures.privacy["epsilon"])},
        "heard": figures.distributions,
        "evaluation": None if figures.evaluation is None else _finite(figures.evaluation),
    }


def metrics(figures: dict[str, Any]) -> str:
    """Return the figures as Prometheus reads them."""
    lines: list[str] = []

    def add(name: str, kind: str, what: str, *values: tuple[str, Any]) -> None:
        lines.extend([f"# HELP turnout_{name} {what}", f"# TYPE turnout_{name} {kind}"])
        lines.extend(f"turnout_{name}{label} {value}" for label, value in values)

    add("version", "counter", "Server steps taken.", ("", figures["version"]))
    add("rounds", "gauge", "Server steps to take.", ("", figures["rounds"]))
    groups = ("enrolled", "there", "at_work", "waiting")
    add("clients", "gauge", "Clients by what they do.", *((f'{{state="{name}"}}', figures[name]) for name in groups))
    unused = figures["dropped"].items()
    add(
        "tasks_dropped",
        "counter",
        "Tasks that ended without being used.",
        *((f'{{reason="{_label(k)}"}}', v) for k, v in unused),
    )
    add(
        "answers",
        "counter",
        "Answers by HTTP status.",
        *((f'{{code="{k}"}}', v) for k, v in figures["answers"].items()),
    )
    if (privacy := figures["privacy"]) is not None:
        spent = privacy["epsilon"]
        add("epsilon", "gauge", "Epsilon that the run has spent.", ("", "+Inf" if spent is None else spent))
        add("noised_answers", "counter", "Noised answers to evaluations and queries.", ("", privacy.get("answers", 0)))
    add("journal_entries", "counter", "Entries of the journal.", ("", figures["journal"]))
    add("healthy", "gauge", "Whether the journal can be written.", ("", int(figures["healthy"])))
    for name, points in figures["curves"].items():
        if points and points[-1][1] is not None:
            add(name, "gauge", f"The last value of {name}.", ("", points[-1][1]))
    _add_heard(add, figures["heard"])
    if figures["evaluation"] is not None:
        _add_evaluation(add, figures["evaluation"])
    return "\n".join(lines) + "\n"


def _add_heard(add: Callable[..., None], heard: dict[str, Any]) -> None:
    """Add distributions over clients."""
    if "never" in heard:
        add("clients_never_heard", "gauge", "Share of clients that are in no server step.", ("", heard["never"]))
    for name, values in heard.get("deciles", {}).items():
        quantiles = ((f'{{quantile="{level:g}"}}', value) for level, value in zip(DECILES, values, strict=True))
        add(f"client_{name}", "gauge", f"{WHAT[name]}, quantiles over clients.", *quantiles)


def _add_evaluation(add: Callable[..., None], evaluation: dict[str, Any]) -> None:
    """Add the last evaluation by clients."""
    add("evaluation_version", "gauge", "Version of the last evaluation by clients.", ("", evaluation["version"]))
    clients = {name: evaluation[name] for name in ("asked", "answered")}
    for name, kind, of, label in (
        ("evaluation_clients", "Clients of the last evaluation", clients, "state"),
        ("evaluation_lost", "Clients without an answer in the last evaluation", evaluation["lost"], "reason"),
        ("evaluation", "Figures of the last evaluation", evaluation["figures"], "figure"),
    ):
        add(name, "gauge", f"{kind}.", *((f'{{{label}="{_label(k)}"}}', v) for k, v in of.items()))


def _number(value: float) -> float | None:
    """Return a number that JSON can say; None for infinity."""
    return value if isfinite(value) else None


def _finite(evaluation: dict[str, Any]) -> dict[str, Any]:
    """Return what came of an evaluation without figures that JSON cannot say."""
    figures = {name: value for name, value in evaluation["figures"].items() if value is not None and isfinite(value)}
    return {**evaluation, "figures": figures}


@cache
def page() -> str:
    """Return the page, which asks for the figures by itself."""
    return files("turnout.deployment.server").joinpath("page.html").read_text(encoding="utf-8")


def _label(text: str) -> str:
    """Return a text as the value of a Prometheus label."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
