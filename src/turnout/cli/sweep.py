"""``turnout sweep``: a grid over any settings, and the best point of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from turnout.cli import flags, layers
from turnout.cli.errors import guarded
from turnout.cli.options import Table
from turnout.cli.output import announce, introduce, jobs_of, say, show, warn_of_dropped, watched
from turnout.cli.run import save
from turnout.cli.settings import Settings
from turnout.cli.variants import Layers, seeds_of
from turnout.comparison import RunsFailed, is_finished
from turnout.comparison.checks import check_experiments
from turnout.comparison.compare import perform_all, runs_of
from turnout.comparison.sweep import measure_of, points, sorted_out
from turnout.core.checks import ConfigurationError, DataError, counted
from turnout.data.federated import FederatedData
from turnout.experiment import Experiment
from turnout.reporting.grid import Sweep, assignments, grid_csv, grid_table
from turnout.reporting.measure import Measure
from turnout.reporting.sweep_page import edge_note, write_sweep
from turnout.storage import replace_files

EPILOG = r"""[bold]Examples[/bold]

turnout sweep --algorithm fedau --grid local.lr=0.05,0.1,0.2 --grid algorithm.server_lr=1,3 --rounds 300

turnout sweep --algorithm folb --grid local.lr=0.01,0.03 --grid also.prox.mu=0.001,0.1 --to-accuracy 0.7

turnout sweep --grid algorithm=fedau,mifa --grid local.lr=0.05,0.1 --metric train_loss --seeds 100,101

turnout sweep --algorithm fedavg --grid 'model.hidden=[64],[64,30]' model.dropout=0.1

A comma separates values of the grid; a value that is a list has brackets. Without --grid, model.hidden=64,30 is one list,
as everywhere. In a file: [grid] local.lr = [0.05, 0.1]. The same command goes on where it was stopped."""


@guarded
def sweep(
    overrides: flags.Overrides = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid", "-g", metavar="KEY=VALUE,VALUE", help="A setting, and the values to try; once for each axis."
        ),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="How to train: turnout list algorithms (default: fedau).",
            rich_help_panel=flags.SETTINGS,
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What decides: the mean over seeds of where this ends, test_accuracy (default) or train_loss, or a "
            "measure such as 'average train_loss'. Choosing by test accuracy spends the test on it.",
        ),
    ] = None,
    to_accuracy: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Let the rounds until this accuracy decide (their median), e.g. 0.8."),
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
            help="Where everything goes (default: runs/CONFIG, or runs/sweep-DATA).", rich_help_panel=flags.OUTCOME
        ),
    ] = None,
    report: flags.Report = True,
    checkpoint_every: flags.CheckpointEvery = None,
    quiet: flags.Quiet = False,
) -> None:
    """Run every combination of some settings over several seeds, side by side, and tell the best.

    With one seed, all combinations see the same clients, data, start and participation.
    """
    given = flags.layer(
        data=data, model=model, availability=availability, pace=pace, rounds=rounds, evaluate_every=every, engine=engine,
        device=device, seeds=seeds, to_accuracy=to_accuracy,
    )  # fmt: skip
    under = [*([layers.read(config)] if config else []), given, *map(layers.override, overrides or ())]
    axes = grid_of([layer.pop("grid", {}) for layer in under], grid or ())
    asked = Layers.of(under)
    measure = measure_of(metric, asked.to_accuracy)
    combinations = points(axes)
    plan = {name: _settings(under, algorithm, name, point) for name, point in combinations.items()}
    numbers = seeds_of(3 if asked.seeds is None else asked.seeds)
    first = next(iter(plan.values()))
    target = folder or Path("runs") / (config.stem if config else f"sweep-{first.table['data']['name']}")
    side_by_side = jobs_of(jobs, threads, [first])
    shared = _prepare(plan, numbers, target, measure)
    if not quiet:
        introduce(f"{counted(len(plan), 'point')}, {counted(len(numbers), 'seed')}", plan.values(), shared)
    try:
        with watched(len(plan) * len(numbers), quiet) as tell:
            runs = runs_of(plan, numbers, target, checkpoint_every)
            records = list(perform_all(runs, target, jobs=side_by_side, threads=threads, progress=tell).values())
    except RunsFailed as failed:
        if failed.records:
            _conclude(sorted_out(axes, combinations, failed.records, measure, asked.to_accuracy), target, report)
        raise
    _conclude(sorted_out(axes, combinations, records, measure, asked.to_accuracy), target, report)


def grid_of(tables: Sequence[Any], written: Sequence[str]) -> dict[str, list[Any]]:
    """Return the axes of a grid, from tables ``[grid]`` of files and from how they are written on the command line.

    Raises:
        ConfigurationError: for what is no axis.
    """
    axes: dict[str, list[Any]] = {}
    for table in tables:
        axes |= _flat(table)
    for text in written:
        key, equals, values = text.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f"--grid {text!r}: needed a setting and its values, such as local.lr=0.01,0.1")
        axes[key.strip()] = [layers.override(f"value={value}")["value"] for value in _values(values)]
    if not axes:
        raise ConfigurationError("name at least one axis: turnout sweep --grid local.lr=0.01,0.1")
    for key in axes:
        if key.partition(".")[0] in ("seed", "seeds", "name", "to_accuracy", "algorithms"):
            raise ConfigurationError(f"{key} is no axis of a grid; seeds go with --seeds, and names are given")
    return axes


def _flat(table: Any, place: str = "") -> dict[str, list[Any]]:
    """Axes of nested tables: ``local.lr = [0.01, 0.1]`` in TOML is a table in a table."""
    if isinstance(table, Mapping):
        return {
            key: values
            for name, each in table.items()
            for key, values in _flat(each, f"{place}.{name}" if place else name).items()
        }
    if not isinstance(table, list):
        raise ConfigurationError(f"grid {place}: got {table!r}, needed a list of values, such as [0.01, 0.1]")
    return {place: table}


def _values(text: str) -> list[str]:
    """Return the values of an axis: commas in brackets, braces or quotes separate nothing."""
    found, depth, quoted = [""], 0, ""
    for letter in text:
        if quoted:
            quoted = "" if letter == quoted else quoted
        elif letter in "\"'":
            quoted = letter
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and not depth and not quoted:
            found.append("")
        else:
            found[-1] += letter
    return [value.strip() for value in found if value.strip()]


def _settings(under: Sequence[Table], algorithm: str | None, name: str, point: Mapping[str, Any]) -> Settings:
    """Return the settings of one point."""
    own = [_layer(axis, value) for axis, value in point.items() if axis != "algorithm"]
    found = Layers.of([*under, *own, {"name": name}])
    wanted = point.get("algorithm", algorithm)
    try:
        return found.settings(wanted) if wanted is not None else Settings.of(*found.common)
    except ConfigurationError as error:
        raise ConfigurationError(f"{assignments(point)}: {error}") from error


def _layer(axis: str, value: Any) -> Table:
    """One value in its place."""
    layer: Any = value
    for key in reversed(axis.split(".")):
        layer = {key: layer}
    return layer


def _prepare(plan: Mapping[str, Settings], seeds: Sequence[int], folder: Path, measure: Measure) -> FederatedData:
    """Build everything once, so that what cannot run is refused before anything does; the data of the first point."""
    loaded: dict[str, FederatedData] = {}
    makes: dict[str, Callable[[], Experiment]] = {}
    for name, settings in plan.items():
        ours = settings.seeded(seeds[0])
        key = json.dumps(ours.table["data"], sort_keys=True)
        try:
            loaded[key] = loaded.get(key) or ours.data()
            is_finished(folder / name / f"seed-{seeds[0]}", ours.experiment(loaded[key]))
        except (ConfigurationError, DataError) as error:
            raise type(error)(f"{name}: {error}") from error
        makes[name] = partial(ours.experiment, loaded[key])
    check_experiments(makes, measure.metric or measure.kind, target=measure.metric is None)
    for name, settings in plan.items():
        for seed in seeds:
            save(settings.seeded(seed), folder / name / f"seed-{seed}")
    return next(iter(loaded.values()))


def _conclude(found: Sweep, folder: Path, report: bool) -> None:
    """Print the table and the best point, keep all figures, write the report."""
    show(grid_table(found))
    warn_of_dropped(record for group in found.records.values() for record in group)
    replace_files({folder / "results.csv": lambda part: part.write_text(grid_csv(found), encoding="utf-8")})
    typer.echo(f"runs and tables: {folder}")
    if report:
        title = f"{len(found.points)} points over {' and '.join(found.axes)}"
        announce(lambda: write_sweep(found, folder / "report.html", title))
    for name, point in found.best_for("algorithm").items() if "algorithm" in found.axes else ():
        typer.echo(f"best of {name}: {assignments(found.points[point])}, {found.scores[point].text}")
    typer.echo(f"best: {assignments(found.best)}")
    if note := edge_note(found):
        say(note, style="yellow")
