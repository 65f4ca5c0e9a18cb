"""Find the cells of the benchmark whose participation is nearest, and try the rules that led there on a trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from turnout.core.random import generator
from turnout.population import Population
from turnout.population.availability import Trace
from turnout.results.statistics import Gap, gap, holm
from turnout.workbench.advise.participation import Participation, available_in
from turnout.workbench.benchmark.cells import Cell, Version
from turnout.workbench.benchmark.figures import figures_of
from turnout.workbench.benchmark.rows import Row
from turnout.workbench.benchmark.standings import Standing, Table

NUM_CELLS, NUM_RULES = 3, 3


@dataclass(frozen=True)
class Trial:
    """A rule on the trace: its paired difference from the plain mean, with p by Holm's method over the tried rules."""

    rule: str
    options: dict[str, object]
    gap: Gap
    p: float

    @property
    def is_better(self) -> bool:
        """True if the rule is significantly better than the plain mean."""
        return self.gap.mean > 0 and self.p < 0.05


def nearest(seen: Participation, version: Version, tier: str = "small") -> list[tuple[Cell, float]]:
    """Return the cells with the most similar participation and their distances, in standard deviations over all cells.

    Cells about speed are left out, because a trace does not contain speeds.
    """
    cells = [
        cell for cell in version.of_tier(tier) if "pace" not in cell.settings and "population" not in cell.settings
    ]
    vectors = np.array(
        [Participation.of(available_in(cell.experiment(version.reference, {}, 0))).vector for cell in cells]
    )
    distances = np.linalg.norm((vectors - seen.vector) / vectors.std(axis=0).clip(1e-9), axis=1)
    order = np.argsort(distances, kind="stable")[:NUM_CELLS]
    return [(cells[index], float(distances[index])) for index in order]


def leaders(table: Table, cells: Iterable[Cell]) -> list[str]:
    """Return the rules with the largest mean difference from the plain mean in these cells, best first."""
    names = [cell.name for cell in cells]
    found = {rule: [row[name].gap for name in names if name in row] for rule, row in table.standings.items()}
    means = {rule: np.mean([each.mean for each in gaps if each]) for rule, gaps in found.items() if any(gaps)}
    return sorted(means, key=lambda rule: -means[rule])[:NUM_RULES]


def standing(table: Table, cell: Cell) -> list[tuple[str, Standing]]:
    """Return the rules of a cell that are significantly better than the plain mean, best first."""
    rows = [(rule, row[cell.name]) for rule, row in table.standings.items() if cell.name in row]
    return sorted((each for each in rows if each[1].is_better), key=lambda each: each[1].rank)


def tried(present: np.ndarray, rules: Sequence[str], rows: Sequence[Row], cell: Cell, version: Version) -> list[Trial]:
    """Run rules and the plain mean on a trace with the data of a cell and the options that were tuned there.

    As many clients as the cell has are drawn from the trace. They hold the examples of the cell, whatever their own labels.
    """
    options = {
        row["rule"]: row["cells"][cell.name]["options"] for row in rows if "runs" in row["cells"].get(cell.name, {})
    }
    known = [version.reference, *(rule for rule in rules if rule in options)]
    accuracy = {
        rule: {seed: _accuracy(present, rule, options[rule], cell, seed) for seed in version.seeds} for rule in known
    }
    gaps = {rule: gap(accuracy[rule], accuracy[version.reference]) for rule in known[1:]}
    compared = {rule: each for rule, each in gaps.items() if each is not None}
    adjusted = holm([each.p for each in compared.values()])
    trials = [Trial(rule, options[rule], each, p) for (rule, each), p in zip(compared.items(), adjusted, strict=True)]
    return sorted(trials, key=lambda trial: -trial.gap.mean)


def _accuracy(present: np.ndarray, rule: str, options: dict[str, object], cell: Cell, seed: int) -> float:
    """Return the test accuracy of a rule on a trace."""
    experiment = cell.experiment(rule, options, seed)
    number = experiment.data.num_clients
    chosen = generator("clients of a trace", seed).choice(len(present), number, replace=len(present) < number)
    trace = Trace(visits(present[chosen]), rounds=present.shape[1])
    run = replace(experiment, population=Population(availability=trace)).run()
    return float(figures_of(run, cell.target)["test_accuracy"] or 0.0)


def visits(present: np.ndarray) -> tuple[tuple[int, int, int], ...]:
    """Return the visits of each client: client, first round, and the round after the last."""
    changes = np.diff(np.pad(present.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    clients, starts = np.nonzero(changes == 1)
    return tuple(zip(clients.tolist(), starts.tolist(), np.nonzero(changes == -1)[1].tolist(), strict=True))
