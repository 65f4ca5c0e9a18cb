"""Track the change of each client's gradient between its participations (FOCUS)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Correction, MemoryShapes, Outcome, Slots
from turnout.base.composition import refuse_of_training
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.lanes import Lanes
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients


@dataclass(frozen=True)
class GradientTracking(Correction, name="gradient_tracking"):
    """Subtract each client's last tracked gradient in every local step, and report its change (FOCUS).

    A local step descends ``g(y) - G_k``, where g(y) is the minibatch gradient and G_k is the gradient of the client's
    last local step in its last participation, zero before the first. After K local steps with the last gradient g_K,
    the client sends ``G_k - g_K`` in place of its update, and then sets ``G_k <- g_K``. The paper's tracker ``y <- y +
    g_j - g_{j-1}``, which is zero at the beginning of a round, is the same difference. The movement of the last step is
    discarded: K steps are K gradients and K - 1 movements, as in the authors' code.

    G_k moves by the change that was sent, so the server's sum of all messages is ``-sum_n G_n`` even if a guard changes
    them.

    Client memory: ``tracked [P]`` (G_k).

    Raises:
        ConfigurationError: if the algorithm has a personal part or measurements of training, which are about updates,
            or an aggregation that does not add up the changes.

    Example:
        >>> import turnout as to
        >>> to.focus().corrections, to.focus().aggregation
        ((GradientTracking(),), TrackedSum())

    Reference: Ying, Li and Yang, "Exact and linear convergence for federated learning under arbitrary client
    participation is attainable", NeurIPS 2025 (arXiv 2503.20117), as in the authors' code (FedASL).
    """

    of_objective = False

    def fits(self, algorithm: Slots) -> None:
        """Raise an error if a piece of the algorithm reads updates, in whose place changes of gradients are sent."""
        if algorithm.personal is not None:
            raise ConfigurationError(
                f"{type(algorithm.personal).__name__} needs updates, and with GradientTracking clients send changes of "
                "gradients in their place: leave it out"
            )
        if not algorithm.aggregation.controls.adds_up:
            raise ConfigurationError(
                f"GradientTracking sends changes of gradients, which {type(algorithm.aggregation).__name__} would take for "
                "updates: add TrackedSum() to the pieces"
            )
        refuse_of_training(
            algorithm, "and clients of GradientTracking send the change of a gradient in place of an update"
        )

    def memory(self, num_params: int, dtype: torch.dtype) -> MemoryShapes:
        """Return the shape of the tracked gradient."""
        return {"tracked": ((num_params,), dtype)}

    def begin(self, task: Task, memory: State, clients: Clients, lanes: Lanes) -> Correction:
        """Return the correction with the tracked gradients of these clients."""
        tracked = lanes.of(to_device(memory["tracked"], task.params.device))
        return _Tracking(tracked, tracked.clone())

    def settle(self, memory: State, sent: Report, good: torch.Tensor) -> None:
        """Update the tracked gradients of B clients by the changes that they sent."""
        delta = to_device(sent.updates.gathered(), memory["tracked"].device)
        memory["tracked"] = memory["tracked"] - delta.where(good, 0.0)


@dataclass(frozen=True)
class _Tracking(Correction):
    """`GradientTracking` in one round.

    Args:
        tracked: G_k, ``[B, P]``.
        last: gradient of the last step so far, ``[B, P]``; changed in place.
    """

    tracked: torch.Tensor
    last: torch.Tensor

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return ``g - G_k``, and store g in `last`."""
        self.last[: len(gradient)].copy_(gradient)
        return gradient - self.tracked[: len(gradient)]

    def outcome(self, delta: torch.Tensor) -> Outcome:
        """Return the change ``G_k - g_K``, ``[B, P]``, which is sent."""
        return Outcome(sent=self.tracked - self.last)
