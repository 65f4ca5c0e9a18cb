"""Compare the rows of a version: paired differences, Holm's correction, ranks, a critical difference, and leads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

import numpy as np

from turnout.core.checks import ConfigurationError
from turnout.core.extras import imported
from turnout.results.statistics import Gap, Measured, adjusted, gap
from turnout.workbench.benchmark.cells import Cell, Version
from turnout.workbench.benchmark.rows import Row, missing_seeds

RANKED = ("test_accuracy", "client_accuracy")
"""The figures by which rules are ranked: of the shared model, and of the model that serves each client."""

SHARE = 0.75
"""Share of cells in which a rule must be defined to be ranked."""


@dataclass(frozen=True)
class Standing:
    """A rule in a cell.

    Attributes:
        figures: each figure over seeds; absent where a seed has none.
        gap: the paired difference of the ranked figure from the reference, with its p-value adjusted by Holm's method over
            the rules of the cell, NaN for baselines; None for the reference.
        rank: rank of the mean among the rules that are defined in the cell, 1 is the best; ties share their mean rank. NaN
            for baselines.
        edges: options whose tuned value is at the edge of the searched range.
        values: the ranked figure by seed.
    """

    figures: Mapping[str, Measured]
    gap: Gap | None
    rank: float
    edges: tuple[str, ...]
    values: Mapping[int, float]

    @property
    def is_better(self) -> bool:
        """True if the rule is significantly better than the reference."""
        return self.gap is not None and self.gap.is_better


@dataclass(frozen=True)
class Table:
    """The rows of a version beside each other, by a figure.

    Attributes:
        figure: name of the ranked figure.
        cells: the cells of the tier that have rows.
        standings: of each rule in each cell in which it has the figure, by rule and by cell.
        everyone: of baselines and rules, in the same way.
        undefined: reasons why rules are not defined in cells, by rule and by cell.
        ranks: average rank of each rule over the cells in which all ranked rules are defined, ascending.
        ranked_in: these cells.
        nobody: cells in which no rule is significantly better than the reference.
    """

    figure: str
    cells: tuple[Cell, ...]
    standings: Mapping[str, Mapping[str, Standing]]
    everyone: Mapping[str, Mapping[str, Standing]]
    undefined: Mapping[str, Mapping[str, str]]
    ranks: Mapping[str, float]
    ranked_in: tuple[str, ...]
    nobody: tuple[str, ...]

    @cached_property
    def critical(self) -> float | None:
        """The difference of average ranks below which two rules do not differ at the level 0.05; None for one rule."""
        return critical_difference(len(self.ranks), len(self.ranked_in))


def table_of(rows: Iterable[Row], version: Version, tier: str, figure: str = RANKED[0]) -> Table:
    """Compare rows in the cells of a tier by one of the figures `RANKED`.

    Raises:
        ConfigurationError: if a row is of another version, has another hash of a cell or lacks seeds, if two rows have one
            rule, or if none is of the tier.
    """
    rows = list(rows)
    cells = [cell for cell in version.of_tier(tier) if any(cell.name in row["cells"] for row in rows)]
    if not cells:
        raise ConfigurationError(
            f"rows: got none of the {tier} tier: write one by turnout benchmark run {version.reference} --tier {tier}"
        )
    by_rule, names = _checked(rows, version, cells), [cell.name for cell in cells]
    everyone: dict[str, dict[str, Standing]] = {}
    for cell in cells:
        for rule, standing in _in_cell(cell.name, by_rule, version, figure).items():
            everyone.setdefault(rule, {})[cell.name] = standing
    standings = {rule: everyone[rule] for rule in by_rule if rule in everyone and rule not in version.baselines}
    undefined = {
        rule: {name: why for name in names if (why := row["cells"].get(name, {}).get("undefined"))}
        for rule, row in by_rule.items()
    }
    most = max((len(row) for row in standings.values()), default=0)
    # Ranks are of complete blocks. Rules for one kind of pace alone are left out of them, and then cells that others lack.
    ranked = [rule for rule, row in standings.items() if len(row) >= SHARE * most > 0]
    ranked_in = [cell.name for cell in cells if ranked and all(cell.name in standings[rule] for rule in ranked)]
    ranks = _average_ranks({rule: [standings[rule][name] for name in ranked_in] for rule in ranked}, figure)
    better = {name for row in standings.values() for name, standing in row.items() if standing.is_better}
    nobody = [cell.name for cell in cells if cell.name not in better]
    everyone = {rule: everyone[rule] for rule in (*version.baselines, *standings) if rule in everyone}
    return Table(figure, tuple(cells), standings, everyone, undefined, ranks, tuple(ranked_in), tuple(nobody))


def critical_difference(num_rules: int, num_cells: int) -> float | None:
    """Return Nemenyi's critical difference of average ranks at the level 0.05: ``q sqrt(k (k + 1) / (6 n))``.

    q is the 0.95-quantile of the studentized range of k rules and infinitely many degrees of freedom, divided by sqrt(2).

    >>> round(critical_difference(5, 12), 3)
    1.761

    Reference: Demsar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7, 2006, section 3.2.2.
    """
    if num_rules < 2 or not num_cells:
        return None
    stats = imported("scipy.stats", "a critical difference", ".[digits]", "SciPy")
    q = float(stats.studentized_range.ppf(0.95, num_rules, 1e6)) / math.sqrt(2.0)
    return q * math.sqrt(num_rules * (num_rules + 1) / (6.0 * num_cells))


def _checked(rows: Iterable[Row], version: Version, cells: Sequence[Cell]) -> dict[str, Row]:
    """Return rows by rule, after checks."""
    by_rule, hashes = dict[str, Row](), {cell.name: cell.hash for cell in cells}
    for row in rows:
        rule = row["rule"]
        if row["version"] != version.name:
            raise ConfigurationError(f"{rule}: got a row of {row['version']}, needed {version.name}: compute it again")
        if rule in by_rule:
            raise ConfigurationError(f"{rule}: got two rows, needed one: leave one out")
        for name, cell in row["cells"].items():
            if name in hashes and cell["hash"] != hashes[name]:
                raise ConfigurationError(
                    f"{rule}, {name}: its hash is {cell['hash']}, needed {hashes[name]}, so that its data or cohorts differ "
                    "from those of other rows: compute it again"
                )
            if name in hashes and (missing := missing_seeds(cell, version)):
                raise ConfigurationError(
                    f"{rule}, {name}: it lacks the seeds {missing}: compute them by turnout benchmark run {rule}"
                )
        by_rule[rule] = row
    if version.reference not in by_rule:
        raise ConfigurationError(
            f"rows: got none of {version.reference}, from which differences are taken: compute it first"
        )
    return by_rule


def _in_cell(name: str, by_rule: Mapping[str, Row], version: Version, figure: str) -> dict[str, Standing]:
    """Return the standings of the rules and baselines that have the figure in a cell."""
    cells = {rule: cell for rule, row in by_rule.items() if "runs" in (cell := row["cells"].get(name, {}))}
    values = {rule: {int(seed): run.get(figure) for seed, run in cell["runs"].items()} for rule, cell in cells.items()}
    values = {rule: by_seed for rule, by_seed in values.items() if None not in by_seed.values()}
    ranked, reference = [rule for rule in values if rule not in version.baselines], values.get(version.reference)
    gaps = {rule: gap(runs, reference) for rule, runs in values.items() if reference and rule != version.reference}
    known = {rule: each for rule, each in gaps.items() if each is not None}
    tested = adjusted({rule: known[rule] for rule in ranked if rule in known})
    tested = {rule: replace(each, p=math.nan) for rule, each in known.items()} | tested
    ranks = dict(zip(ranked, _ranks([float(np.mean(list(values[rule].values()))) for rule in ranked]), strict=True))
    return {
        rule: Standing(
            _measured(cells[rule]["runs"].values()), tested.get(rule), ranks.get(rule, math.nan),
            tuple(cells[rule]["edges"]), values[rule],
        )
        for rule in values
    }  # fmt: skip


def _measured(runs: Iterable[Mapping[str, float | None]]) -> dict[str, Measured]:
    """Return each figure over seeds; figures that a seed lacks are left out."""
    runs = list(runs)
    values = {name: [run[name] for run in runs] for name in runs[0]}
    return {name: Measured.over(column) for name, column in values.items() if None not in column}  # type: ignore[arg-type]


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks of values, 1 for the largest; equal values share their mean rank."""
    array = np.asarray(values)
    return [float((array > value).sum() + ((array == value).sum() + 1) / 2) for value in array]


def _average_ranks(standings: Mapping[str, Sequence[Standing]], figure: str) -> dict[str, float]:
    """Return the average rank of each rule among these rules, ascending."""
    columns = zip(*([standing.figures[figure].mean for standing in row] for row in standings.values()), strict=True)
    ranks = np.array([_ranks(column) for column in columns])
    means = dict(zip(standings, ranks.mean(axis=0).tolist() if len(ranks) else [], strict=False))
    return dict(sorted(means.items(), key=lambda entry: entry[1]))


@dataclass(frozen=True)
class Lead:
    """The lead of a rule over the reference in several cells.

    Attributes:
        gap: the paired difference of means over cells, one pair for each seed, with its p-value adjusted by Holm's method
            over the rules.
        ahead: number of cells in which the mean over seeds is larger than that of the reference.
        cells: number of cells in which the rule is defined.
    """

    gap: Gap
    ahead: int
    cells: int


def leads(table: Table, reference: str, cells: Sequence[Cell]) -> dict[str, Lead]:
    """Return the lead of each rule that is defined in most of these cells, by the ranked figure, the largest first.

    Seeds are the units of the test, because cells with the same data share splits and initial models. A lead holds for these
    cells: it is no estimate for other data.
    """
    names = [cell.name for cell in cells if cell.name in table.standings.get(reference, {})]
    gaps, cells_of = dict[str, Gap](), dict[str, list[str]]()
    for rule, row in table.standings.items():
        shared = [name for name in names if name in row]
        if rule == reference or not shared or len(shared) < SHARE * len(names):
            continue
        mine, theirs = (_means(table, each, shared) for each in (rule, reference))
        if (difference := gap(mine, theirs)) is not None:
            gaps[rule], cells_of[rule] = difference, shared
    found = {}
    for rule, each in sorted(
        adjusted(gaps).items(), key=lambda of: -of[1].mean if math.isfinite(of[1].mean) else math.inf
    ):
        ahead = sum((own := table.standings[rule][name].gap) is not None and own.mean > 0 for name in cells_of[rule])
        found[rule] = Lead(each, ahead, len(cells_of[rule]))
    return found


def _means(table: Table, rule: str, names: Sequence[str]) -> dict[int, float]:
    """Return the mean of a rule over cells by seed, for the seeds that all cells have."""
    values = [table.standings[rule][name].values for name in names]
    return {seed: fmean(each[seed] for each in values) for seed in set.intersection(*map(set, values))}
