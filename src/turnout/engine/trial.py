"""Try a model on one minibatch before training, and choose the engine."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import torch

from turnout.core.checks import ConfigurationError
from turnout.data.shards import Shards
from turnout.engine import validate
from turnout.engine.choice import Choice
from turnout.engine.cohort import Clients
from turnout.engine.full_batch import BLOCK
from turnout.engine.objective import Objective

_LEAST = 4


def try_model(
    clients: Clients, batch_size: int, measures: bool = False, num_classes: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Try the model on a minibatch of one client, and choose the engine.

    If `torch.func.vmap` cannot batch the model, clients are computed one by one.

    Args:
        clients: clients with the objective, examples and transforms.
        batch_size: number of examples in a minibatch of a local step.
        measures: whether clients also compute over all of their examples, in blocks.
        num_classes: number of classes, each of which needs an output; None for numbers to predict.

    Returns:
        The minibatch: inputs ``[b, ...]`` and targets ``[b, ...]``.

    Raises:
        ConfigurationError: if the model does not fit the data, or cannot be batched although ``engine="vectorized"``.

    Warns:
        RuntimeWarning: if the model cannot be batched.
    """
    shards, objective = clients.shards, clients.objective
    width = max(batch_size, BLOCK if measures else 0)
    # At least a few examples: a loss of one example may be right where those of several are mixed up.
    rows = torch.arange(min(len(shards.x), max(width, _LEAST)), device=shards.x.device)[None]
    if len(extreme := extremes(shards)[: rows.shape[1]]):
        rows[0, -len(extreme) :] = extreme
    one = replace(clients, ids=np.zeros(1, dtype=np.int64), rows=np.zeros(1, dtype=np.int64))
    x, y = one.minibatch(rows, torch.zeros(1, dtype=torch.int64, device=shards.x.device))
    validate.check(objective.network, objective.loss, x[0], y[0], num_classes)
    x, y = x[0, :width], y[0, :width]
    objective.choose(x)
    _fall_back(objective, x, y)
    return x, y


def _fall_back(objective: Objective, x: torch.Tensor, y: torch.Tensor) -> None:
    """Try a minibatch of two clients, and switch to ``"one_by_one"`` if `torch.func.vmap` cannot batch the model.

    Raises:
        ConfigurationError: if it cannot be batched although ``engine="vectorized"``.

    Warns:
        RuntimeWarning: if it cannot be batched, with the reason.
    """
    if objective.engine != "vectorized":
        return
    # The second client repeats one example, so that shapes that depend on values differ between the two.
    xs, ys = (torch.stack([value, value[:1].expand_as(value)]) for value in (x, y))
    params = objective.initial.expand(2, -1).contiguous()
    try:
        objective.gradient(params, xs, ys, None, torch.arange(2, device=objective.device), replay=False)
    except RuntimeError as error:  # due to batching: for a single client, the model has passed its check
        why = f"torch.func.vmap cannot batch the model over clients: {str(error).strip().partition(chr(10))[0]}"
        if objective.choice == Choice("vectorized", "as asked for"):
            raise ConfigurationError(f"engine='vectorized': {why}: write engine='one_by_one'") from error
        objective.use(Choice("one_by_one", why))
        warnings.warn(f"clients are computed one by one, because {why}", RuntimeWarning, stacklevel=2)


def extremes(shards: Shards) -> torch.Tensor:
    """Return rows with the smallest and largest label or target and integer input, int64.

    These may exceed the classes or the vocabulary of a model.
    """
    whole = [shards.y] if shards.y.dim() == 1 or not shards.y.is_floating_point() else []
    if shards.x.dtype in (torch.int32, torch.int64):
        whole.append(shards.x)
    rows = [values.reshape(len(values), -1) for values in whole]
    ends = [row for values in rows for row in (values.amin(dim=1).argmin(), values.amax(dim=1).argmax())]
    return torch.stack(ends) if ends else torch.zeros(0, dtype=torch.int64, device=shards.x.device)
