"""Train parts of the model in alternating rounds, so that products of two parts average exactly (RoLoRA)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import torch

from turnout.base import Correction, Slots
from turnout.core.checks import ConfigurationError, refuse
from turnout.core.device import to_device
from turnout.core.lanes import Lanes
from turnout.core.types import State, Task
from turnout.engine.cohort import Clients


@dataclass(frozen=True)
class Alternating(Correction, name="alternating"):
    """Train one part of the model per round and freeze the other parts (RoLoRA).

    In round t the part ``parts[t mod len(parts)]`` is trained, together with all parameters that belong to no part. For
    a low-rank adapter ``W + s B A``, all clients of a round then share the same A while they train B, and share B in
    the next round, so that averaging the factors averages the products exactly::

        mean(B_i) A = mean(B_i A)        B mean(A_i) = mean(B A_i)

    Averaging both factors at once would add products across clients, and freezing A permanently (FFA-LoRA) trains only
    half of the adapter. A starts random and B at zero, so B is trained first.

    Args:
        parts: two or more patterns of parameter names, one per part.

    Raises:
        ConfigurationError: if there are fewer than two parts, if patterns match no parameter or overlap, if the solver
            moves parameters without a gradient, or if another correction follows this one.

    Example:
        >>> Alternating(("*.B", "*.A")).parts
        ('*.B', '*.A')

    Reference: Chen et al., "Robust federated finetuning of LLMs via alternating optimization of LoRA", 2025 (arXiv
    2502.01755).
    """

    of_objective = False
    needs_rounds = (
        "the part that is frozen must be the same at all clients of a step, and with {pace} reports are of several "
        "rounds"
    )

    parts: tuple[str, ...] = ("*lora_B*", "*lora_A*")

    def __post_init__(self) -> None:
        if len(self.parts) < 2 or not all(isinstance(part, str) and part for part in self.parts):
            raise refuse("parts", given=self.parts, needed="two or more patterns of parameters' names")

    def fits(self, algorithm: Slots) -> None:
        """Raise an error if another piece would move a frozen part."""
        if algorithm.local.traits.drifts:
            raise ConfigurationError(
                "Alternating freezes a part by a gradient of zero, and AdamW's weight decay and moments of earlier rounds "
                "move it all the same: write weight_decay=0 and keep_state=False"
            )
        if algorithm.corrections[-1] is not self:
            raise ConfigurationError(
                f"{type(algorithm.corrections[-1]).__name__} behind Alternating would move the part that is frozen: write "
                "Alternating last, in compose()"
            )

    def begin(self, task: Task, memory: State, clients: Clients, lanes: Lanes) -> Correction:
        """Return the correction of this round, with the part that each client trains."""
        layout = clients.objective.layout
        parts = layout.per_element(self._part_of_each(layout.names).tolist())
        turn = torch.from_numpy(task.rounds(len(clients))[lanes.order] % len(self.parts))[:, None]
        device = task.params.device
        return _Turn(to_device(parts, device), to_device(turn, device))

    def _part_of_each(self, names: Sequence[str]) -> np.ndarray:
        """Return the index of the part of each parameter, int64; -1 for parameters in no part."""
        matches = np.array([[fnmatchcase(name, part) for part in self.parts] for name in names])
        idle, double = np.flatnonzero(~matches.any(axis=0)), np.flatnonzero(matches.sum(axis=1) > 1)
        if len(idle):
            raise ConfigurationError(f"parts: {self.parts[idle[0]]!r} matches none of {', '.join(names)}")
        if len(double):
            raise ConfigurationError(
                f"parts: {names[double[0]]!r} is in two of {self.parts}, needed parts without overlap"
            )
        return np.where(matches.any(axis=1), matches.argmax(axis=1), -1)


@dataclass(frozen=True)
class _Turn(Correction):
    """`Alternating` in one round.

    Args:
        parts: index of the part of each element of the parameter vector, int64 ``[P]``; -1 for none.
        turn: index of the part that each lane trains, int64 ``[B, 1]``.
    """

    parts: torch.Tensor
    turn: torch.Tensor

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return the gradient, with zeros for the frozen parts."""
        return gradient.where((self.parts < 0) | (self.parts == self.turn[: len(gradient)]), 0.0)
