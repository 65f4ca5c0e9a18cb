"""``turnout compare``: several algorithms with several seeds, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import typer

from turnout.cli import layers, own
from turnout.cli.options import Table
from turnout.cli.output import announce, keep, show, warn_of_dropped
from turnout.cli.run import save
from turnout.cli.sections import as_table
from turnout.cli.settings import Settings
from turnout.cli.variants import Layers
from turnout.comparison import is_finished
from turnout.comparison.checks import check_experiments
from turnout.core.checks import ConfigurationError
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


def asked(texts: Sequence[str], given: Sequence[Table]) -> tuple[Layers, dict[str, Settings]]:
    """Return what is asked for by file, flags, names and settings, and the settings of every algorithm."""
    wanted, recipes = own.named([text for text in texts if "=" not in text])
    overrides = [layers.override(text) for text in texts if "=" in text]
    if any("name" in as_table("algorithm", layer.get("algorithm", {})) for layer in overrides):
        raise ConfigurationError("algorithm is not for comparisons: write the names of algorithms without algorithm=")
    found = Layers.of([*given[:-1], recipes, given[-1], *overrides], wanted)
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


def prepare(plan: dict[str, Settings], seeds: list[int], folder: Path, target: bool) -> FederatedData:
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
    for seed in seeds:
        for name, settings in plan.items():
            save(settings.seeded(seed), folder / name / f"seed-{seed}")
    return shared


def conclude(
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
    keep(folder, {"results.csv": csv(rows, spent)})
    typer.echo(f"runs and tables: {folder}")
    if report:
        path, title = folder / "report.html", f"Comparison on {data.name}"
        announce(folder, lambda: write_report(records, path, data=data, title=title, to_accuracy=to_accuracy))
