"""What clients fit to their own data before they are judged."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import count, refuse
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients
from turnout.pieces.base import Correction, Local


@dataclass(frozen=True)
class OnOwnPart(Local):
    """A local rule by which a client fits what is its own, with what that changes of its steps.

    Args:
        rule: the steps.
        columns: corrections behind all others.
    """

    rule: Local
    columns: tuple[Correction, ...]

    def memory(self, num_params: int, dtype: torch.dtype) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Return what the rule remembers."""
        return self.rule.memory(num_params, dtype)

    def train(self, task: Task, memory: State, clients: Clients, corrections: tuple[Correction, ...]) -> Report:
        """Its steps, so changed."""
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
