"""``turnout sweep``: a grid over any settings, and the best point of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer

from turnout.cli import layers
from turnout.cli.options import Table
from turnout.cli.output import announce, say, show, warn_of_dropped
from turnout.cli.run import save
from turnout.cli.settings import Settings
from turnout.cli.variants import Layers
from turnout.comparison import is_finished
from turnout.comparison.checks import check_experiments
from turnout.core.checks import ConfigurationError, DataError
from turnout.data.federated import FederatedData
from turnout.experiment import Experiment
from turnout.reporting.grid import Sweep, assignments, grid_csv, grid_table
from turnout.reporting.measure import Measure
from turnout.reporting.sweep_page import edge_note, write_sweep
from turnout.storage import replace_files


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


def prepare(plan: Mapping[str, Settings], seeds: Sequence[int], folder: Path, measure: Measure) -> FederatedData:
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


def conclude(found: Sweep, folder: Path, report: bool) -> None:
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
