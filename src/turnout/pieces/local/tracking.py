"""Track by how much a client's gradient has changed since it last took part (FOCUS)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.types import Lanes, Report, State, Task
from turnout.engine.cohort import Clients
from turnout.pieces.base import Correction, MemoryShapes, Slots


@dataclass(frozen=True)
class GradientTracking(Correction, name="gradient_tracking"):
    """Descend ``g(y) - G_k``, and send ``G_k - g_K`` in place of the update, then ``G_k <- g_K`` (FOCUS).

    g_K is the gradient of the last of K local steps, G_k that of the client's last participation, zero before. The paper's
    tracker ``y <- y + g_j - g_{j-1}``, which is zero at the beginning of a round, is the same difference. What the last step
    moves is thrown away: K steps are K gradients and K - 1 moves, as in the authors' code.

    G_k moves by what was sent, so the server's sum of all that is sent is ``-sum_n G_n``, whatever a guard makes of it.

    Client memory: ``tracked [P]`` (G_k).

    Raises:
        ConfigurationError: of an algorithm, with a personal part or measurements of training, which are about updates, and
            for an aggregation that does not add up the changes.

    Example:
        >>> import turnout as to
        >>> to.focus().corrections, to.focus().aggregation
        ((GradientTracking(),), TrackedSum())

    Reference: Ying, Li and Yang, "Exact and linear convergence for federated learning under arbitrary client participation is
    attainable", NeurIPS 2025 (arXiv 2503.20117), as in the authors' code (FedASL).
    """

    of_objective = False
    hides_training = "and clients of GradientTracking send the change of a gradient in place of an update"

    def fits(self, algorithm: Slots) -> None:
        """Refuse what reads an update where a change of gradients is sent."""
        if algorithm.personal is not None:
            raise ConfigurationError(
                f"{type(algorithm.personal).__name__} is about updates, and with GradientTracking clients send the change of "
                "a gradient: leave it out"
            )
        if not algorithm.aggregation.adds_up:
            raise ConfigurationError(
                f"GradientTracking sends changes of gradients, which {type(algorithm.aggregation).__name__} would take for "
                "updates: add TrackedSum() to the pieces"
            )

    def memory(self, num_params: int, dtype: torch.dtype) -> MemoryShapes:
        """Return the last gradient."""
        return {"tracked": ((num_params,), dtype)}

    def begin(self, task: Task, memory: State, clients: Clients, lanes: Lanes) -> Correction:
        """Return the correction with the last gradients of these clients."""
        tracked = lanes.of(to_device(memory["tracked"], task.params.device))
        return _Tracking(tracked, tracked.clone())

    def settle(self, memory: State, sent: Report, good: torch.Tensor) -> None:
        """Move the last gradients of B clients by what they sent."""
        delta = to_device(sent.updates.gathered(), memory["tracked"].device)
        memory["tracked"] = memory["tracked"] - delta.where(good, 0.0)


@dataclass(frozen=True)
class _Tracking(Correction):
    """`GradientTracking` in one round.

    Args:
        tracked: G_k, ``[B, P]``.
        last: the gradient of the last step so far, ``[B, P]``; changed in place.
    """

    tracked: torch.Tensor
    last: torch.Tensor

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return ``g - G_k``; keeps g."""
        self.last[: len(gradient)].copy_(gradient)
        return gradient - self.tracked[: len(gradient)]

    def sent(self, delta: torch.Tensor) -> torch.Tensor:
        """Return ``G_k - g_K``."""
        return self.tracked - self.last
