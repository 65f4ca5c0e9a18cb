"""Send numbers as bfloat16."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from turnout.core.types import State, Task
from turnout.engine.cohort import Clients
from turnout.pieces.base.compression import Compression


@dataclass(frozen=True)
class BFloat16(Compression, name="bfloat16"):
    """Send numbers in bfloat16, which has the range of float32 and 8 bits of precision, both ways.

    Clients receive the model rounded so, and train, measure and report from there; the server adds to the model that it
    keeps in full.

    Args:
        down: whether the model is sent so, too.

    Example:
        >>> from turnout.pieces.base.trial import guarded, report
        >>> guarded(BFloat16(), report([[1.0, 0.3333]]))
        [[1.0, 0.334]]

    Reference: Kalamkar et al., "A study of BFLOAT16 for deep learning training", 2019.
    """

    down: bool = True

    def receive(self, task: Task, memory: State, clients: Clients) -> Task:
        """Return the task with its model, and what else is broadcast, rounded."""
        if not self.down:
            return task
        dtype = task.params.dtype
        shared = {name: value.bfloat16().to(dtype) for name, value in task.shared.items()}
        return replace(task, params=task.params.bfloat16().to(dtype), shared=shared)

    def broadcast_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return bfloat16, if the model is sent so."""
        return torch.bfloat16 if self.down else dtype

    def encode(self, rows: torch.Tensor, keys: torch.Tensor) -> State:
        """Return the rounded numbers."""
        return {"value": rows.bfloat16()}

    def decode(self, code: State, num_params: int, keys: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return them in the type of the model."""
        return code["value"].to(dtype)
