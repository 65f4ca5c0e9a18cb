"""``turnout bench``: how fast a federation trains here, and how much of the machine that uses."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from turnout.bench import WORKLOADS, measure
from turnout.cli import flags, layers
from turnout.cli.errors import RunFailed, guarded
from turnout.cli.output import say, show
from turnout.cli.run import one_algorithm
from turnout.cli.settings import Settings
from turnout.core.checks import ConfigurationError, count, known_name

EPILOG = r"""[bold]Examples[/bold]

turnout bench

turnout bench W2 W3 --rounds 200

turnout bench W1 --cohort 100 --engine one_by_one --json

turnout bench --algorithm fedau --data digits --rounds 50 local.steps=20

turnout bench --config examples/demo.toml --algorithm fedau"""

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


@guarded
def bench(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[W1|W2|W3|W4]|KEY=VALUE",
            help="A workload, or several, each in a process of its own; or settings of an experiment, as in turnout run. "
            "Without any: all four workloads.",
            show_default=False,
        ),
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option(metavar="NAME", help="How to train.", rich_help_panel=flags.SETTINGS)
    ] = None,
    data: flags.Data = None,
    model: flags.Model = None,
    availability: flags.Availability = None,
    pace: flags.Pace = None,
    rounds: Annotated[
        int | None,
        typer.Option(metavar="N", help="Rounds (default: 12, 60, 60, 8 for W1 to W4).", rich_help_panel=flags.SETTINGS),
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="(default: 0)", rich_help_panel=flags.SETTINGS)] = None,
    every: flags.Every = None,
    engine: flags.Engine = None,
    device: flags.Device = None,
    config: flags.Config = None,
    cohort: Annotated[
        int | None,
        typer.Option(metavar="N", help="Clients of a round, drawn uniformly.", rich_help_panel=flags.SETTINGS),
    ] = None,
    threads: flags.Threads = None,
    rates: Annotated[bool, typer.Option(help="Measure what the machine can do, and the other engine, too.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON for each instead of a table.")] = False,
) -> None:
    """Time rounds: updates a second, seconds in each stage, memory, and the share of the machine's arithmetic.

    Workloads are federated averaging with random data, the same that other simulators were timed on:
    W1 a CNN, W2 logistic regression, W3 an MLP, W4 a character LSTM. What an experiment computes is not saved.
    """
    words = what or []
    names = [known_name("workload", name, WORKLOADS) for name in words if "=" not in name]
    given = flags.layer(
        data=data, model=model, availability=availability, pace=pace, rounds=rounds, seed=seed, evaluate_every=every,
        engine=engine, device=device,
    )  # fmt: skip
    if cohort is not None:
        count("cohort", cohort)
        given["selection"] = {"name": "uniform", "cohort_size": cohort}
    own = [given, *(layers.override(text) for text in words if "=" in text)]
    names = _workloads(names, of_experiment=any(each is not None for each in (config, algorithm, data)))
    flags.use_threads(threads)
    if len(names) > 1:
        _report(_each_alone(names), as_json)
    elif names:
        _report([_workload(names[0], own, cohort, rates)], as_json)
    else:
        _report([_experiment([layers.read(config), *own] if config else own, algorithm, rates)], as_json)


def _experiment(own: list[dict[str, Any]], algorithm: str | None, rates: bool) -> dict[str, Any]:
    """Time an experiment that settings describe."""
    settings = one_algorithm(own, algorithm)
    return measure(settings.experiment(), name=settings.name, rates=rates)


def _workloads(names: list[str], of_experiment: bool) -> list[str]:
    """Which workloads to time: those that are named, or all where no experiment is described."""
    if names and of_experiment:
        raise ConfigurationError(
            f"{names[0]} is a workload with an algorithm and data of its own: leave it out to time an experiment, or leave "
            "--config, --algorithm and --data out"
        )
    return names or ([] if of_experiment else list(WORKLOADS))


def _workload(name: str, own: list[dict[str, Any]], cohort: int | None, rates: bool) -> dict[str, Any]:
    """Time one workload."""
    workload = WORKLOADS[name]
    if cohort is not None and cohort > workload.num_clients:
        workload = replace(workload, num_clients=cohort)
    settings = Settings.of({"rounds": workload.rounds}, workload.settings, *own)
    begin = time.perf_counter()
    data = workload.data(settings.numbers().get("seed", 0))
    return measure(settings.experiment(data), name=name, apart=time.perf_counter() - begin, rates=rates)


def _each_alone(names: list[str]) -> list[dict[str, Any]]:
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


def _report(found: list[dict[str, Any]], as_json: bool) -> None:
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
