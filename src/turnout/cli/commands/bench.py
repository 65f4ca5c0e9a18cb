"""``turnout bench``: how fast a federation trains here, and how much of the machine that uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from turnout.cli import flags
from turnout.cli.errors import guarded
from turnout.cli.groups import AlgorithmOption, ExperimentOptions, takes
from turnout.core.checks import count, known_name

EPILOG = r"""[bold]Examples[/bold]

turnout bench

turnout bench W2 W3 --rounds 200

turnout bench W1 --cohort 100 --engine one_by_one --json

turnout bench --algorithm fedau --data digits --rounds 50 local.steps=20

turnout bench --config examples/demo.toml --algorithm fedau"""


@dataclass(frozen=True, kw_only=True)
class BenchOptions(ExperimentOptions, AlgorithmOption):
    """Options of ``turnout bench``."""

    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[W1|W2|W3|W4]|KEY=VALUE",
            help="A workload, or several, each in a process of its own; or settings of an experiment, as in turnout run. "
            "Without any: all four workloads.",
            show_default=False,
        ),
    ] = None
    rounds: Annotated[
        int | None,
        typer.Option(metavar="N", help="Rounds (default: 12, 60, 60, 8 for W1 to W4).", rich_help_panel=flags.SETTINGS),
    ] = None
    seed: Annotated[int | None, typer.Option(metavar="N", help="(default: 0)", rich_help_panel=flags.SETTINGS)] = None
    cohort: Annotated[
        int | None,
        typer.Option(metavar="N", help="Clients of a round, drawn uniformly.", rich_help_panel=flags.SETTINGS),
    ] = None
    threads: flags.Threads = None
    rates: Annotated[bool, typer.Option(help="Measure what the machine can do, and the other engine, too.")] = True
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON for each instead of a table.")] = False


@guarded
@takes(BenchOptions)
def bench(options: BenchOptions) -> None:
    """Time rounds: updates a second, seconds in each stage, memory, and the share of the machine's arithmetic.

    Workloads are federated averaging with random data, the same that other simulators were timed on:
    W1 a CNN, W2 logistic regression, W3 an MLP, W4 a character LSTM. What an experiment computes is not saved.
    """
    from turnout.cli import layers
    from turnout.cli.bench import time_each_alone, time_experiment, time_workload, workloads_asked, write_figures
    from turnout.comparison.bench import WORKLOADS

    words, cohort, rates = options.what or [], options.cohort, options.rates
    names = [known_name("workload", name, WORKLOADS) for name in words if "=" not in name]
    given = options.layers(seed=options.seed)
    if cohort is not None:
        count("cohort", cohort)
        given.append({"selection": {"name": "uniform", "cohort_size": cohort}})
    given += (layers.override(text) for text in words if "=" in text)
    of_experiment = any(each is not None for each in (options.config, options.algorithm, options.data))
    names = workloads_asked(names, of_experiment=of_experiment)
    flags.use_threads(options.threads)
    if len(names) > 1:
        write_figures(time_each_alone(names), options.as_json)
    elif names:
        write_figures([time_workload(names[0], given, cohort, rates)], options.as_json)
    else:
        write_figures([time_experiment(given, options.algorithm, rates)], options.as_json)
