"""Clients on their way down: where each is, and what its next steps need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np
import torch

from turnout.local.local_step import LocalStep

_STEPS_FIRST = ("examples", "mask", "keys")


@dataclass(frozen=True, eq=False)
class Descent:
    """The local steps of B clients, those with more steps before those with fewer: who is at work is a slice of the rows.

    Attributes:
        num_steps: of each client, int64 ``[B]``, falling.
        start: where they begin, ``[B, P]``.
        lr: step sizes, ``[B, 1]``.
        examples: positions in the flat data, ``[S, parts, B, M]``: of each step, one or more minibatches.
        mask: 1 for examples and 0 for padding, as `examples`; None where nothing is padded.
        keys: 64 random bits of each minibatch, ``[S, parts, B]``.
        first_loss, first_gradient: of the first step, ``[B]`` and ``[B, P]``, where they are known.
    """

    num_steps: np.ndarray
    start: torch.Tensor
    lr: torch.Tensor
    examples: torch.Tensor
    mask: torch.Tensor | None
    keys: torch.Tensor
    first_loss: torch.Tensor | None
    first_gradient: torch.Tensor | None

    def part(self, rows: slice) -> Descent:
        """Some of the clients."""

        def some(name: str, value: torch.Tensor | np.ndarray | None) -> torch.Tensor | np.ndarray | None:
            if value is None:
                return None
            return value[:, :, rows] if name in _STEPS_FIRST else value[rows]

        return Descent(**{field.name: some(field.name, getattr(self, field.name)) for field in fields(self)})  # type: ignore[arg-type]

    def run(
        self, step: LocalStep, x: torch.Tensor, y: torch.Tensor, alike: bool, delta: torch.Tensor, loss: torch.Tensor
    ) -> None:
        """Take all steps.

        Args:
            x, y: all examples, end to end.
            alike: whether the step's corrections hold nothing of a client or a round.
            delta: becomes how far each came, ``[B, P]``.
            loss: becomes the mean of its losses, ``[B]``.
        """
        # Of this part alone: derivatives of one thread must not see what another one changes in the same tensor.
        params, total = self.start.clone(), self.start.new_zeros(len(self.start))
        velocity = torch.zeros_like(params) if step.momentum else None
        for active, begin, end in self._stretches():
            moving = None if velocity is None else velocity[:active]
            here = params[:active], self.start[:active], moving, total[:active], self.lr[:active]
            if begin == 0 and self.first_loss is not None and self.first_gradient is not None:
                step.move(*here, self.first_loss[:active], self.first_gradient[:active])
                begin = 1
            if begin == end:
                continue
            now = slice(begin, end), slice(None), slice(active)
            mask = None if self.mask is None else self.mask[now]
            step.repeat((*here, x, y), (self.examples[now], mask, self.keys[now]), alike)
        torch.sub(params, self.start, out=delta)
        torch.div(total, torch.from_numpy(np.maximum(self.num_steps, 1)).to(total, non_blocking=True), out=loss)

    def _stretches(self) -> Iterator[tuple[int, int, int]]:
        """How many are at work from which step to which, while their number stays."""
        most = int(self.num_steps[0]) if len(self.num_steps) else 0
        if most and most == self.num_steps[-1]:
            yield len(self.num_steps), 0, most
            return
        ends = np.unique(self.num_steps[self.num_steps > 0])
        for begin, end in pairwise([0, *ends.tolist()]):
            yield int((self.num_steps > begin).sum()), begin, end
