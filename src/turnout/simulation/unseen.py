"""Clients who never trained, and get a personal part of their own before they are judged."""

from __future__ import annotations

import numpy as np
import torch

from turnout.core.types import Task
from turnout.engine.loss import metric_of
from turnout.pieces.base import Local, Personalization
from turnout.simulation.client_groups import ClientGroup


def unseen_figures(
    own: Personalization, local: Local, task: Task, first: torch.Tensor, group: ClientGroup, lanes: int
) -> dict[str, float]:
    """Return loss, and accuracy or root-mean-square error, of clients who never trained.

    They received the shared part and fitted their own to their data. Figures are over all their examples.

    Args:
        own: what is personal, and how many local steps they may take on it; the shared part is frozen.
        local: the steps.
        task: the shared part, the version and the seed.
        first: the personal part from which everyone starts, ``[P_v]``.
        group: the clients.
        lanes: how many of them to go through side by side.
    """
    if isinstance(own.adaptation_steps, tuple):
        by_steps = {
            f"unseen_after_{k}": _figures(own, local, k, task, first, group, lanes) for k in own.adaptation_steps
        }
    else:
        by_steps = {"unseen": _figures(own, local, own.adaptation_steps, task, first, group, lanes)}
    return {f"{kind}_{name}": value for kind, found in by_steps.items() for name, value in found.items()}


def _figures(
    own: Personalization, local: Local, steps: int, task: Task, first: torch.Tensor, group: ClientGroup, lanes: int
) -> dict[str, float]:
    """Return the same after so many steps, by split and figure."""
    whole = own.newcomer(task.params, first)
    rule, row = own.adapting(local, steps), {}
    scores = group.scores_after(rule, lambda _: whole, task, "personal parts of the unseen", lanes)
    for split, shards in group.splits.items():
        held = shards.sizes > 0
        share = shards.sizes[held] / max(shards.sizes.sum(), 1)
        for name in ("loss", metric_of(shards.y)):
            values, power = scores[f"{split}_{name}"][held], 2 if name == "rmse" else 1
            row[f"{split}_{name}"] = float((share @ values**power) ** (1 / power))
    # Without those of outputs that are not like the targets.
    return {name: value for name, value in row.items() if not np.isnan(value)}
