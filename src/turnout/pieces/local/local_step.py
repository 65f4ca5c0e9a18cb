"""One local step of B clients, as a function of tensors alone: what the engine replays without the Python around it."""

from __future__ import annotations

import inspect
import itertools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from turnout.data.transforms import Transform
from turnout.engine.compile.compiled import Compiled
from turnout.engine.examples import minibatch
from turnout.engine.objective import Objective
from turnout.pieces.base import Correction
from turnout.pieces.local.closure import split_tensors

GradientAt = Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]
"""Loss ``[B]`` and gradient ``[B, P]`` at some parameters ``[B, P]``, on a step's minibatch of this number."""

Direction = Callable[[torch.Tensor, GradientAt], tuple[torch.Tensor, torch.Tensor]]
"""Loss ``[B]`` and direction ``[B, P]`` of a step, from parameters and gradients. Where two are equal, runs share traces."""


def steepest(params: torch.Tensor, gradient: GradientAt) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradient on the step's one minibatch."""
    return gradient(params, 0)


def descend(params: torch.Tensor, direction: torch.Tensor, lr: torch.Tensor) -> torch.Tensor:
    """Move `params` in place by the step of SGD, ``y <- y - lr g``, and give them back."""
    return params.addcmul_(direction, lr, value=-1)


@dataclass(frozen=True, eq=False)
class LocalStep:
    """Minibatches, gradients, corrections, momentum and the step itself.

    Args:
        objective: model and loss.
        transforms: what happens to a minibatch before the model sees it.
        direction: what to descend, before corrections.
        corrections: of the gradient, begun for these clients.
        momentum: of the heavy ball.
        weight_decay: L2 penalty's factor.
    """

    objective: Objective
    transforms: tuple[Transform, ...]
    direction: Direction
    corrections: tuple[Correction, ...]
    momentum: float
    weight_decay: float

    @property
    def _is_plain(self) -> bool:
        """Whether a step goes down the gradient as it is."""
        changed = self.corrections or self.momentum or self.weight_decay or self.objective.layout.num_statistics
        return self.direction is steepest and not changed

    def repeat(self, here: tuple[torch.Tensor | None, ...], minibatches: tuple[torch.Tensor | None, ...]) -> None:
        """Step after step; without Python in between, if tensors are all that is new in a round.

        Clients who are computed one by one cut padding off, by what a mask says: with one they need Python.

        Args:
            here: the first arguments of a step, up to `y`.
            minibatches: the others, with a row for each step.
        """
        whole = self.objective.engine == "vectorised" or minibatches[1] is None
        if whole and self._compiled is not None:
            replayed, held = self._compiled
            replayed.repeat((*here, *held), minibatches)
            return
        for rows in zip(*(itertools.repeat(None) if part is None else part for part in minibatches), strict=False):
            self(*here, *rows, replay=True)  # type: ignore[arg-type]

    @cached_property
    def _compiled(self) -> tuple[Compiled, list[torch.Tensor]] | None:
        """The step as a function of tensors, and those that corrections hold, which stand before the minibatch."""
        found = split_tensors(self.corrections)
        if found is None:
            return None
        bare, held = found
        # The objective keeps the step it replays, so the step must not keep the objective.
        blank = replace(self, corrections=bare.corrections, objective=weakref.proxy(self.objective))

        def step(*arguments: torch.Tensor) -> torch.Tensor:
            here, held, rows = arguments[:_FIRST], arguments[_FIRST:-_ROWS], arguments[-_ROWS:]
            return replace(blank, corrections=bare.with_tensors(held))(*here, *rows)  # type: ignore[arg-type]

        key = (self.direction, self.transforms, bare, self.momentum, self.weight_decay)
        changes = (*_CHANGED, *range(_FIRST, _FIRST + len(held)))
        return self.objective.compiled(key, step, changes), held

    def __call__(
        self,
        params: torch.Tensor,
        start: torch.Tensor,
        velocity: torch.Tensor | None,
        total: torch.Tensor,
        lr: torch.Tensor,
        x: torch.Tensor,
        y: torch.Tensor,
        examples: torch.Tensor,
        mask: torch.Tensor | None,
        keys: torch.Tensor,
        replay: bool = False,
    ) -> torch.Tensor:
        """Move `params` by one step, and give them back.

        Args:
            params: where the clients are, ``[B, P]``; changed in place.
            start: where they began, ``[B, P]``.
            velocity: ``[B, P]``, changed in place; None without momentum.
            total: sum of the losses so far, ``[B]``; changed in place.
            lr: step sizes, ``[B, 1]``.
            x, y: all examples, end to end.
            examples: positions in them of the step's minibatches, ``[parts, B, b]``.
            mask: 1 for examples and 0 for padding, ``[parts, B, b]``; None where nothing is padded.
            keys: 64 random bits of each minibatch, ``[parts, B]``.
            replay: whether gradients are replayed by themselves, where the step as a whole is not.
        """

        def data(part: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
            own_mask = None if mask is None else mask[part]
            return *minibatch(x, y, examples[part], keys[part], self.transforms), own_mask, keys[part]

        def gradient_at(params: torch.Tensor, part: int) -> tuple[torch.Tensor, torch.Tensor]:
            return self.objective.gradient(params, *data(part), replay=replay)

        if self._is_plain and len(params) == 1 and self.objective.engine == "one_by_one":
            some_x, some_y, own_mask, key = data(0)
            own_mask = None if own_mask is None else own_mask[0]
            loss, layers = self.objective.gradient_by_layer(params[0], some_x[0], some_y[0], own_mask, key[0])
            total += loss
            for layer, gradient in layers:
                descend(layer, gradient, lr[0, 0])
            return params
        return self.move(params, start, velocity, total, lr, *self.direction(params, gradient_at))

    def move(
        self,
        params: torch.Tensor,
        start: torch.Tensor,
        velocity: torch.Tensor | None,
        total: torch.Tensor,
        lr: torch.Tensor,
        loss: torch.Tensor,
        gradient: torch.Tensor,
    ) -> torch.Tensor:
        """Return the step with a loss ``[B]`` and a direction ``[B, P]`` that are known."""
        total += loss
        number, followed = self.objective.layout.num_statistics, None
        if number:
            followed = params[:, -number:] - gradient[:, -number:]
        if self.weight_decay:
            gradient = gradient.add(params, alpha=self.weight_decay)
        for correction in self.corrections:
            gradient = correction.correct(gradient, params, start)
        if velocity is not None:
            gradient = velocity.mul_(self.momentum).add_(gradient)
        descend(params, gradient, lr)
        if followed is not None:
            params[:, -number:] = followed
        return params


_ARGUMENTS = list(inspect.signature(LocalStep.__call__).parameters)[1:-1]
_FIRST = _ARGUMENTS.index("examples")
_ROWS = len(_ARGUMENTS) - _FIRST
"""How many arguments stay for all steps, and how many are new in each."""

_CHANGED = tuple(_ARGUMENTS.index(name) for name in ("params", "velocity", "total"))
"""Where the arguments are that a step changes in place."""
