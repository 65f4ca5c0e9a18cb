"""Measure who took part when, and find the cells of the benchmark that are nearest and the rules that lead in them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from turnout.core.checks import DataError
from turnout.population.availability.intervals import read_intervals
from turnout.population.diagnostics import run_lengths
from turnout.record.tables import numbers
from turnout.result import load
from turnout.results.statistics import LEVEL
from turnout.workbench.benchmark.cells import Cell, Version
from turnout.workbench.benchmark.standings import Standing, Table


@dataclass(frozen=True)
class Participation:
    """Figures of the participation of clients, without labels.

    Attributes:
        num_clients: number of clients that took part at least once.
        rounds: number of rounds.
        rate: mean over clients of the share of rounds.
        spread: standard deviation of the rates over clients, divided by their mean.
        burst: mean number of consecutive rounds of a visit.
        absence: median over clients of the longest absence, as a share of the rounds.
        drift: mean over clients of the difference of their rates in both halves, divided by the mean rate.
        absent: share of clients that are absent in more than 80 % of the rounds.
        tau_max: the largest delay, which is the number of rounds since a client last took part, or since the beginning.
        tau_avg: mean delay over clients and rounds.
    """

    num_clients: int
    rounds: int
    rate: float
    spread: float
    burst: float
    absence: float
    drift: float
    absent: float
    tau_max: int
    tau_avg: float

    @classmethod
    def of(cls, present: np.ndarray) -> Participation:
        """Measure a matrix ``[clients, rounds]`` of participation.

        >>> Participation.of(np.array([[1, 1, 0, 0], [0, 0, 0, 1]], bool)).burst
        1.5

        Raises:
            DataError: if nobody took part, or there are fewer than two rounds.
        """
        present = present[present.any(axis=1)]
        if not len(present) or present.shape[1] < 2:
            raise DataError(
                f"participation: got {len(present)} clients that took part in {present.shape[1]} rounds, needed at least "
                "one client and two rounds"
            )
        num_clients, rounds = present.shape
        rates, half = present.mean(axis=1), rounds // 2
        delays = _delays(present)
        drift = np.abs(present[:, :half].mean(axis=1) - present[:, half:].mean(axis=1)).mean()
        return cls(
            num_clients,
            rounds,
            rate=float(rates.mean()),
            spread=float(rates.std() / rates.mean()),
            burst=float(run_lengths(present).mean()),
            absence=float(np.median([run_lengths(row[None]).max() for row in ~present]) / rounds),
            drift=float(drift / rates.mean()),
            absent=float((rates < 0.2).mean()),
            tau_max=int(delays.max()),
            tau_avg=float(delays.mean()),
        )

    @property
    def vector(self) -> np.ndarray:
        """The figures that are compared with those of cells; rates and bursts by their logarithms."""
        return np.array([np.log(self.rate), self.spread, np.log(self.burst), self.absence, self.drift])

    def lines(self) -> list[str]:
        """Return the figures as lines of text."""
        names = {
            "num_clients": "clients that took part", "rounds": "rounds", "rate": "mean rate", "spread": "spread of rates",
            "burst": "rounds of a visit", "absence": "longest absence (share of rounds)", "drift": "drift of rates",
            "absent": "clients absent in more than 80 % of rounds", "tau_max": "largest delay in rounds (tau_max)",
            "tau_avg": "mean delay in rounds (tau_avg)",
        }  # fmt: skip
        return [f"{names[name]}: {value:.3g}" for name, value in asdict(self).items()]


def present_in(path: Path, everyone: bool = False) -> np.ndarray:
    """Return the participation ``[clients, rounds]`` of a run's folder, or of a CSV or Parquet file with client, from, to.

    Args:
        path: the folder or the file.
        everyone: whether there is a row for each client of a run, and for each number up to the largest of a file, in their
            order. False has rows only for clients that took part.

    Raises:
        CheckpointError, DataError: if there is no run, a file is unreadable, or clients have names where numbers are needed.
    """
    if path.is_dir():
        result = load(path)
        table, num_clients = result.participation, result.clients.num_rows
        client, start = (numbers(table[name]) for name in ("client", "round"))
        start = start - (start.min() if len(start) else 0)
        end = start + 1
    else:
        client, start, end = read_intervals(str(path), "trace", None)
        if everyone and client.dtype.kind not in "iu":
            raise DataError(f"{path}: its clients have names, needed the numbers 0, 1, ... of the clients of your data")
        num_clients = int(client.max()) + 1 if everyone else 0
    if not len(client):
        raise DataError(f"{path}: nobody took part")
    names, row = np.unique(client, return_inverse=True)
    if everyone:
        names, row = np.arange(num_clients), client
    present = np.zeros((len(names), int(end.max())), bool)
    for index, first, last in zip(row, start, end, strict=True):
        present[index, int(first) : int(last)] = True
    return present


def _delays(present: np.ndarray) -> np.ndarray:
    """Return the rounds ``[clients, rounds]`` since the last participation of a client, or since the beginning."""
    rounds = np.arange(1, present.shape[1] + 1)
    return rounds - np.maximum.accumulate(np.where(present, rounds, 0), axis=1)


NUM_CELLS, NUM_RULES = 3, 3


def nearest(seen: Participation, version: Version, tier: str = "small") -> list[tuple[Cell, float]]:
    """Return the cells with the most similar participation and their distances, in standard deviations over all cells.

    Cells about speed are left out, because a trace does not contain speeds.
    """
    cells = [
        cell for cell in version.of_tier(tier) if "pace" not in cell.settings and "population" not in cell.settings
    ]
    vectors = np.array([Participation.of(cell.present).vector for cell in cells])
    distances = np.linalg.norm((vectors - seen.vector) / vectors.std(axis=0).clip(1e-9), axis=1)
    order = np.argsort(distances, kind="stable")[:NUM_CELLS]
    return [(cells[index], float(distances[index])) for index in order]


def leaders(table: Table, cells: Iterable[Cell]) -> list[str]:
    """Return the rules that are ahead of the plain mean in these cells by most, best first.

    Differences that are not significant count as zero. Where those of two rules are equal, the average rank over all cells
    decides. Of rules with the same figures, such as one rule with another memory, only the first is returned.
    """
    names = [cell.name for cell in cells]
    distinct: dict[tuple[float, ...], tuple[float, str]] = {}
    for rule, row in table.standings.items():
        found = [each for name in names if name in row and (each := row[name].gap) is not None]
        significant = sum(each.mean for each in found if each.p < LEVEL)
        if found:
            distinct.setdefault(tuple(each.mean for each in found), (significant / len(found), rule))
    key = {rule: (-gain, table.ranks.get(rule, math.inf)) for gain, rule in distinct.values()}
    return sorted(key, key=lambda rule: key[rule])[:NUM_RULES]


def standing(table: Table, cell: Cell) -> list[tuple[str, Standing]]:
    """Return the rules of a cell that are significantly better than the plain mean, best first."""
    rows = [(rule, row[cell.name]) for rule, row in table.standings.items() if cell.name in row]
    return sorted((each for each in rows if each[1].is_better), key=lambda each: each[1].rank)
