"""Take one local step of B clients, as a function of tensors alone, which the engine replays without Python."""

from __future__ import annotations

import inspect
import itertools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from turnout.core.types import State
from turnout.data.transforms import Transform
from turnout.engine.compile.compiled import Compiled
from turnout.engine.examples import minibatch
from turnout.engine.objective import Objective
from turnout.pieces.base import Correction
from turnout.pieces.local.closure import split_tensors
from turnout.pieces.local.descent import Part, Stretch
from turnout.pieces.local.update import Update, descend

GradientAt = Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]
"""Loss ``[B]`` and gradient ``[B, P]`` at some parameters ``[B, P]``, on a step's minibatch of this number."""

Direction = Callable[[torch.Tensor, GradientAt], tuple[torch.Tensor, torch.Tensor]]
"""Loss ``[B]`` and direction ``[B, P]`` of a step, from parameters and gradients. Runs with equal ones share traces."""


def steepest(params: torch.Tensor, gradient: GradientAt) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradient on the step's one minibatch."""
    return gradient(params, 0)


@dataclass(frozen=True, eq=False)
class LocalStep:
    """Take a local step: minibatches, gradients, corrections, the solver's rule.

    Args:
        objective: model and loss.
        transforms: what happens to a minibatch before the model sees it.
        direction: what to descend, before corrections.
        corrections: of the gradient, begun for these clients.
        update: the rule by which a gradient becomes a direction.
        accumulate: minibatches that a gradient is the mean over.
    """

    objective: Objective
    transforms: tuple[Transform, ...]
    direction: Direction
    corrections: tuple[Correction, ...]
    update: Update
    accumulate: int = 1

    @property
    def _is_plain(self) -> bool:
        """True if a step goes down the gradient of one minibatch as it is."""
        changed = self.corrections or self.accumulate > 1 or self.objective.layout.num_statistics
        return self.direction is steepest and self.update.is_plain and not changed

    def run(self, part: Part) -> None:
        """Take all steps of some clients, from where they begin."""
        part.params.copy_(part.start)
        for stretch in part.stretches:
            if stretch.first is not None:
                self.move(*stretch.here[:3], stretch.moments, *stretch.first)
            if stretch.number:
                self.repeat(stretch)
        part.params.sub_(part.start)

    def repeat(self, stretch: Stretch) -> None:
        """Take step after step, without Python in between if tensors are all that is new in a round.

        Clients who are computed one by one cut padding off, by what a mask says: with one they need Python.
        """
        here, state, minibatches = stretch.here, stretch.moments, stretch.minibatches
        whole = self.objective.engine == "vectorised" or minibatches[1] is None
        if whole and (compiled := self._compiled(tuple(state))) is not None:
            replayed, held = compiled
            for arguments in replayed.replay((*here, *state.values(), *held), minibatches):
                replayed.function(*arguments)
            return
        for rows in zip(*(itertools.repeat(None) if part is None else part for part in minibatches), strict=False):
            self(*here, state, *rows, replay=True)  # type: ignore[arg-type]

    def _compiled(self, names: tuple[str, ...]) -> tuple[Compiled, list[torch.Tensor]] | None:
        """Return the step as a function of tensors, and the tensors of corrections, which come before the minibatch.

        Args:
            names: of the state's tensors, which stand before these.
        """
        split = split_tensors(self.corrections)
        if split is None:
            return None
        bare, held = split
        # The objective keeps the step it replays, so the step must not keep the objective.
        blank = replace(self, corrections=bare.corrections, objective=weakref.proxy(self.objective))

        def step(*arguments: torch.Tensor) -> torch.Tensor:
            here, rest, rows = arguments[:_FIRST], arguments[_FIRST:-_ROWS], arguments[-_ROWS:]
            state, held = dict(zip(names, rest, strict=False)), rest[len(names) :]
            return replace(blank, corrections=bare.with_tensors(held))(*here, state, *rows)  # type: ignore[arg-type]

        key = (self.direction, self.transforms, bare, self.update, self.accumulate)
        changes = (*_CHANGED, *range(_FIRST, _FIRST + len(names) + len(held)))
        return self.objective.compiled(key, step, changes), held

    def __call__(
        self,
        params: torch.Tensor,
        start: torch.Tensor,
        total: torch.Tensor,
        x: torch.Tensor,
        y: torch.Tensor,
        state: State,
        examples: torch.Tensor,
        mask: torch.Tensor | None,
        keys: torch.Tensor,
        lr: torch.Tensor,
        replay: bool = False,
    ) -> torch.Tensor:
        """Move `params` by one step, and give them back.

        Args:
            params: where the clients are, ``[B, P]``; changed in place.
            start: where they began, ``[B, P]``.
            total: sum of the losses so far, ``[B]``; changed in place.
            x, y: all examples, end to end.
            state: of the solver's rule, rows ``[B, ...]``; changed in place.
            examples: positions in them of the step's minibatches, ``[parts, B, b]``.
            mask: 1, or its weight, for an example and 0 for padding, ``[parts, B, b]``; None where nothing is padded or
                weighted.
            keys: 64 random bits of each minibatch, ``[parts, B]``.
            lr: step sizes, ``[B, 1]``, or ``[1, 1]`` for all clients.
            replay: whether gradients are replayed by themselves, where the step as a whole is not.
        """

        def data(part: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
            inside = None if mask is None else mask[part]
            return *minibatch(x, y, examples[part], keys[part], self.transforms), inside, keys[part]

        def gradient_at(params: torch.Tensor, part: int) -> tuple[torch.Tensor, torch.Tensor]:
            if self.accumulate == 1:
                return self.objective.gradient(params, *data(part), replay=replay)
            parts = range(part * self.accumulate, (part + 1) * self.accumulate)
            shares = _shares(mask, parts, len(params), params)
            loss, gradient = torch.zeros_like(total), torch.zeros_like(params)
            for index, share in zip(parts, shares, strict=True):
                of_part = self.objective.gradient(params, *data(index), replay=replay)
                loss.addcmul_(of_part[0], share)
                gradient.addcmul_(of_part[1], share[:, None])
            return loss, gradient

        if self._is_plain and len(params) == 1 and self.objective.engine == "one_by_one":
            # Layer by layer: joining the gradients of a large model takes about as long as computing one of its layers.
            inputs, targets, inside, key = data(0)
            inside = None if inside is None else inside[0]
            loss, layers = self.objective.gradient_by_layer(params[0], inputs[0], targets[0], inside, key[0])
            total += loss
            for layer, gradient in layers:
                descend(layer, gradient, lr[0, 0])
            return params
        if self.direction is steepest and self.accumulate == 1:  # the gradient as it is, which needs no function of it
            loss, direction = self.objective.gradient(params, *data(0), replay=replay)
        else:
            loss, direction = self.direction(params, gradient_at)
        for correction in self.corrections:
            if correction.of_minibatch:
                inputs, _, inside, key = data(0)
                direction = direction + correction.slope(self.objective, params, inputs, inside, key)
        return self.move(params, start, total, state, lr, loss, direction)

    def move(
        self,
        params: torch.Tensor,
        start: torch.Tensor,
        total: torch.Tensor,
        state: State,
        lr: torch.Tensor,
        loss: torch.Tensor,
        gradient: torch.Tensor,
    ) -> torch.Tensor:
        """Return the step with a loss ``[B]`` and a direction ``[B, P]`` that are known."""
        total += loss
        number, followed = self.objective.layout.num_statistics, None
        if number:
            followed = params[:, -number:] - gradient[:, -number:]
        gradient = self.update.clipped(gradient, number)
        if self.update.weight_decay:
            gradient = gradient.add(params, alpha=self.update.weight_decay)
        for correction in self.corrections:
            gradient = correction.correct(gradient, params, start)
        self.update.step(params, gradient, state, lr)
        if followed is not None:
            params[:, -number:] = followed
        return params


def _shares(mask: torch.Tensor | None, parts: range, num_lanes: int, like: torch.Tensor) -> torch.Tensor:
    """Return which share of a step's examples each of its minibatches has, ``[parts, B]``; equal ones without a mask."""
    if mask is None:
        return like.new_full((len(parts), num_lanes), 1 / len(parts))
    counts = mask[parts.start : parts.stop].sign().sum(dim=2)
    return counts / counts.sum(dim=0)


_ARGUMENTS = list(inspect.signature(LocalStep.__call__).parameters)[1:-1]
_FIRST = _ARGUMENTS.index("state")
_ROWS = len(_ARGUMENTS) - _FIRST - 1
"""Numbers of arguments that stay for all steps, before the state, and that are new in each step, behind it."""

_CHANGED = tuple(_ARGUMENTS.index(name) for name in ("params", "total"))
"""Positions of the arguments that a step changes in place, beside the state."""
