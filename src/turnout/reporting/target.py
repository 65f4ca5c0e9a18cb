"""What it costs to reach a target: rounds, bytes and simulated time, for each algorithm over its seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turnout.core.checks import ConfigurationError, refuse
from turnout.record.schema import CHOOSING
from turnout.reporting.records import RunRecord, by_algorithm, has_column
from turnout.reporting.statistics import Quartiles
from turnout.reporting.style import name_of, scale_of
from turnout.reporting.terminal import Cell, TextTable

COSTS = {"rounds": ("rounds", 1.0), "bytes": ("sent (MB)", 1e-6), "simulated_seconds": ("simulated time (s)", 1.0)}
"""What is counted until a target is reached: its title and the scale it is shown on."""


@dataclass(frozen=True)
class Target:
    """A value that a recorded column is to reach: ``Target("test_accuracy", 0.7)``."""

    metric: str
    value: float

    def __str__(self) -> str:
        unit = " %" if scale_of(self.metric) == 100.0 else ""
        return f"{name_of(self.metric)} {scale_of(self.metric) * self.value:g}{unit}"


@dataclass(frozen=True)
class Cost:
    """The costs of one algorithm until it reached the target.

    Attributes:
        algorithm: its name.
        figures: quartiles over seeds by key of `COSTS`, of what was recorded; infinite where the target was not reached.
    """

    algorithm: str
    figures: dict[str, Quartiles]

    @property
    def reached(self) -> str:
        """The number of seeds that reached the target, of how many: ``"9/10"``."""
        rounds = self.figures["rounds"]
        return f"{rounds.num_finite}/{rounds.num}"


def accuracy_target(records: Sequence[RunRecord], accuracy: float) -> Target:
    """Return the target of an accuracy: of the first of `CHOOSING` that was recorded, validation accuracy before others.

    Raises:
        ConfigurationError: for an accuracy outside (0, 1].
    """
    check_accuracy(accuracy)
    recorded = (name for name in CHOOSING if has_column(records, name))
    return Target(next(recorded, CHOOSING[-1]), float(accuracy))


def check_accuracy(accuracy: Any, name: str = "to_accuracy") -> None:
    """Refuse what is no accuracy to reach."""
    a_number = isinstance(accuracy, int | float) and not isinstance(accuracy, bool)
    if not a_number or not 0.0 < accuracy <= 1.0:
        instead = f"Write {accuracy / 100:g} for {accuracy:g} %" if a_number and 1.0 < accuracy <= 100.0 else ""
        raise refuse(name, given=accuracy, needed="a share of the examples, 0 < accuracy <= 1", instead=instead)


def costs(records: Sequence[RunRecord], target: Target) -> list[Cost]:
    """Return what every algorithm spent until it reached `target`, in the order of first appearance.

    Raises:
        ConfigurationError: for a column that no run has.
    """
    known = {name for record in records for name in record.history.column_names}
    if target.metric not in known:
        raise ConfigurationError(f"no run recorded {target.metric}: needed one of {', '.join(sorted(known))}")
    return [Cost(name, _over_seeds(group, target)) for name, group in by_algorithm(records).items()]


def shown(figure: Quartiles, scale: float = 1.0) -> str:
    """Return median and quartiles, ``25 (19 to 31)``, or ``not reached`` where most seeds did not get there."""
    if not math.isfinite(figure.median):
        return "not reached"
    middle, low, high = (number(scale * value) for value in (figure.median, figure.low, figure.high))
    if figure.num == 1:
        return middle
    return f"{middle} ({low} to {high if math.isfinite(figure.high) else '∞'})"


def number(value: float) -> str:
    """Return a number with about three digits, and all of those before the point."""
    if not math.isfinite(value) or value == round(value):
        return f"{value:,.0f}"
    if abs(value) < 0.01:  # such as gradient norms
        return f"{value:.2g}"
    return f"{value:,.{max(0, min(3, 2 - math.floor(math.log10(abs(value)))))}f}"


def cost_cells(rows: Sequence[Cost]) -> tuple[list[str], list[list[Cell]]]:
    """Return titles of columns, and for each algorithm its cells: text, and whether it leads by more than the spread."""
    keys = [key for key in COSTS if any(key in row.figures for row in rows)]
    least = {key: _leader(key, rows) for key in keys}
    lines = []
    for row in rows:
        line = [(row.reached, False)]
        for key in keys:
            figure = row.figures.get(key)
            text = "–" if figure is None else shown(figure, COSTS[key][1])
            line.append((text, figure is not None and figure is least[key]))
        lines.append(line)
    return ["reached by", *(COSTS[key][0] for key in keys)], lines


def cost_table(rows: Sequence[Cost], target: Target) -> TextTable:
    """Return the costs for a terminal; in bold what is less than all others by more than the spread."""
    titles, lines = cost_cells(rows)
    seeds = max(row.figures["rounds"].num for row in rows)
    caption = f"median (quartiles) over {seeds} seeds" if seeds > 1 else ""
    shown = [[(row.algorithm, False), *line] for row, line in zip(rows, lines, strict=True)]
    return TextTable(["algorithm", *titles], shown, f"until {target}", caption)


def _over_seeds(group: Sequence[RunRecord], target: Target) -> dict[str, Quartiles]:
    """Return quartiles of what one algorithm spent, by cost; those that no seed recorded are left out."""
    recorded = [key for key in COSTS if key == "rounds" or _recorded(group, key)]
    return {key: Quartiles.over([spent_until(record, target, key) for record in group]) for key in recorded}


def _recorded(group: Sequence[RunRecord], cost: str) -> bool:
    return any(record.history.spent(cost) is not None for record in group)


def spent_until(record: RunRecord, target: Target, cost: str) -> float:
    """Return what a run spent until it reached the target, infinite where it did not or that is not known."""
    known = target.metric in record.history.column_names
    reached = record.history.reached(target.metric, target.value) if known else None
    spent = getattr(reached, cost, None)
    return math.inf if spent is None else spent


def _leader(key: str, rows: Sequence[Cost]) -> Quartiles | None:
    """Return the figure of a column whose quartiles are below those of every other; None without one, and with one seed."""
    figures = [row.figures[key] for row in rows if key in row.figures]
    if len(figures) < 2 or any(figure.num < 2 for figure in figures):
        return None
    least = min(figures, key=lambda figure: figure.high)
    return least if all(least.high < other.low for other in figures if other is not least) else None
