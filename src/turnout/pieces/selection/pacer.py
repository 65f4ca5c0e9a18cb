"""Lengthen the rounds that a selection prefers, once clients who are fast have little left to give (Oort's pacer)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import count, not_negative, positive
from turnout.core.types import State


@dataclass(frozen=True)
class Pacer:
    """Add `pacer_step` to the preferred duration whenever W server steps gained less than the W before (Oort, section 4.3).

    State: ``gained [2 W]`` (of the latest steps, written over in turns), ``steps []`` and ``preferred []``.

    Args:
        preferred: duration at first, in seconds.
        pacer_step: seconds by which it grows.
        window: W, in server steps.

    Example:
        >>> pacer = Pacer(preferred=10.0, pacer_step=5.0, window=1)
        >>> state = pacer.init(torch.device("cpu"))
        >>> for gain in (3.0, 2.0, 2.0):
        ...     state = pacer.apply(torch.tensor(gain), state)
        ...     print(state["preferred"].item())
        10.0
        15.0
        15.0
    """

    preferred: float
    pacer_step: float
    window: int

    def check(self) -> None:
        """Refuse numbers out of range."""
        positive("preferred", self.preferred)
        not_negative("pacer_step", self.pacer_step)
        count("window", self.window)

    def init(self, device: torch.device) -> State:
        """Return the state before the first step."""
        real = {"dtype": torch.float64, "device": device}
        preferred = torch.full((), self.preferred, **real)
        return {"gained": torch.zeros(2 * self.window, **real), "preferred": preferred, "steps": torch.tensor(0)}

    def apply(self, gain: torch.Tensor, state: State) -> State:
        """Return the state after a step that gained so much, ``[]``."""
        gained, steps, preferred = state["gained"].clone(), int(state["steps"]) + 1, state["preferred"]
        gained[(steps - 1) % len(gained)] = gain
        if steps >= len(gained) and steps % self.window == 0:
            latest, before = gained.roll(-steps).flip(0).split(self.window)
            preferred = preferred + self.pacer_step * (before.sum() > latest.sum())
        return {"gained": gained, "steps": torch.tensor(steps), "preferred": preferred}
