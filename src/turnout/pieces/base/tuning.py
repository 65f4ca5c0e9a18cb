"""Fine-tune a model on the data of each client."""

from __future__ import annotations

from dataclasses import replace

import torch

from turnout.core.random import stream
from turnout.core.types import Task
from turnout.engine.cohort import Clients
from turnout.pieces.base import Local


def tuned(rule: Local, task: Task, clients: Clients, purpose: str) -> Task:
    """Return the task with a model for each of B clients, ``[B, P]``: what it holds, after the local steps of `rule`.

    Args:
        rule: steps that need no memory, see `Local.alone` and `Local.tuning`.
        task: the models to start from.
        clients: who takes the steps.
        purpose: what for; steps for different purposes have different minibatches, in none of which anyone trains.
    """
    memory = {
        name: torch.zeros((len(clients), *shape), dtype=dtype)
        for name, (shape, dtype) in rule.memory(task.params.shape[-1], task.params.dtype).items()
    }
    personal = replace(task, seed=stream(purpose, task.seed), shared={})
    report = rule.train(personal, memory, replace(clients, start=None), ())
    return replace(task, params=task.params + report.updates.gathered())
