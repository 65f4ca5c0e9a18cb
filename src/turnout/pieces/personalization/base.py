"""Base classes of personalizations with a whole model for each client, and the local rule of fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import nn

from turnout.base import Correction, Local, MemoryShapes, Personalization
from turnout.core.checks import count, refuse
from turnout.core.device import to_device
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients


def _check_adaptation(name: str, steps: int | tuple[int, ...]) -> None:
    """Check that a value is a whole number >= 1, or a tuple of different ones."""
    if not isinstance(steps, tuple):
        return count(name, steps, instead="Or several, such as (1, 5, 20)")
    for number in steps:
        count(name, number)
    if not steps or len(set(steps)) < len(steps):
        raise refuse(name, given=steps, needed="whole numbers >= 1, each once")
    return None


Adaptation = Annotated[int | tuple[int, ...], _check_adaptation]
"""The numbers of steps by which new clients fit a model to their data, one or several."""


class WholeModel(Personalization):
    """Base class of personalizations in which each client keeps a whole model, and is served by it.

    The personal model starts from the model's initial parameters, or from the shared model if a client has never
    trained.
    """

    adaptation_steps: Adaptation

    def chosen(self, module: nn.Module) -> frozenset[str]:
        """Return no names: all parameters of the model are shared."""
        return frozenset()

    def first(self, initial: torch.Tensor, num_shared: int) -> torch.Tensor:
        """Return the model's initial parameters, ``[P]``."""
        return initial

    def serving(self, params: torch.Tensor, memory: State) -> torch.Tensor:
        """Return the personal model of each client, ``[B, P]``."""
        return to_device(memory["personal"], params.device)

    def newcomer(self, params: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        """Return the shared model, from which a client that never trained starts."""
        return params


@dataclass(frozen=True)
class OnOwnPart(Local):
    """Fine-tune personal parameters by a local rule with additional corrections.

    Args:
        rule: the local rule.
        columns: the additional corrections, which are applied last.
    """

    rule: Local
    columns: tuple[Correction, ...]

    def memory(self, num_params: int, dtype: torch.dtype) -> MemoryShapes:
        """Return the client memory of the rule."""
        return self.rule.memory(num_params, dtype)

    def train(self, task: Task, memory: State, clients: Clients, corrections: tuple[Correction, ...]) -> Report:
        """Train by the rule, and apply its additional corrections after all others."""
        return self.rule.train(task, memory, clients, (*corrections, *self.columns))
