"""Try a piece on a few numbers, in examples of docstrings and while writing a new piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from turnout.base.aggregation import Aggregation
from turnout.base.guard import Guard
from turnout.base.selection import RecordingSelection, Selection
from turnout.base.server import Server
from turnout.base.weighting import Weighting
from turnout.core.candidates import Candidates
from turnout.core.types import Federation, Report, State, Task

Rows = Sequence[Sequence[float]]


def report(deltas: Rows, clients: Sequence[int] = (), version: Sequence[int] | int = 0, **seen: Any) -> Report:
    """Return a batch of reports with the rows of `deltas` as updates.

    Args:
        deltas: updates, ``[B, P]``.
        clients: clients of the reports; by default 0 to B - 1.
        version: version from which the updates were trained.
        seen: entries of ``report.seen``, ``[B]`` or ``[B, P]`` by name; also `num_examples` and `num_steps`, which are
            1 by default.
    """
    rows = torch.tensor(deltas, dtype=torch.float64)
    ones = np.ones(len(rows), dtype=np.int64)
    sizes, steps = (np.asarray(seen.pop(name, ones)) for name in ("num_examples", "num_steps"))
    ids = np.asarray(clients or range(len(rows)), dtype=np.int64)
    values = {name: torch.tensor(value, dtype=torch.float64) for name, value in seen.items()}
    return Report(ids, np.zeros_like(ones) + version, sizes, steps, rows, seen=values)


def weigh(
    piece: Weighting, reports: Report, weights: Sequence[float] = (), *, version: int = 0, num_clients: int = 10,
    state: State | None = None,
) -> list[float]:  # fmt: skip
    """Return the weights of reports after a weighting, rounded to four decimals; they are 1 before it by default."""
    federation = Federation(num_clients, reports.delta.shape[1], dtype=torch.float64)
    before = torch.tensor(weights or [1.0] * len(reports), dtype=torch.float64)
    state = piece.init(federation) if state is None else state
    return _rounded(piece.apply(before, reports, version, state, federation)[0])


def aggregate(piece: Aggregation, *reports: Report, num_clients: int = 10) -> list[list[float]]:
    """Return the directions of an aggregation over successive rounds, with equal weights 1/B."""
    federation = Federation(num_clients, reports[0].delta.shape[1], dtype=torch.float64)
    state, directions = piece.init(federation), []
    for one in reports:
        even = torch.full((len(one),), 1 / max(len(one), 1), dtype=torch.float64)
        direction, state = piece.apply(even, one, state, federation)
        directions.append(_rounded(direction))
    return directions


def step(piece: Server, *directions: Sequence[float]) -> list[list[float]]:
    """Return the models after successive server steps along given directions, starting from zero."""
    params = torch.zeros(len(directions[0]), dtype=torch.float64)
    state, models = piece.init(Federation(1, len(params), dtype=torch.float64)), []
    for version, direction in enumerate(directions):
        params, state = piece.apply(params, torch.tensor(direction, dtype=torch.float64), version, state)
        models.append(_rounded(params))
    return models


def guarded(piece: Guard, reports: Report) -> list[list[float]]:
    """Return the updates that the server receives in the first round behind a guard."""
    num_params = reports.delta.shape[1]
    shapes = piece.memory(num_params, torch.float64, ((num_params,),))
    memory = {name: torch.zeros((len(reports), *shape), dtype=dtype) for name, (shape, dtype) in shapes.items()}
    task = Task(torch.zeros(num_params, dtype=torch.float64), 0, 0)
    clients: Any = None  # guards that act elementwise do not read the model
    return _rounded(piece.apply(reports, task, memory, clients).updates.gathered())


def select(piece: Selection, num_clients: int = 100, round: int = 0, measured: Report | None = None) -> list[int]:
    """Return the cohort that a selection chooses if all clients are available."""
    record = piece.init(Federation(num_clients, 1)) if isinstance(piece, RecordingSelection) else {}
    candidates = Candidates(lambda clients: np.ones(len(clients), dtype=bool), num_clients, round, 0, measured, record)
    return piece.select(candidates).tolist()


def _rounded(values: torch.Tensor) -> Any:
    """Return the values as nested lists, rounded to four decimals, with 0.0 for -0.0."""
    return (values.double() * 1e4).round().div(1e4).add(0.0).tolist()
