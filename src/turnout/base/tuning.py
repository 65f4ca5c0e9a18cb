"""Fine-tune a model on the data of each client."""

from __future__ import annotations

from dataclasses import replace

import torch

from turnout.base import FineTunes, Local
from turnout.core.random import stream
from turnout.core.types import Task
from turnout.engine.cohort import Clients


def tuning_rule(local: Local, steps: int) -> Local:
    """Return the rule by which clients fine-tune the received model on their data for a number of steps."""
    return local.tuning(steps) if isinstance(local, FineTunes) else local.alone(steps)


def tuned(rule: Local, task: Task, clients: Clients, purpose: str) -> Task:
    """Return the task with a model for each of B clients, ``[B, P]``, fine-tuned by local steps.

    Args:
        rule: local steps that need no memory (see `Local.alone` and `tuning_rule`).
        task: the task, with the models to start from.
        clients: the clients that take the steps.
        purpose: name of the stream of minibatches, which differs from those of training and of other purposes.
    """
    memory = {
        name: torch.zeros((len(clients), *shape), dtype=dtype)
        for name, (shape, dtype) in rule.memory(task.params.shape[-1], task.params.dtype).items()
    }
    personal = replace(task, seed=stream(purpose, task.seed), shared={})
    report = rule.train(personal, memory, replace(clients, start=None), ())
    return replace(task, params=task.params + report.updates.gathered())
