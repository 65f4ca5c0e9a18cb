"""Base classes of personalizations with a whole model for each client, and the local rule of fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from turnout.base import Correction, Local, MemoryShapes, Personalization
from turnout.core.checks import count, refuse
from turnout.core.device import to_device
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients


class WholeModel(Personalization):
    """Base class of personalizations in which each client keeps a whole model, and is served by it.

    The personal model starts from the model's initial parameters, or from the shared model if a client has never
    trained.
    """

    def __post_init__(self) -> None:
        check_steps(self.adaptation_steps)

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


def check_steps(adaptation_steps: int | tuple[int, ...]) -> None:
    """Raise an error unless `adaptation_steps` is a whole number >= 1, or a tuple of different ones."""
    if not isinstance(adaptation_steps, tuple):
        return count("adaptation_steps", adaptation_steps, instead="Or several, such as (1, 5, 20)")
    for steps in adaptation_steps:
        count("adaptation_steps", steps)
    if not adaptation_steps or len(set(adaptation_steps)) < len(adaptation_steps):
        raise refuse("adaptation_steps", given=adaptation_steps, needed="whole numbers >= 1, each once")
    return None
