"""``turnout bench``: how fast a federation trains here, and how much of the machine that uses."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from turnout.cli.errors import RunFailed
from turnout.cli.output import say, show
from turnout.cli.run import one_algorithm
from turnout.cli.settings import Settings
from turnout.comparison.bench import WORKLOADS, measure
from turnout.core.checks import ConfigurationError

_FIGURES = {
    "client_updates_per_s": "client updates a second",
    "client_updates_per_s_quartiles": "its quartiles over rounds",
    "startup_and_first_round_s": "start until the first round's end, s",
    "total_s": "start until the last round's end, s",
    "rounds": "rounds",
    "cohort": "cohort",
    "stages_s": "data, training, server, evaluation, s",
    "peak_rss_mb": "peak memory, MB",
    "data_mb": "of which examples, MB",
    "gflop_per_update": "GFLOP an update",
    "gflops": "GFLOP/s",
    "matrix_gflops": "of a large matrix product, GFLOP/s",
    "convolution_gflops": "of a convolution, GFLOP/s",
    "fraction_of_machine": "share of the machine's arithmetic",
    "cores_used": "processors in use",
    "other_cpu_share": "share of processors used by others",
    "threads": "threads",
    "engine": "engine",
    "engine_reason": "why",
    "client_updates_per_s_by_engine": "updates a second by engine",
    "backends": "what runs traced steps (traces)",
}
"""What the table shows, and what it is called there."""


def time_experiment(own: list[dict[str, Any]], algorithm: str | None, rates: bool) -> dict[str, Any]:
    """Time an experiment that settings describe."""
    settings = one_algorithm(own, algorithm)
    return measure(settings.experiment(), name=settings.name, rates=rates)


def workloads_asked(names: list[str], of_experiment: bool) -> list[str]:
    """Which workloads to time: those that are named, or all where no experiment is described."""
    if names and of_experiment:
        raise ConfigurationError(
            f"{names[0]} is a workload with an algorithm and data of its own: leave it out to time an experiment, or leave "
            "--config, --algorithm and --data out"
        )
    return names or ([] if of_experiment else list(WORKLOADS))


def time_workload(name: str, own: list[dict[str, Any]], cohort: int | None, rates: bool) -> dict[str, Any]:
    """Time one workload."""
    workload = WORKLOADS[name]
    if cohort is not None and cohort > workload.num_clients:
        workload = replace(workload, num_clients=cohort)
    settings = Settings.of({"rounds": workload.rounds}, workload.settings, *own)
    begin = time.perf_counter()
    data = workload.data(settings.numbers().get("seed", 0))
    return measure(settings.experiment(data), name=name, apart=time.perf_counter() - begin, rates=rates)


def time_each_alone(names: list[str]) -> list[dict[str, Any]]:
    """Time several workloads, each in a process of its own, so that each has a start and a peak of memory."""
    given, found = [word for word in sys.argv[1:] if word not in names], []
    for name in names:
        say(f"{name}: {WORKLOADS[name].title}")
        command = [sys.executable, "-m", "turnout", *given, name, "--json"]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if ended.returncode:
            raise RunFailed(f"{name} failed, see above")
        found.append(json.loads(ended.stdout))
    return found


def write_figures(found: list[dict[str, Any]], as_json: bool) -> None:
    """Write what was measured: a line of JSON for each, or one table."""
    if as_json:
        for each in found:
            typer.echo(json.dumps(each))
        return
    table = Table(box=SIMPLE_HEAD)
    table.add_column("")
    for each in found:
        table.add_column(each["workload"], justify="right")
    for figure, title in _FIGURES.items():
        if any(figure in each for each in found):
            table.add_row(title, *(_written(each.get(figure), figure.endswith("by_engine")) for each in found))
    show(table)


def _written(value: Any, named: bool = False) -> str:
    """Return a figure as the table shows it; several by name or in the order of the title."""
    if isinstance(value, dict) and named:
        return ", ".join(f"{name} {_written(number)}" for name, number in value.items())
    if isinstance(value, dict):
        return ", ".join(map(_written, value.values()))
    if isinstance(value, list):
        return " to ".join(map(_written, value))
    return f"{value:,.4g}" if isinstance(value, float) else "–" if value is None else str(value)
