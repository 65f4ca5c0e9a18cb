"""``turnout sweep``: a grid or a search over any settings, and the best point of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import typer

from turnout.cli import layers
from turnout.cli.dry_run import planned_of_all
from turnout.cli.groups import VariantsOptions
from turnout.cli.options import Table
from turnout.cli.output import announce, introduce, keep, say, show, warn_of_dropped, watched
from turnout.cli.print_config import sweep_file_of
from turnout.cli.run import save
from turnout.cli.sections import as_table
from turnout.cli.settings import Settings
from turnout.cli.variants import Layers
from turnout.comparison import RunsFailed, is_finished
from turnout.comparison.checks import check_experiments
from turnout.comparison.compare import perform_all, runs_of
from turnout.comparison.run import Run
from turnout.comparison.search import search
from turnout.comparison.study import Study, corners, space_of
from turnout.comparison.sweep import points, sorted_out
from turnout.core.checks import ConfigurationError, DataError, count, counted
from turnout.data.federated import FederatedData
from turnout.experiment import Experiment
from turnout.reporting.grid import Sweep, assignments, by_name, grid_csv, grid_table
from turnout.reporting.measure import Measure
from turnout.reporting.range import Range
from turnout.reporting.records import RunRecord
from turnout.reporting.search import Search
from turnout.reporting.sweep_page import edge_note, write_sweep


@dataclass(frozen=True)
class Asked:
    """What a sweep was asked for.

    Attributes:
        options: of the command line.
        under: layers of settings, the last one first.
        axes: what to try.
        seeds: of the runs of each point.
        measure: what decides.
        to_accuracy: the accuracy to reach, if that decides.
    """

    options: VariantsOptions
    under: Sequence[Table]
    axes: Mapping[str, list[Any] | Range]
    seeds: list[int]
    measure: Measure
    to_accuracy: float | None

    def plan(self, combinations: Mapping[str, Mapping[str, Any]]) -> dict[str, Settings]:
        """Return the settings of points."""
        return {
            name: settings_of(self.under, self.options.algorithm, name, point) for name, point in combinations.items()
        }

    def file(self) -> Table:
        """Return it as a file has it."""
        first = by_name(corners(space_of(self.axes)))
        return sweep_file_of(next(iter(self.plan(first).values())), self.axes, self.seeds, self.to_accuracy)

    def begin(self, what: str, plan: Mapping[str, Settings]) -> tuple[Path, int | None]:
        """Check a plan and say what is about to run: where, and how many runs at a time."""
        first, config = next(iter(plan.values())), self.options.config
        name = config.stem if config else f"sweep-{first.table['data']['name']}"
        folder = self.options.folder or Path("runs") / name
        at_once = self.options.at_once([first])
        shared = check(plan, self.seeds, folder, self.measure)
        if not self.options.quiet:
            introduce(f"{what}, {counted(len(self.seeds), 'seed')}", plan.values(), shared)
        return folder, at_once

    def runs(self, plan: Mapping[str, Settings], folder: Path) -> list[Run]:
        """Return the runs of a plan, whose settings are kept beside them."""
        save_all(plan, self.seeds, folder)
        return runs_of(plan, self.seeds, folder, self.options.checkpoint_every)


def foresee(asked: Asked, num_trials: int | None) -> None:
    """Show what would run: every point of a grid, or the ends of what a search chooses among."""
    tried = points(asked.axes) if num_trials is None else by_name(corners(space_of(asked.axes)))
    runs = (num_trials or len(tried)) * len(asked.seeds)
    show(planned_of_all(asked.plan(tried), asked.seeds, "point", runs))


def run_grid(asked: Asked) -> None:
    """Run every combination, and tell the best."""
    combinations = points(asked.axes)
    plan = asked.plan(combinations)
    folder, jobs = asked.begin(counted(len(plan), "point"), plan)

    def tell_of(records: Sequence[RunRecord]) -> None:
        found = sorted_out(asked.axes, combinations, records, asked.measure, asked.to_accuracy)
        conclude(found, folder, asked.options.report)

    try:
        with (
            asked.options.resources(jobs, folder) as resources,
            watched(len(plan) * len(asked.seeds), asked.options.quiet) as tell,
        ):
            done = perform_all(asked.runs(plan, folder), folder, resources, tell)
    except RunsFailed as failed:
        if failed.records:
            tell_of(failed.records)
        raise
    tell_of(list(done.values()))


def run_trials(asked: Asked, num_trials: int, sampler: str, sampler_seed: int, trials_at_once: int) -> None:
    """Try as many combinations as were asked for, and tell the best."""
    count("trials", num_trials)
    space = space_of(asked.axes)
    tried = asked.plan(by_name(corners(space)))
    folder, jobs = asked.begin(counted(num_trials, "trial"), tried)
    study = Study(
        folder, space, asked.measure, asked.seeds,
        sampler=sampler, sampler_seed=sampler_seed, trials_at_once=trials_at_once,
    )  # fmt: skip
    left = max(num_trials - len(study.points), 0)
    with (
        asked.options.resources(jobs, folder) as resources,
        watched(left * len(asked.seeds), asked.options.quiet) as tell,
    ):
        found = search(
            study, num_trials, lambda batch: asked.runs(asked.plan(batch), folder),
            lambda name, point: asked.plan({name: point})[name], asked.to_accuracy,
            resources=resources, progress=tell,
        )  # fmt: skip
    conclude(found, folder, asked.options.report)


def grid_of(tables: Sequence[Any], written: Sequence[str]) -> dict[str, list[Any] | Range]:
    """Return the axes of a grid, from tables ``[grid]`` of files and from how they are written on the command line.

    An axis has values, ``0.01,0.1``, or is a `Range`, ``0.001..1:log``.

    Raises:
        ConfigurationError: for what is no axis.
    """
    axes: dict[str, list[Any] | Range] = {}
    for table in tables:
        axes |= _flat(table)
    for text in written:
        key, equals, values = text.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f"--grid {text!r}: needed a setting and its values, such as local.lr=0.01,0.1")
        listed = [layers.override(f"value={value}")["value"] for value in _values(values)]
        axes[key.strip()] = Range.read(values) or listed
    if not axes:
        raise ConfigurationError("name at least one axis: turnout sweep --grid local.lr=0.01,0.1")
    for key in axes:
        if key.partition(".")[0] in ("seed", "seeds", "name", "to_accuracy", "algorithms"):
            raise ConfigurationError(f"{key} is no axis of a grid; seeds go with --seeds, and names are given")
    return axes


def _flat(table: Any, place: str = "") -> dict[str, list[Any] | Range]:
    """Axes of nested tables: ``local.lr = [0.01, 0.1]`` in TOML is a table in a table."""
    if isinstance(table, Mapping):
        return {
            key: values
            for name, each in table.items()
            for key, values in _flat(each, f"{place}.{name}" if place else name).items()
        }
    if found := Range.read(table):
        return {place: found}
    if not isinstance(table, list):
        raise ConfigurationError(
            f"grid {place}: got {table!r}, needed a list of values, such as [0.01, 0.1], or a range, such as '0.001..1:log'"
        )
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


def settings_of(under: Sequence[Table], algorithm: str | None, name: str, point: Mapping[str, Any]) -> Settings:
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


def is_validated(layers: Sequence[Table]) -> bool:
    """Return whether settings keep validation examples."""
    tables = [as_table("data", layer.get("data", {})) for layer in layers]
    return any(table.get("validation_fraction") or table.get("validation_clients") for table in tables)


def check(plan: Mapping[str, Settings], seeds: Sequence[int], folder: Path, measure: Measure) -> FederatedData:
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
    return next(iter(loaded.values()))


def save_all(plan: Mapping[str, Settings], seeds: Sequence[int], folder: Path) -> None:
    """Keep the settings of every run beside it."""
    for name, settings in plan.items():
        for seed in seeds:
            save(settings.seeded(seed), folder / name / f"seed-{seed}")


def conclude(found: Sweep, folder: Path, report: bool) -> None:
    """Print the table and the best point, keep all figures, write the report."""
    show(grid_table(found))
    warn_of_dropped(record for group in found.records.values() for record in group)
    keep(folder, {"results.csv": grid_csv(found)})
    typer.echo(f"runs and tables: {folder}")
    if report:
        what = "trials" if isinstance(found, Search) else "points"
        title = f"{len(found.points)} {what} over {' and '.join(found.axes)}"
        announce(folder, lambda: write_sweep(found, folder / "report.html", title))
    for name, point in found.best_for("algorithm").items() if "algorithm" in found.axes else ():
        typer.echo(f"best of {name}: {assignments(found.points[point])}, {found.scores[point].text}")
    typer.echo(f"best: {assignments(found.best)}")
    if found.measure.metric == "test_accuracy" or (found.measure.metric is None and not found.is_validated):
        say(
            "chosen by test examples: with data.validation_fraction=0.1, choosing leaves the test alone", style="yellow"
        )
    if note := edge_note(found):
        say(note, style="yellow")
    if isinstance(found, Search) and found.failures:
        name, why = next(iter(found.failures.items()))
        say(f"{counted(len(found.failures), 'trial')} failed and count as the worst: {name}, {why}", style="yellow")
