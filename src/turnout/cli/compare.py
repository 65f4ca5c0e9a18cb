"""``turnout compare``: several algorithms with several seeds, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli import flags, layers, own
from turnout.cli.errors import guarded
from turnout.cli.options import Table
from turnout.cli.output import announce, introduce, jobs_of, show, warn_of_dropped, watched
from turnout.cli.run import save
from turnout.cli.sections import as_table
from turnout.cli.settings import Settings
from turnout.cli.variants import Layers, seeds_of
from turnout.comparison import RunsFailed, is_finished
from turnout.comparison.checks import check_experiments
from turnout.comparison.compare import perform_all, runs_of
from turnout.core.checks import ConfigurationError, counted
from turnout.data.federated import FederatedData
from turnout.reporting import (
    RunRecord,
    accuracy_target,
    comparison,
    cost_table,
    costs,
    csv,
    rich_tables,
    write_report,
)
from turnout.reporting.target import check_accuracy
from turnout.storage import replace_files

EPILOG = r"""[bold]Examples[/bold]

turnout compare fedau average_participating average_all --seeds 5 --rounds 300

turnout compare fedau average_all --seeds 0,3,7 local.lr=0.1 average_all.server_lr=10

turnout compare fedau fedau_inf fedau_inf.algorithm=fedau fedau_inf.cutoff=none

turnout compare fedavg average_participating --to-accuracy 0.8

turnout compare examples/patient.py:patient fedstaleweight fedbuff

turnout compare --config examples/demo.toml --jobs 2

The same command goes on where it was stopped, and does not repeat what is finished."""


@guarded
def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ALGORITHM|KEY=VALUE",
            help="What to compare (turnout list algorithms), and any settings: of all, local.lr=0.05, or of one, "
            "fedau.cutoff=10",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="How many seeds, or which: 5 or 0,3,7 (default: 3).", rich_help_panel=flags.SETTINGS
        ),
    ] = None,
    data: flags.Data = None,
    model: flags.Model = None,
    availability: flags.Availability = None,
    pace: flags.Pace = None,
    rounds: flags.Rounds = None,
    every: flags.Every = None,
    engine: flags.Engine = None,
    device: flags.Device = None,
    config: flags.Config = None,
    jobs: flags.Jobs = None,
    threads: flags.ThreadsOfEach = 1,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where everything goes (default: runs/CONFIG, or runs/compare-DATA).", rich_help_panel=flags.OUTCOME
        ),
    ] = None,
    to_accuracy: flags.ToAccuracy = None,
    report: flags.Report = True,
    checkpoint_every: flags.CheckpointEvery = None,
    quiet: flags.Quiet = False,
) -> None:
    """Compare algorithms over several seeds: a table of means and deviations, and a report.

    Algorithms share everything but themselves: with one seed, all see the same clients, data, start and participation.
    """
    given = flags.layer(
        data=data, model=model, availability=availability, pace=pace, rounds=rounds, evaluate_every=every, engine=engine,
        device=device, seeds=seeds, to_accuracy=to_accuracy,
    )  # fmt: skip
    found, plan = _asked(names or [], config, given)
    numbers = seeds_of(3 if found.seeds is None else found.seeds)
    first = next(iter(plan.values()))
    target = folder or Path("runs") / (config.stem if config else f"compare-{first.table['data']['name']}")
    side_by_side = jobs_of(jobs, threads, [first])
    shared = _prepare(plan, numbers, target, found.to_accuracy is not None)
    if not quiet:
        introduce(f"{counted(len(plan), 'algorithm')}, {counted(len(numbers), 'seed')}", plan.values(), shared)
    try:
        with watched(len(plan) * len(numbers), quiet) as tell:
            runs = runs_of(plan, numbers, target, checkpoint_every)
            records = list(perform_all(runs, target, jobs=side_by_side, threads=threads, progress=tell).values())
    except RunsFailed as failed:
        if failed.records:
            _conclude(failed.records, target, shared, found.to_accuracy, report)
        raise
    _conclude(records, target, shared, found.to_accuracy, report)


def _asked(texts: Sequence[str], config: Path | None, given: Table) -> tuple[Layers, dict[str, Settings]]:
    """Return what is asked for by file, flags, names and settings, and the settings of every algorithm."""
    wanted, recipes = own.named([text for text in texts if "=" not in text])
    overrides = [layers.override(text) for text in texts if "=" in text]
    if any("name" in as_table("algorithm", layer.get("algorithm", {})) for layer in overrides):
        raise ConfigurationError("algorithm is not for comparisons: write the names of algorithms without algorithm=")
    found = Layers.of([*([layers.read(config)] if config else []), recipes, given, *overrides], wanted)
    plan = _plan(found, wanted)
    if found.to_accuracy is not None:
        check_accuracy(found.to_accuracy)
    return found, plan


def _plan(found: Layers, wanted: list[str]) -> dict[str, Settings]:
    """Return the settings of every algorithm that is compared."""
    names = wanted or found.names
    if not names:
        raise ConfigurationError("name what to compare: turnout compare fedau average_participating")
    if len(set(names)) < len(names):
        raise ConfigurationError(f"an algorithm is named twice: {' '.join(names)}. Two variants need two names")
    for key, instead in {"name": "[algorithms.NAME] algorithm = ...", "seed": "seeds"}.items():
        if any(key in layer for layer in found.common):
            raise ConfigurationError(f"{key} is not for comparisons: write {instead}")
    return found.plan(names)


def _prepare(plan: dict[str, Settings], seeds: list[int], folder: Path, target: bool) -> FederatedData:
    """Refuse what cannot run and folders with other runs, keep settings in ours; returns the data of the first seed."""
    shared = next(iter(plan.values())).seeded(seeds[0]).data()
    check_experiments(
        {name: partial(settings.seeded(seeds[0]).experiment, shared) for name, settings in plan.items()}, target=target
    )
    for seed in seeds:
        data = shared if seed == seeds[0] else None
        for name, settings in plan.items():
            ours, place = settings.seeded(seed), folder / name / f"seed-{seed}"
            if (place / "config.json").exists():
                data = data or ours.data()
                is_finished(place, ours.experiment(data))
            save(ours, place)
    return shared


def _conclude(
    records: Sequence[RunRecord], folder: Path, data: FederatedData, to_accuracy: float | None, report: bool
) -> None:
    """Print the table, keep all figures, write the report."""
    rows, spent = comparison(records), []
    show(rich_tables(rows))
    warn_of_dropped(records)
    if to_accuracy is not None:
        goal = accuracy_target(records, to_accuracy)
        spent = costs(records, goal)
        show(cost_table(spent, goal))
    replace_files({folder / "results.csv": lambda part: part.write_text(csv(rows, spent)) and None})
    typer.echo(f"runs and tables: {folder}")
    if report:
        path, title = folder / "report.html", f"Comparison on {data.name}"
        announce(lambda: write_report(records, path, data=data, title=title, to_accuracy=to_accuracy))
