"""How many clients train side by side."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from turnout.engine.objective import Objective


def lanes_per_chunk(objective: Objective, x: torch.Tensor, y: torch.Tensor, memory_budget: int) -> int:
    """How many clients to train in one call: as many as fit the memory budget.

    Args:
        x, y: a minibatch of one client.
        memory_budget: bytes for the parameters, gradients and activations of the clients in flight.
    """
    return max(1, memory_budget // objective.bytes_per_lane(x, y))


def chunks(rows: slice, lanes: int) -> Iterator[slice]:
    """Yield a stretch of clients in stretches of at most so many."""
    return (slice(low, min(low + lanes, rows.stop)) for low in range(rows.start, rows.stop, lanes))
