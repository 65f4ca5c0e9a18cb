"""Tune the options of one rule with a budget of client updates: successive halving on paired seeds, and a range that grows.

The search does not run anything itself. `perform` runs trials and returns their figures, in one process or in many, so that
the choice depends on the figures alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Protocol

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
        edges: axes on which a neighbor of the choice was not tried, because the budget ended.
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

    All combinations of the values run a third of the rounds with the first seed, and the best third of them run all rounds.
    Then the neighbors of the best point, one step away on one axis, are raced against it at all rounds. A step is the ratio
    of two values, so that the range grows where the best point is at its edge. A candidate stops after the first seed on
    which it is not better, and takes the place of the best point if it is better on every seed. The search ends when all
    neighbors of the best point have lost, or when the budget is used up. All comparisons are of equal seeds and rounds.

    Args:
        axes: ascending values of each axis, > 0; neighbors have the ratio of the two smallest ones.
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
        count("rounds", self.rounds)
        count("budget", self.budget)
        if not self.seeds:
            raise ConfigurationError(
                "seeds: got none, needed at least one seed that no reported run has: write seeds=(100,)"
            )
        for axis, values in self.axes.items():
            for value in values:
                positive(axis, value)
            if len(values) < 2 or list(values) != sorted(set(values)):
                raise ConfigurationError(f"{axis}: got {list(values)}, needed at least two ascending values")

    def __call__(self) -> Tuned:
        """Run the search, and return the choice."""
        short = max(1, self.rounds // 3)
        candidates: list[Point] = list(product(*self.axes.values()))
        candidates = self._ranked(candidates, short)[: -(-len(candidates) // 3)]
        best = self._ranked(candidates, self.rounds)[0]
        self._run([best], self.seeds, self.rounds)
        while self.updates < self.budget and (untried := self._untried(best)):
            if self._beats(untried[0], best):
                best = untried[0]
        changed = {index for point in self._untried(best) for index in range(len(best)) if point[index] != best[index]}
        figures = [self._figures[best, seed, self.rounds] for seed in self.seeds]
        return Tuned(
            dict(zip(self.axes, best, strict=True)), sum(figures) / len(figures),
            tuple(axis for index, axis in enumerate(self.axes) if index in changed), self.updates, self._tried(),
        )  # fmt: skip

    def _ranked(self, points: Sequence[Point], rounds: int) -> list[Point]:
        """Return points by their figures with the first seed, the best first."""
        self._run(points, self.seeds[:1], rounds)
        return sorted(points, key=lambda point: self._figures[point, self.seeds[0], rounds], reverse=True)

    def _untried(self, best: Point) -> list[Point]:
        """Return the neighbors of a point that did not run all rounds, those toward larger values first."""
        ratios = [values[1] / values[0] for values in self.axes.values()]
        neighbors = [
            (*best[:index], value, *best[index + 1 :])
            for index, ratio in enumerate(ratios)
            for value in (self._on_lattice(index, best[index] * ratio), self._on_lattice(index, best[index] / ratio))
        ]
        return [point for point in neighbors if (point, self.seeds[0], self.rounds) not in self._figures]

    def _on_lattice(self, index: int, value: float) -> float:
        """Return the value of an axis that was tried and is equal up to rounding; else the value itself."""
        return next((known for known in list(self._tried().values())[index] if math.isclose(known, value)), value)

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


class Tuner(Protocol):
    """Chooses values for the experiments of a comparison, as `turnout.Tune` does."""

    def choose(
        self,
        experiments: Mapping[str, Callable[..., Any]],
        reported: Sequence[int],
        folder: Path,
        resources: Any,
        progress: Any,
    ) -> dict[str, Tuned]:
        """Return the chosen values of each experiment; `reported` are the seeds of the comparison."""
        ...
