"""Base classes of personalizations: whole models beside the shared one, and fine-tuning before evaluation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from turnout.core.checks import count, refuse
from turnout.core.device import to_device
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients
from turnout.pieces.base import Correction, Local, MemoryShapes, Personalization


class WholeModel(Personalization):
    """Base class: each client has a whole model of its own, which begins as the shared one and is the one it uses."""

    def __post_init__(self) -> None:
        check_steps(self.adaptation_steps)

    def chosen(self, module: nn.Module) -> frozenset[str]:
        """Return no parameters: all of the model is shared."""
        return frozenset()

    def first(self, initial: torch.Tensor, num_shared: int) -> torch.Tensor:
        """Return the model's first parameters, ``[P]``."""
        return initial

    def serving(self, params: torch.Tensor, memory: State) -> torch.Tensor:
        """Return the personal model of each client, ``[B, P]``."""
        return to_device(memory["personal"], params.device)

    def newcomer(self, params: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        """Return the shared model, from which a client that never trained begins."""
        return params


@dataclass(frozen=True)
class OnOwnPart(Local):
    """Train personal parameters by a local rule with further corrections.

    Args:
        rule: the steps.
        columns: the further corrections.
    """

    rule: Local
    columns: tuple[Correction, ...]

    def memory(self, num_params: int, dtype: torch.dtype) -> MemoryShapes:
        """Return what the rule remembers."""
        return self.rule.memory(num_params, dtype)

    def train(self, task: Task, memory: State, clients: Clients, corrections: tuple[Correction, ...]) -> Report:
        """Train by the rule, with its further corrections behind all others."""
        return self.rule.train(task, memory, clients, (*corrections, *self.columns))


def check_steps(adaptation_steps: int | tuple[int, ...]) -> None:
    """Refuse numbers of steps of adaptation below 1, none at all, and one twice."""
    if not isinstance(adaptation_steps, tuple):
        return count("adaptation_steps", adaptation_steps, instead="Or several, such as (1, 5, 20)")
    for steps in adaptation_steps:
        count("adaptation_steps", steps)
    if not adaptation_steps or len(set(adaptation_steps)) < len(adaptation_steps):
        raise refuse("adaptation_steps", given=adaptation_steps, needed="whole numbers >= 1, each once")
    return None
