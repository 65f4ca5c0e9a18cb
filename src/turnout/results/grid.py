"""Rank the points of a grid or the trials of a search by their figures, and write them as tables."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, ClassVar

from turnout.core.checks import ConfigurationError, counted
from turnout.results.formats import csv_of
from turnout.results.measure import Measure, accuracy_target
from turnout.results.range import Range
from turnout.results.records import RunRecord
from turnout.results.statistics import Measured, Quartiles
from turnout.results.terminal import TextTable

_SHOWN = 10
"""The number of trials in a terminal's table."""
_EDGE = 0.05
"""The fraction of a range at each end that counts as its edge."""


@dataclass(frozen=True)
class Score:
    """The figure of one point over its seeds.

    Attributes:
        value: the mean, or the median of the costs of reaching the target; infinite if there is none.
        text: the value and its spread, formatted.
        num_seeds: number of finished runs.
    """

    value: float
    text: str
    num_seeds: int


@dataclass(frozen=True, eq=False)
class Sweep:
    """The finished runs of a grid.

    Attributes:
        axes: the values of each axis, by name.
        points: the values of each combination, by the name of the combination.
        records: the runs of each combination.
        measure: measure by which combinations are ranked.
        to_accuracy: the target, for costs of reaching it.
    """

    axes: Mapping[str, tuple[Any, ...]]
    points: Mapping[str, Mapping[str, Any]]
    records: Mapping[str, Sequence[RunRecord]]
    measure: Measure
    to_accuracy: float | None = None

    leading: ClassVar[tuple[str, ...]] = ()
    """Titles of table columns before the axes."""

    @property
    def all_records(self) -> list[RunRecord]:
        """The runs of all combinations."""
        return list(chain.from_iterable(self.records.values()))

    def __repr__(self) -> str:
        points = counted(len(self.points), *(self.leading or ("point",)))
        return f"{type(self).__name__}({points} over {' and '.join(self.axes)}, by {self.measure})"

    @cached_property
    def figures(self) -> dict[str, dict[int, float]]:
        """The figure of every finished run, by point and seed.

        Raises:
            ConfigurationError: if a run did not record the measure.
        """
        records = self.all_records
        target = accuracy_target(records, self.to_accuracy) if self.to_accuracy is not None and records else None
        return {
            name: {record.seed: self.measure.of(record, target) for record in group}
            for name, group in self.records.items()
        }

    @cached_property
    def scores(self) -> dict[str, Score]:
        """The score of every point with finished runs."""
        return {name: self._score(list(figures.values())) for name, figures in self.figures.items() if figures}

    @property
    def ranking(self) -> list[str]:
        """The points with the largest number of finished seeds, best first; ties in the order of the grid."""
        most = max((score.num_seeds for score in self.scores.values()), default=0)
        complete = [name for name, score in self.scores.items() if score.num_seeds == most]
        sign = 1.0 if self.measure.less_is_better else -1.0
        return sorted(complete, key=lambda name: sign * self.scores[name].value)

    @property
    def shown(self) -> list[str]:
        """The points in a terminal's table."""
        return list(self.points)

    @property
    def best_point(self) -> str:
        """The name of the best point.

        Raises:
            ConfigurationError: if no point has a finite figure.
        """
        ranking = self.ranking
        if not ranking or not math.isfinite(self.scores[ranking[0]].value):
            raise ConfigurationError(f"no point of the grid has a finite figure of {self.measure}")
        return ranking[0]

    @property
    def best(self) -> dict[str, Any]:
        """The values of the best point, by axis."""
        return dict(self.points[self.best_point])

    @property
    def at_the_edge(self) -> list[str]:
        """The axes of three or more numbers on which the best point has the least or the greatest value."""
        best, numbers = self.best, {axis: values for axis, values in self.axes.items() if are_numbers(values)}
        return [
            axis for axis, values in numbers.items() if len(values) > 2 and best[axis] in (min(values), max(values))
        ]

    def best_for(self, axis: str) -> dict[str, str]:
        """Return the name of the best point for every value of one axis, by the text of the value."""
        ranking = [name for name in self.ranking if math.isfinite(self.scores[name].value)]
        best: dict[str, str] = {}
        for name in ranking:
            best.setdefault(written(self.points[name][axis]), name)
        return {text: best[text] for text in map(written, self.axes[axis]) if text in best}

    def _score(self, figures: list[float]) -> Score:
        if self.measure.metric is None:
            quartiles = Quartiles.over(figures)
            reached = f", {quartiles.num_finite}/{quartiles.num}" if quartiles.num_finite < quartiles.num else ""
            return Score(quartiles.median, self.measure.shown(quartiles) + reached, quartiles.num)
        mean = Measured.over(figures)
        spread = "" if mean.std is None or not math.isfinite(mean.mean) else f" ± {self.measure.number(mean.std)}"
        text = f"{self.measure.number(mean.mean)}{spread}" if math.isfinite(mean.mean) else "diverged"
        return Score(mean.mean, text, len(figures))


@dataclass(frozen=True, eq=False)
class Search(Sweep):
    """The finished trials of a search; the name of a point is ``trial-7``.

    Attributes:
        space: the range or values of each axis.
        failures: reasons of failed trials, by name.
    """

    space: Mapping[str, Range | Sequence[Any]] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    leading: ClassVar[tuple[str, ...]] = ("trial",)

    @property
    def shown(self) -> list[str]:
        """The trials in a terminal's table: the best ones, best first."""
        return self.ranking[:_SHOWN]

    @property
    def at_the_edge(self) -> list[str]:
        """The axes on which the best trial is near an end of the range."""
        best = self.best
        ranges = {axis: space for axis, space in self.space.items() if isinstance(space, Range)}
        return [axis for axis, space in ranges.items() if not _EDGE <= space.position(best[axis]) <= 1 - _EDGE]

    @cached_property
    def best_so_far(self) -> list[float]:
        """The best figure up to each trial, among those with all seeds; NaN before the first."""
        complete, worst = set(self.ranking), self.measure.worst
        values = [self.scores[name].value if name in complete else worst for name in self.points]
        bests = accumulate(values, min if self.measure.less_is_better else max)
        return [best if math.isfinite(best) else math.nan for best in bests]


def are_numbers(values: Sequence[Any]) -> bool:
    """Return whether all values of an axis are numbers."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def written(value: Any) -> str:
    """Format a value for the command line: a list as ``64,30``, a table as ``{kind = "cosine"}``."""
    if isinstance(value, list | tuple):
        return ",".join(map(written, value))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {json.dumps(inner)}" for key, inner in value.items()) + "}"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def by_name(points: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Name points for folders: ``lr-0.01_mu-0.1``.

    Raises:
        ConfigurationError: if two points have the same name.
    """
    by_name: dict[str, Mapping[str, Any]] = {}
    for point in points:
        ends = [axis.rpartition(".")[2] for axis in point]
        short = [axis if ends.count(end) > 1 else end for axis, end in zip(point, ends, strict=True)]
        plain = [re.sub(r"[^\w.-]+", "-", written(value)) for value in point.values()]
        name = "_".join(f"{axis}-{value}" for axis, value in zip(short, plain, strict=True))
        if name in by_name:
            raise ConfigurationError(f"grid: two points are called {name}: give each value once")
        by_name[name] = point
    return by_name


def assignments(point: Mapping[str, Any]) -> str:
    """Format a point as quoted settings of the command line: ``local.lr=0.03 also.prox.mu=0.1``."""
    return " ".join(shlex.quote(f"{axis}={written(value)}") for axis, value in point.items())


def titles(sweep: Sweep) -> list[str]:
    """Return the titles of the columns of a sweep's table."""
    return [*sweep.leading, *sweep.axes, sweep.measure.title]


def cells(sweep: Sweep, name: str) -> list[str]:
    """Return the cells before the figure of a point."""
    return [*(name.rpartition("-")[2] for _ in sweep.leading), *map(written, sweep.points[name].values())]


def grid_table(sweep: Sweep) -> TextTable:
    """Return the table of a sweep for a terminal, with the best point in bold; only the best trials of a search."""
    best = sweep.ranking[0] if sweep.ranking else None
    rows = []
    for name in sweep.shown:
        score = sweep.scores.get(name)
        texts = [*cells(sweep, name), "–" if score is None else score.text]
        rows.append([(text, name == best) for text in texts])
    return TextTable(titles(sweep), rows, caption=caption(sweep), names=len(sweep.axes) + len(sweep.leading))


def caption(sweep: Sweep) -> str:
    """Return the caption of a sweep's table, which explains its figures."""
    seeds = max((score.num_seeds for score in sweep.scores.values()), default=0)
    parts = []
    if left := len(sweep.points) - len(sweep.shown):
        parts.append(f"the best {len(sweep.shown)}; {left} more in results.csv")
    if seeds > 1:
        how = "median (quartiles)" if sweep.measure.metric is None else "mean ± standard deviation"
        parts.append(f"{how} over {seeds} seeds")
    return "; ".join(parts)


def grid_csv(sweep: Sweep) -> str:
    """Return a CSV line for each run: the values of its point, its seed, and its figure at full precision."""
    titles = [*sweep.leading, *sweep.axes, "seed", str(sweep.measure)]
    rows = ([*cells(sweep, name), *pair] for name in sweep.points for pair in sweep.figures[name].items())
    return csv_of(titles, rows)
