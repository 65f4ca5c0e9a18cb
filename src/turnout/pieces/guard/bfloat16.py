"""Compress updates, and the model that clients receive, to bfloat16."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from turnout.base.compression import Compression
from turnout.base.guard import ChangesDownloadType
from turnout.core.types import State, Task
from turnout.engine.cohort import Clients


@dataclass(frozen=True)
class BFloat16(Compression, ChangesDownloadType, name="bfloat16"):
    """Compress updates, and the model that clients receive, to bfloat16.

    bfloat16 has the range of float32, 8 bits of precision and 2 bytes. Clients train and measure from the rounded
    model. The server keeps the model in full precision, and adds updates to that.

    Args:
        error_feedback: whether clients add what rounding lost to their next update; see `Compression`.
        down: whether the model, and what else the server broadcasts, is compressed, too.

    Example:
        >>> from turnout.base.trial import guarded, report
        >>> guarded(BFloat16(), report([[1.0, 0.3333]]))
        [[1.0, 0.334]]

    Reference: Kalamkar et al., "A study of BFLOAT16 for deep learning training", 2019.
    """

    down: bool = True

    def receive(self, task: Task, memory: State, clients: Clients) -> Task:
        """Return the task with a rounded model, and with other broadcast tensors rounded."""
        if not self.down:
            return task
        dtype = task.params.dtype
        shared = {name: value.bfloat16().to(dtype) for name, value in task.shared.items()}
        return replace(task, params=task.params.bfloat16().to(dtype), shared=shared)

    def broadcast_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return bfloat16 if the model is compressed."""
        return torch.bfloat16 if self.down else dtype

    def encode(self, rows: torch.Tensor, keys: torch.Tensor) -> State:
        """Return the rounded numbers, ``[B, P]``."""
        return {"value": rows.bfloat16()}

    def decode(self, code: State, num_params: int, keys: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the numbers in the type of the model, ``[B, P]``."""
        return code["value"].to(dtype)
