"""Tune the options of one rule with a budget of client updates: successive halving on paired seeds, and a range that grows.

The search does not run anything itself. `perform` runs trials and returns their figures, in one process or in many, so that the
choice depends on the figures alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from turnout.core.checks import ConfigurationError, count, positive

Point = tuple[float, ...]
"""A value of each axis, in the order of the axes."""


class Trial(NamedTuple):
    """A run of one candidate: its values by axis, its seed, and its number of rounds."""

    values: Mapping[str, float]
    seed: int
    rounds: int


class Outcome(NamedTuple):
    """The figure of a trial, the larger the better, and the client updates that it took; a failure is ``-inf``."""

    figure: float
    updates: int


@dataclass(frozen=True)
class Tuned:
    """The result of a search.

    Attributes:
        values: the chosen value of each axis.
        figure: the mean figure of the choice over the seeds of the search.
        edges: axes on which the choice is the smallest or the largest value that was tried, because the budget ended.
        updates: client updates that the search took.
        tried: the values of each axis that were tried, ascending.
    """

    values: dict[str, float]
    figure: float
    edges: tuple[str, ...]
    updates: int
    tried: dict[str, list[float]]


@dataclass
class Search:
    """Choose the values of axes for one rule.

    All combinations of the values run a quarter of the rounds with the first seed. The best third of them run all rounds with
    that seed, and the best two of these with all seeds. While the best point has the smallest or the largest value of an axis
    and the budget lasts, the next value of the axis is tried beside it; a candidate stops after the first seed on which it
    is not better. All comparisons are of equal seeds and rounds.

    Args:
        axes: ascending values of each axis, > 0; the range grows by the ratio of the two outermost values.
        rounds: number of rounds of a whole run.
        seeds: seeds of the search, which no reported run has.
        budget: number of client updates after which no further trial begins.
        perform: runs trials, and returns their outcomes in the same order.

    Raises:
        ConfigurationError: if an axis has fewer than two ascending positive values, or there are no seeds.

    Example:
        The best value, 8, is outside of the values that are tried first:

        >>> def perform(trials):
        ...     return [Outcome(-abs(trial.values["lr"] - 8.0), trial.rounds) for trial in trials]
        >>> tuned = Search({"lr": (0.5, 1.0, 2.0)}, 40, (100, 101), 2000, perform)()
        >>> tuned.values, tuned.edges
        ({'lr': 8.0}, ())
    """

    axes: Mapping[str, Sequence[float]]
    rounds: int
    seeds: Sequence[int]
    budget: int
    perform: Callable[[Sequence[Trial]], Sequence[Outcome]]
    updates: int = 0
    _figures: dict[tuple[Point, int, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count("rounds", self.rounds, least=4)
        count("budget", self.budget)
        if not self.seeds:
            raise ConfigurationError("seeds: got none, needed at least one seed that no reported run has: write seeds=(100,)")
        for axis, values in self.axes.items():
            for value in values:
                positive(axis, value)
            if len(values) < 2 or list(values) != sorted(set(values)):
                raise ConfigurationError(f"{axis}: got {list(values)}, needed at least two ascending values")

    def __call__(self) -> Tuned:
        """Run the search, and return the choice."""
        first, short = self.seeds[:1], max(1, self.rounds // 4)
        candidates: list[Point] = list(product(*self.axes.values()))
        candidates = self._best(candidates, first, short, -(-len(candidates) // 3))
        candidates = self._best(candidates, first, self.rounds, 2)
        best = self._best(candidates, self.seeds, self.rounds, 1)[0]
        while self.updates < self.budget and (step := next(self._beyond(best), None)) is not None:
            if self._beats(step, best):
                best = step
        values = self._tried()
        edges = [axis for axis, value in zip(self.axes, best, strict=True) if value in (values[axis][0], values[axis][-1])]
        return Tuned(
            dict(zip(self.axes, best, strict=True)), self._mean(best), tuple(edges), self.updates, values
        )

    def _best(self, points: Sequence[Point], seeds: Sequence[int], rounds: int, number: int) -> list[Point]:
        """Return the best points by their mean over the seeds."""
        self._run(points, seeds, rounds)

        def mean(point: Point) -> float:
            return sum(self._figures[point, seed, rounds] for seed in seeds) / len(seeds)

        return sorted(points, key=mean, reverse=True)[:number]

    def _beyond(self, best: Point) -> Iterable[Point]:
        """Yield the neighbors of a point outside of the range of each axis, which were not tried."""
        return iter(
            [
                (*best[:index], value, *best[index + 1 :])
                for index, (axis, values) in enumerate(self._tried().items())
                for edge, value in (
                    (values[0], values[0] * values[0] / values[1]),
                    (values[-1], values[-1] * values[-1] / values[-2]),
                )
                if best[index] == edge and self.axes[axis]
            ]
        )

    def _beats(self, candidate: Point, best: Point) -> bool:
        """Race a candidate against the best point, seed by seed; it stops at the first seed on which it is not better."""
        for seed in self.seeds:
            self._run([candidate], [seed], self.rounds)
            if not self._figures[candidate, seed, self.rounds] > self._figures[best, seed, self.rounds]:
                return False
        return True

    def _run(self, points: Sequence[Point], seeds: Sequence[int], rounds: int) -> None:
        """Run what was not run before."""
        keys = [(point, seed, rounds) for point in points for seed in seeds]
        new = [key for key in keys if key not in self._figures]
        trials = [Trial(dict(zip(self.axes, point, strict=True)), seed, rounds) for point, seed, rounds in new]
        for key, outcome in zip(new, self.perform(trials), strict=True):
            self._figures[key] = -math.inf if math.isnan(outcome.figure) else outcome.figure
            self.updates += outcome.updates

    def _tried(self) -> dict[str, list[float]]:
        """Return the values of each axis that were tried, ascending."""
        points = {point for point, _, _ in self._figures}
        return {axis: sorted({point[index] for point in points}) for index, axis in enumerate(self.axes)}

    def _mean(self, point: Point) -> float:
        """Return the mean figure of a point over the seeds it ran with, at all rounds."""
        figures = [self._figures[key] for seed in self.seeds if (key := (point, seed, self.rounds)) in self._figures]
        return sum(figures) / len(figures)
