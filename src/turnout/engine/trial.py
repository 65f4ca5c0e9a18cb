"""Try a model on one minibatch before training, and choose the engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from turnout.engine.cohort import Clients
from turnout.engine.full_batch import BLOCK


def try_model(clients: Clients, batch_size: int, measures: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Try the model on a minibatch of one client, and choose the engine.

    If `torch.func.vmap` cannot batch the model, clients are computed one by one.

    Args:
        clients: clients with the objective, examples and transforms.
        batch_size: number of examples in a minibatch of a local step.
        measures: whether clients also compute over all of their examples, in blocks.

    Returns:
        The minibatch: inputs ``[b, ...]`` and targets ``[b, ...]``.

    Raises:
        ConfigurationError: if the model does not fit the data, or cannot be batched although ``engine="vectorised"``.

    Warns:
        RuntimeWarning: if the model cannot be batched.
    """
    shards, objective = clients.shards, clients.objective
    width = max(batch_size, BLOCK if measures else 0)
    rows = torch.arange(min(len(shards.x), width), device=shards.x.device)[None]
    # Include the largest label and the smallest and largest integer inputs, which may exceed a model's classes or vocabulary.
    extremes = [shards.y.argmax()] if shards.y.dim() == 1 else []
    if shards.x.dtype in (torch.int32, torch.int64):
        whole = shards.x.reshape(len(shards.x), -1)
        extremes += [whole.amax(dim=1).argmax(), whole.amin(dim=1).argmin()]
    if extremes := extremes[: rows.shape[1]]:
        rows[0, -len(extremes) :] = torch.stack(extremes)
    one = replace(clients, ids=np.zeros(1, dtype=np.int64), rows=np.zeros(1, dtype=np.int64))
    x, y = one.minibatch(rows, torch.zeros(1, dtype=torch.int64, device=shards.x.device))
    objective.check(x[0], y[0])
    objective.choose(x[0])
    objective.fall_back(x[0], y[0])
    return x[0], y[0]
