"""Plan a sweep: the axes of its grid and the settings of each point; print the best point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from turnout.cli import layers
from turnout.cli.console import say, show
from turnout.cli.dry_run import planned_of_all
from turnout.cli.options import Table
from turnout.cli.print_config import BEST, best_comparison, sweep_file_of
from turnout.cli.run import settings_of
from turnout.cli.run_plan import Plan
from turnout.cli.runs import introduce, perform, performing, warn_of_dropped, write_page, write_tables
from turnout.cli.runs_options import SweepOptions
from turnout.cli.sections import as_table
from turnout.cli.variants import Layers, seeds_of
from turnout.comparison.run import Resources, Run
from turnout.comparison.search import search
from turnout.comparison.study import Study, corners, space_of
from turnout.comparison.sweep import grid_result, measure_of, points
from turnout.core.checks import ConfigurationError, count, counted
from turnout.record import storage
from turnout.record.describe import flat
from turnout.reporting.sweep_page import edge_note, test_note, write_sweep
from turnout.results.grid import Search, Sweep, assignments, by_name, grid_csv, grid_table
from turnout.results.measure import Measure
from turnout.results.range import Range
from turnout.results.records import RunRecord


@dataclass(frozen=True)
class SweepPlan:
    """A planned sweep.

    Attributes:
        options: options of the command line.
        under: layers of settings; later ones override earlier ones.
        axes: values or a range for each axis.
        seeds: seeds of the runs of each point.
        measure: measure to optimize.
        to_accuracy: target accuracy, if the measure is the number of rounds until it.
        held_out: whether the first layer holds out validation examples for the sweep alone.
    """

    options: SweepOptions
    under: Sequence[Table]
    axes: Mapping[str, list[Any] | Range]
    seeds: list[int]
    measure: Measure
    to_accuracy: float | None
    held_out: bool = False

    @classmethod
    def of(cls, options: SweepOptions) -> SweepPlan:
        """Return the sweep of a command line.

        Raises:
            ConfigurationError: if axes, seeds or measures are invalid.
        """
        under = options.layers(seeds=options.seeds, to_accuracy=options.to_accuracy)
        under += map(layers.override, options.overrides or ())
        axes = grid_of([layer.pop("grid", {}) for layer in under], options.grid or ())
        if held_out := options.metric is None and not _mentions_validation(under, axes):
            under.insert(0, {"data": {"validation_fraction": 0.1}})  # so that test examples do not choose
        whole = Layers.of(under)
        measure = measure_of(options.metric, whole.to_accuracy, layers.is_validated(layers.data_of(under)))
        return cls(
            options,
            under,
            axes,
            seeds_of(3 if whole.seeds is None else whole.seeds),
            measure,
            whole.to_accuracy,
            held_out,
        )

    def plan(self, points: Mapping[str, Mapping[str, Any]]) -> Plan:
        """Return the runs of points."""
        settings = {
            name: settings_of(self.under, self.options.algorithm, name, point) for name, point in points.items()
        }
        config = self.options.config
        kind = "sweep" if self.options.trials is None else "search"
        name = config.stem if config else f"{kind}-{next(iter(settings.values())).table['data']['name']}"
        return Plan(settings, self.seeds, self.options.folder or Path("runs") / name)

    def ends(self) -> dict[str, Mapping[str, Any]]:
        """Return points that contain every value and both ends of every range."""
        return by_name(corners(space_of(self.axes)))

    def file(self) -> Table:
        """Return the sweep as the content of a file."""
        settings = next(iter(self.plan(self.ends()).settings.values()))
        return sweep_file_of(settings, self.axes, self.seeds, self.to_accuracy)

    def foresee(self) -> None:
        """Show the sizes of runs: of each point of a grid, or of the ends of a search space."""
        trials = self.options.trials
        tried = points(self.axes) if trials is None else self.ends()
        show(planned_of_all(self.plan(tried), "point", (trials or len(tried)) * len(self.seeds)))

    def begin(self, what: str, plan: Plan) -> Resources:
        """Check settings, print a summary, and return the resources of the runs."""
        resources, measure = self.options.resources(list(plan.settings.values())[:1], self.options.device), self.measure
        data = plan.check(measure.metric or measure.kind, target=measure.metric is None)
        if not self.options.quiet:
            introduce(f"{what}, {counted(len(self.seeds), 'seed')}", plan.settings.values(), data)
        return resources

    def run_grid(self) -> None:
        """Run every combination, and print the best."""
        combinations = points(self.axes)
        plan = self.plan(combinations)
        resources = self.begin(counted(len(combinations), "point"), plan)
        plan = plan.placed(Plan.check_folder, numbered=self.options.folder is None)

        def tell(done: Mapping[Run, RunRecord], _: str = "") -> None:
            result = grid_result(self.axes, combinations, list(done.values()), self.measure, self.to_accuracy)
            self.conclude(result, plan.folder)

        perform(self.options, plan.runs(self.options.checkpoint_every), plan.folder, resources, tell)

    def run_trials(self, number: int) -> None:
        """Try a number of combinations, and print the best."""
        count("trials", number)
        options, ends = self.options, self.plan(self.ends())
        resources = self.begin(counted(number, "trial"), ends)
        study = Study(
            ends.folder, space_of(self.axes), self.measure, self.seeds,
            sampler=options.sampler, sampler_seed=options.sampler_seed, trials_at_once=options.trials_at_once,
        )  # fmt: skip
        left = max(number - len(study.points), 0)
        with performing(options, resources, ends.folder, left * len(self.seeds)) as (resources, listener):
            result = search(
                study, number, lambda batch: self.plan(batch).runs(options.checkpoint_every),
                lambda name, point: self.plan({name: point}).settings[name], self.to_accuracy,
                resources=resources, progress=listener,
            )  # fmt: skip
        self.conclude(result, ends.folder)

    def conclude(self, result: Sweep, folder: Path) -> None:
        """Print and write the results, and write the comparison of the best points."""
        conclude(result, folder, self.options.report)
        text = best_comparison(result, self.under[self.held_out :], self.options.algorithm, self.seeds)
        path = folder / BEST
        storage.replace_files({path: storage.text_writer(text)})
        say(f"compare the best on other seeds: turnout compare --config {path}")


def grid_of(tables: Sequence[Any], written: Sequence[str]) -> dict[str, list[Any] | Range]:
    """Return the axes of a grid, from tables ``[grid]`` of files and options of the command line.

    An axis has values, ``0.01,0.1``, or is a `Range`, ``0.001..1:log``.

    Raises:
        ConfigurationError: if an axis is invalid.
    """
    axes: dict[str, list[Any] | Range] = {}
    for table in tables:
        axes |= {name: _axis(name, values) for name, values in flat(table)}
    for text in written:
        key, equals, values = map(str.strip, text.partition("="))
        if not equals or not key:
            raise ConfigurationError(f"--grid {text!r}: needed a setting and its values, such as local.lr=0.01,0.1")
        axes[key] = Range.read(values) or [layers.value_of(value, key) for value in _values(values)]
    if not axes:
        raise ConfigurationError("name at least one axis: turnout sweep --grid local.lr=0.01,0.1")
    for key in axes:
        if key.partition(".")[0] in ("seed", "seeds", "name", "to_accuracy", "algorithms"):
            raise ConfigurationError(f"{key} cannot be an axis of a grid; --seeds sets seeds, and names are automatic")
    return axes


def _axis(name: str, values: Any) -> list[Any] | Range:
    """Return the values or range of an axis of a file."""
    if (among := Range.read(values)) is None and not isinstance(values, list):
        raise ConfigurationError(
            f"grid {name}: got {values!r}, needed a list of values, such as [0.01, 0.1], or a range, such as '0.001..1:log'"
        )
    return among or values


def _values(text: str) -> list[str]:
    """Split the values of an axis at commas, except for those in brackets, braces or quotes."""
    values, depth, quoted = [""], 0, ""
    for letter in text:
        if quoted:
            quoted = "" if letter == quoted else quoted
        elif letter in "\"'":
            quoted = letter
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and not depth and not quoted:
            values.append("")
        else:
            values[-1] += letter
    return [value.strip() for value in values if value.strip()]


def _mentions_validation(under: Sequence[Table], axes: Iterable[str]) -> bool:
    """Return whether settings or axes specify validation examples, or none."""
    tables = [as_table("data", layer.get("data", {})) for layer in under]
    return any(name in table or f"data.{name}" in axes for table in tables for name in layers.VALIDATION)


def conclude(result: Sweep, folder: Path, report: bool) -> None:
    """Print the table and the best point, and write the results and the report."""
    show(grid_table(result))
    warn_of_dropped(result.all_records)
    write_tables(folder, {"results.csv": grid_csv(result)})
    if report:
        what = "trials" if isinstance(result, Search) else "points"
        title = f"{len(result.points)} {what} over {' and '.join(result.axes)}"
        write_page(folder, lambda path: write_sweep(result, path, title))
    _tell_best(result)
    for note in filter(None, (test_note(result), edge_note(result))):
        say(note, style="yellow")
    if isinstance(result, Search) and result.failures:
        name, why = next(iter(result.failures.items()))
        say(f"{counted(len(result.failures), 'trial')} failed, which count as the worst: {name}, {why}", style="yellow")


def _tell_best(result: Sweep) -> None:
    """Print the best point, also per algorithm, and its test accuracy if validation examples chose it."""
    for name, point in result.best_for("algorithm").items() if "algorithm" in result.axes else ():
        typer.echo(f"best of {name}: {assignments(result.points[point])}, {result.scores[point].text}")
    if (metric := result.measure.metric or "").startswith("validation_"):
        tested = Measure("final", metric.replace("validation", "test", 1))
        records = [
            record for record in result.records[result.best_point] if record.history.has_values(str(tested.metric))
        ]
        if records:
            mean = sum(map(tested.of, records)) / len(records)
            typer.echo(f"{tested.title} of the best: {tested.number(mean)}")
    typer.echo(f"best: {assignments(result.best)}")
