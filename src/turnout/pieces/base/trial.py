"""Try a piece on a few numbers, as the examples of docstrings do and authors of new pieces can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from turnout.core.types import Candidates, Federation, Report, State, Task
from turnout.pieces.base.aggregation import Aggregation
from turnout.pieces.base.guard import Guard
from turnout.pieces.base.selection import RecordingSelection, Selection
from turnout.pieces.base.server import Server
from turnout.pieces.base.weighting import Weighting

Rows = Sequence[Sequence[float]]


def report(deltas: Rows, clients: Sequence[int] = (), version: Sequence[int] | int = 0, **seen: Any) -> Report:
    """Return a report for each row of updates ``[B, P]``.

    Args:
        deltas: the updates.
        clients: who sent them; 0 to B - 1 if nobody is named.
        version: which version they were trained from.
        seen: what the server reads client by client, numbers ``[B]`` or ``[B, P]`` by name; `num_examples` and `num_steps`
            are 1 each unless they are among it.
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
    """Return the weights that a weighting makes of some, 1 each by default, to four places."""
    federation = Federation(num_clients, reports.delta.shape[1], dtype=torch.float64)
    before = torch.tensor(weights or [1.0] * len(reports), dtype=torch.float64)
    state = piece.init(federation) if state is None else state
    return _rounded(piece.apply(before, reports, version, state, federation)[0])


def aggregate(piece: Aggregation, *reports: Report, num_clients: int = 10) -> list[list[float]]:
    """Return the directions that an aggregation makes of the reports of one round after the other, each weighing 1/B."""
    federation = Federation(num_clients, reports[0].delta.shape[1], dtype=torch.float64)
    state, directions = piece.init(federation), []
    for one in reports:
        even = torch.full((len(one),), 1 / max(len(one), 1), dtype=torch.float64)
        direction, state = piece.apply(even, one, state, federation)
        directions.append(_rounded(direction))
    return directions


def step(piece: Server, *directions: Sequence[float]) -> list[list[float]]:
    """Return the models after steps of a server along one direction after the other, from zero."""
    params = torch.zeros(len(directions[0]), dtype=torch.float64)
    state, models = piece.init(Federation(1, len(params), dtype=torch.float64)), []
    for version, direction in enumerate(directions):
        params, state = piece.apply(params, torch.tensor(direction, dtype=torch.float64), version, state)
        models.append(_rounded(params))
    return models


def guarded(piece: Guard, reports: Report) -> list[list[float]]:
    """Return the updates that arrive at the server behind a guard, in the first round."""
    num_params = reports.delta.shape[1]
    shapes = piece.memory(num_params, torch.float64, ((num_params,),))
    memory = {name: torch.zeros((len(reports), *shape), dtype=dtype) for name, (shape, dtype) in shapes.items()}
    task = Task(torch.zeros(num_params, dtype=torch.float64), 0, 0)
    clients: Any = None  # guards of single numbers look at no model
    return _rounded(piece.apply(reports, task, memory, clients).updates.gathered())


def select(piece: Selection, num_clients: int = 100, round: int = 0, measured: Report | None = None) -> list[int]:
    """Return whom a selection takes of clients who are all there."""
    record = piece.init(Federation(num_clients, 1)) if isinstance(piece, RecordingSelection) else {}
    candidates = Candidates(lambda clients: np.ones(len(clients), dtype=bool), num_clients, round, 0, measured, record)
    return piece.select(candidates).tolist()


def _rounded(values: torch.Tensor) -> Any:
    """Return numbers to four places, as lists; -0.0 is 0.0."""
    return (values.double() * 1e4).round().div(1e4).add(0.0).tolist()
