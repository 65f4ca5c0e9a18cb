"""Rows of examples into shards: one copy for all of them, and which rows go where."""

from __future__ import annotations

import numpy as np
import torch

from turnout.core.random import generator
from turnout.data.federated import Shards


def held_out(owner: np.ndarray, fraction: float, seed: int, purpose: str) -> np.ndarray:
    """Choose the rows that clients do not train on, bool like `owner` (ascending): at random, and never all of a client's.

    Args:
        owner: the client of each row.
        fraction: share of each client's rows, rounded.
        seed, purpose: of the random numbers.
    """
    sizes = np.bincount(owner)
    least_left = np.maximum(sizes - 1, 0)
    wanted = np.minimum(np.rint(fraction * sizes).astype(np.int64), least_left)
    order = np.lexsort((generator(purpose, seed).random(len(owner)), owner))
    place = np.empty(len(owner), dtype=np.int64)
    place[order] = np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner]
    return place < wanted[owner]


def rows_of(rows: np.ndarray, owner: np.ndarray, mask: np.ndarray, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows under `mask` that belong to `some` of the clients, and how many each of these has."""
    mine = mask & np.isin(owner, some)
    return rows[mine], np.bincount(owner[mine], minlength=some.max() + 1)[some]


def gather(
    x: torch.Tensor,
    y: torch.Tensor,
    groups: dict[str, tuple[np.ndarray, np.ndarray]],
    weights: torch.Tensor | None = None,
) -> dict[str, Shards]:
    """Shards of several groups of rows with their sizes: one copy of all the examples, of which each is a view."""
    rows = torch.from_numpy(np.concatenate([rows for rows, _ in groups.values()])).to(x.device)
    x, y = x.index_select(0, rows), y.index_select(0, rows)
    weights = None if weights is None else weights.index_select(0, rows)
    shards, start = {}, 0
    for name, (of_group, sizes) in groups.items():
        part = slice(start, start + len(of_group))
        of_part = None if weights is None else weights[part]
        shards[name] = Shards(x[part], y[part], np.concatenate([[0], np.cumsum(sizes)]), of_part)
        start = part.stop
    return shards


def flip(y: torch.Tensor, rows: np.ndarray, num_classes: int | None) -> torch.Tensor:
    """Labels with those of `rows` turned to C - 1 - y."""
    if len(rows) == 0 or num_classes is None:
        return y
    y, index = y.clone(), torch.from_numpy(rows).to(y.device)
    y[index] = num_classes - 1 - y[index]
    return y
