"""Plan a comparison of algorithms, and write its tables and report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from turnout.cli import layers, user_code
from turnout.cli.console import show
from turnout.cli.options import Table
from turnout.cli.runs import warn_of_dropped, write_page, write_tables
from turnout.cli.sections import as_table
from turnout.cli.settings import Settings
from turnout.cli.variants import Layers
from turnout.comparison.run import Run
from turnout.core.checks import ConfigurationError
from turnout.data.federated import FederatedData
from turnout.reporting.report import write_report
from turnout.results.column import COST
from turnout.results.formats import csv
from turnout.results.measure import accuracy_target, check_accuracy
from turnout.results.records import RunRecord
from turnout.results.table import comparison, rich_table, rich_tables


def planned(words: Sequence[str], under: Sequence[Table]) -> tuple[Layers, dict[str, Settings]]:
    """Return the layers of a comparison, and the settings of each algorithm.

    Args:
        words: words of the command line: names of algorithms and settings.
        under: layers of a file and of flags, the flags last.

    Raises:
        ConfigurationError: if names or settings are invalid.
    """
    names, recipes = user_code.named([word for word in words if "=" not in word])
    overrides = [layers.override(word) for word in words if "=" in word]
    if any("name" in as_table("algorithm", layer.get("algorithm", {})) for layer in overrides):
        raise ConfigurationError("algorithm is not for comparisons: write the names of algorithms without algorithm=")
    whole = Layers.of([*under[:-1], recipes, under[-1], *overrides], names)
    names = names or whole.names
    if not names:
        raise ConfigurationError("name what to compare: turnout compare fedau average_participating")
    if len(set(names)) < len(names):
        raise ConfigurationError(f"an algorithm is named twice: {' '.join(names)}. Two variants need two names")
    layers.refuse_keys(whole.common, "comparisons", {"name": "[algorithms.NAME] algorithm = ...", "seed": "seeds"})
    plan = whole.plan(names)
    if whole.to_accuracy is not None:
        check_accuracy(whole.to_accuracy)
    return whole, plan


def conclude(
    done: Mapping[Run, RunRecord],
    folder: Path,
    data: FederatedData,
    to_accuracy: float | None,
    report: bool,
    tuning: Sequence[Sequence[str]] = (),
) -> None:
    """Print the table, and write the results and the report, with the lines of a search if there was one."""
    records = list(done.values())
    target = None if to_accuracy is None else accuracy_target(records, to_accuracy)
    rows = comparison(records, target=target)
    show(rich_tables(rows))
    warn_of_dropped(records)
    if target is not None:
        show(rich_table(rows, COST, f"until {target}"))
    write_tables(folder, {"results.csv": csv(rows)})
    if report:
        title = f"Comparison on {data.name}"
        options = {"data": data, "title": title, "to_accuracy": to_accuracy, "tuning": tuning}
        write_page(folder, lambda path: write_report(records, path, **options))
