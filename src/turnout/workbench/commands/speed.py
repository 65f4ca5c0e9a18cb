"""``turnout speed``: measure the speed of training, and the utilization of the machine."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from turnout.cli.command import argument, command, option, options, switch
from turnout.cli.console import say, show
from turnout.cli.errors import RunFailed
from turnout.cli.groups import SETTINGS, AlgorithmOption, ExperimentOptions, ThreadsOption
from turnout.core.checks import ConfigurationError, count, known_name

_FIGURES = {
    "client_updates_per_s": "client updates per second",
    "client_updates_per_s_quartiles": "quartiles over rounds",
    "startup_and_first_round_s": "start-up and first round, s",
    "total_s": "total, s",
    "rounds": "rounds",
    "cohort": "cohort",
    "stages_s": "data, training, server, evaluation, s",
    "peak_rss_mb": "peak memory, MB",
    "data_mb": "of which MB",
    "gflop_per_update": "GFLOP per update",
    "gflops": "GFLOP/s",
    "matrix_gflops": "peak of a matrix product, GFLOP/s",
    "convolution_gflops": "peak of a convolution, GFLOP/s",
    "fraction_of_machine": "share of the machine's peak",
    "cores_used": "processors in use",
    "other_cpu_share": "share of processors used by others",
    "threads": "threads",
    "engine": "engine",
    "engine_reason": "reason",
    "client_updates_per_s_by_engine": "updates per second by engine",
    "backends": "backends of traced steps (traces)",
}
"""Titles of the rows of the table."""


@options
class SpeedOptions(ThreadsOption, ExperimentOptions, AlgorithmOption):
    """Options of ``turnout speed``."""

    what: list[str] | None = argument(
        "One or more workloads, each in a separate process (default: all five); or settings of an experiment, as in turnout "
        "run.",
        "[W1|W2|W3|W4|W5]|KEY=VALUE", None,
    )  # fmt: skip
    rounds: int | None = option("Number of rounds (default: 12, 60, 60, 8, 300 for W1 to W5).", "N", panel=SETTINGS)
    seed: int | None = option("Seed of all random numbers (default: 0).", "N", panel=SETTINGS)
    cohort: int | None = option("Number of clients per round, drawn uniformly.", "N", panel=SETTINGS)
    rates: bool = switch("Also measure the machine's peak and the engine that was not chosen.", default=True)
    as_json: bool = switch("Print one line of JSON per workload instead of a table.", "--json")

    def workloads(self) -> list[str]:
        """Return the workloads to time: the named ones, or all if there is no experiment.

        Raises:
            ConfigurationError: if a workload is unknown, or there is one beside an experiment.
        """
        from turnout.workbench.speed.workloads import WORKLOADS

        names = [known_name("workload", word, WORKLOADS) for word in self.what or () if "=" not in word]
        of_experiment = any(value is not None for value in (self.config, self.algorithm, self.data))
        if names and of_experiment:
            raise ConfigurationError(
                f"{names[0]} is a workload with an algorithm and data of its own: leave it out to time an experiment, or "
                "leave --config, --algorithm and --data out"
            )
        return names or ([] if of_experiment else list(WORKLOADS))


@command(SpeedOptions)
def speed(options: SpeedOptions) -> None:
    """Time rounds: updates per second, seconds in each stage, memory, and the utilization of the machine.

    Workloads have the random data on which other simulators were timed. W1 (a CNN), W2 (logistic regression), W3 (an MLP)
    and W4 (a character LSTM) run FedAvg with cohorts of a fixed size. W5 runs FedAU on clients of unequal sizes that
    participate at random. The results of an experiment are not saved.

    Examples:
        turnout speed
        turnout speed W2 W3 --rounds 200
        turnout speed W1 --cohort 100 --engine one_by_one --json
        turnout speed --algorithm fedau --data digits --rounds 50 local.steps=20
        turnout speed --config examples/demo.toml --algorithm fedau
    """
    from turnout.cli import layers
    from turnout.cli.run import one_algorithm
    from turnout.workbench.speed.measure import measure

    under, cohort = options.layers(seed=options.seed), options.cohort
    if cohort is not None:
        count("cohort", cohort)
        under.append({"selection": {"name": "uniform", "cohort_size": cohort}})
    names = options.workloads()
    under += (layers.override(word) for word in options.what or () if "=" in word)
    options.use_threads()
    if len(names) > 1:
        figures = _time_each_alone(names)
    elif names:
        figures = [_time_workload(names[0], under, cohort, options.rates)]
    else:
        settings = one_algorithm(under, options.algorithm)
        figures = [measure(settings.experiment(), name=settings.name, rates=options.rates)]
    _write(figures, options.as_json)


def _time_workload(name: str, under: list[dict[str, Any]], cohort: int | None, rates: bool) -> dict[str, Any]:
    """Time one workload."""
    from turnout.cli.settings import Settings
    from turnout.workbench.speed.measure import measure
    from turnout.workbench.speed.workloads import WORKLOADS

    workload = WORKLOADS[name]
    if cohort is not None and cohort > workload.num_clients:
        workload = replace(workload, num_clients=cohort)
    settings = Settings.of({"rounds": workload.rounds}, workload.settings, *under)
    begin = time.perf_counter()
    data = workload.data(settings.numbers().get("seed", 0))
    return measure(settings.experiment(data), name=name, apart=time.perf_counter() - begin, rates=rates)


def _time_each_alone(names: list[str]) -> list[dict[str, Any]]:
    """Time several workloads, each in a separate process, so that each has its own start-up time and peak memory."""
    from turnout.workbench.speed.workloads import WORKLOADS

    words, figures = [word for word in sys.argv[1:] if word not in names], []
    for name in names:
        say(f"{name}: {WORKLOADS[name].title}")
        command = [sys.executable, "-m", "turnout", *words, name, "--json"]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if ended.returncode:
            raise RunFailed(f"{name} failed, see above")
        figures.append(json.loads(ended.stdout))
    return figures


def _write(workloads: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Print measurements as a line of JSON per workload, or as one table."""
    if as_json:
        for figures in workloads:
            typer.echo(json.dumps(figures))
        return
    table = Table("", box=SIMPLE_HEAD)
    for figures in workloads:
        table.add_column(figures["workload"], justify="right")
    for name, title in _FIGURES.items():
        if any(name in figures for figures in workloads):
            table.add_row(title, *(_written(figures.get(name), name.endswith("by_engine")) for figures in workloads))
    show(table)


def _written(value: Any, named: bool = False) -> str:
    """Format a figure of the table; several are joined, with their names if `named`."""
    if isinstance(value, dict) and named:
        return ", ".join(f"{name} {_written(number)}" for name, number in value.items())
    if isinstance(value, dict):
        return ", ".join(map(_written, value.values()))
    if isinstance(value, list):
        return " to ".join(map(_written, value))
    return f"{value:,.4g}" if isinstance(value, float) else "–" if value is None else str(value)
