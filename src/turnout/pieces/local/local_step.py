"""Take the local steps of a cohort: each is a function of tensors alone, which the engine replays without Python."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from turnout.base import Correction, LossTerm
from turnout.core.types import State
from turnout.data.transforms import Transform
from turnout.engine.compile.compiled import Compiled
from turnout.engine.examples import minibatch
from turnout.engine.objective import Objective
from turnout.pieces.local.descent import LaneTensors, Part, StepInputs, Stretch
from turnout.pieces.local.update import Direction, Update, descend, shares, steepest


@dataclass(frozen=True)
class StaticCorrections:
    """Corrections without their tensors. They are equal in all rounds, so that a step is traced once for all of them.

    Attributes:
        corrections: the corrections, with None in place of every tensor.
        names: names of the fields that held a tensor, for each correction.
    """

    corrections: tuple[Correction, ...]
    names: tuple[tuple[str, ...], ...]

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> tuple[Correction, ...]:
        """Return the corrections with the given tensors, in the order of `split_tensors`."""
        rest = iter(tensors)
        return tuple(
            replace(cast("Any", correction), **{name: next(rest) for name in names}) if names else correction
            for correction, names in zip(self.corrections, self.names, strict=True)
        )


def split_tensors(corrections: tuple[Correction, ...]) -> tuple[StaticCorrections, list[torch.Tensor]] | None:
    """Return corrections without their tensors, and the tensors; None if other values may change between steps.

    Other values cannot change if a correction is a frozen dataclass of tensors and hashable values (see `Correction`).
    """
    bare, names, held = [], [], []
    for correction in corrections:
        options = getattr(correction, "__dataclass_params__", None)
        if options is None or not options.frozen or not hasattr(correction, "__dict__"):
            return None
        tensors = {name: value for name, value in vars(correction).items() if isinstance(value, torch.Tensor)}
        if tensors and hasattr(correction, "__post_init__"):  # it would run on None in place of the tensors
            return None
        bare.append(replace(cast("Any", correction), **dict.fromkeys(tensors)) if tensors else correction)
        names.append(tuple(tensors))
        held += tensors.values()
    static = StaticCorrections(tuple(bare), tuple(names))
    try:
        hash(static)
    except TypeError:
        return None
    return static, held


@dataclass(frozen=True, eq=False)
class LocalStep:
    """Take a local step: load minibatches, compute gradients, apply corrections, and apply the update rule.

    Args:
        objective: model and loss.
        transforms: transforms of a minibatch before the forward pass.
        direction: function that computes the direction before corrections.
        corrections: corrections of the direction, started for these clients by `Correction.begin`.
        update: rule that turns the corrected gradient into a step.
        accumulate: number of minibatches over which a gradient is averaged, >= 1.
    """

    objective: Objective
    transforms: tuple[Transform, ...]
    direction: Direction
    corrections: tuple[Correction, ...]
    update: Update
    accumulate: int = 1

    @property
    def _is_plain(self) -> bool:
        """True if a step descends the unchanged gradient of one minibatch."""
        changed = self.corrections or self.accumulate > 1 or self.objective.layout.num_statistics
        return self.direction is steepest and self.update.is_plain and not changed

    def run(self, part: Part) -> None:
        """Take all steps of a part; afterwards its parameters hold the updates."""
        part.params.copy_(part.start)
        for stretch in part.stretches:
            finished = self._finished(part, stretch)
            results = [rows.clone() for rows in finished]
            if stretch.first is not None:
                self.move(stretch.here, stretch.moments, *stretch.first)
            if len(stretch.inputs.lr):
                self.repeat(stretch)
            for rows, result in zip(finished, results, strict=True):
                rows.copy_(result)
        part.params.sub_(part.start)

    def _finished(self, part: Part, stretch: Stretch) -> list[torch.Tensor]:
        """Return the results of clients that have finished, as far as a stretch overwrites them."""
        if not stretch.idle or (split := split_tensors(self.corrections)) is None:
            return []
        params, total, lanes = stretch.here.params, stretch.here.total, len(part.params)
        held = [t[: len(params)] for t in split[1] if t.dim() and len(t) == lanes and not _is_expanded(t)]
        return [rows[-stretch.idle :] for rows in (params, total, *stretch.moments.values(), *held)]

    def repeat(self, stretch: Stretch) -> None:
        """Take the steps of a stretch, without Python in between if only tensors change between steps.

        On the engine ``"one_by_one"``, padding is cut off by a mask, which needs Python.
        """
        here, state, inputs = stretch.here, stretch.moments, stretch.inputs
        whole = self.objective.engine == "vectorized" or inputs.mask is None
        if whole and (compiled := self._compiled(tuple(state))) is not None:
            replayed, held = compiled
            for arguments in replayed.replay((*here, *state.values(), *held), inputs):
                replayed.function(*arguments)
            return
        for rows in zip(*(itertools.repeat(None) if part is None else part for part in inputs), strict=False):
            self(here, state, StepInputs(*rows), replay=True)  # type: ignore[arg-type]

    def _compiled(self, names: tuple[str, ...]) -> tuple[Compiled, list[torch.Tensor]] | None:
        """Return the step as a compiled function of tensors, and the tensors of its corrections; None if impossible.

        The corrections' tensors come between the tensors of the state and the minibatch in the function's arguments.

        Args:
            names: names of the state's tensors, in the order of the arguments.
        """
        split = split_tensors(self.corrections)
        if split is None:
            return None
        bare, held = split
        blank = replace(self, corrections=bare.corrections, objective=self.objective.without_traces())

        def step(*arguments: torch.Tensor) -> torch.Tensor:
            here, rest, rows = arguments[:_HERE], arguments[_HERE:-_INPUTS], arguments[-_INPUTS:]
            state, held = dict(zip(names, rest, strict=False)), rest[len(names) :]
            taken = replace(blank, corrections=bare.with_tensors(held))
            return taken(LaneTensors(*here), state, StepInputs(*rows))

        key = (self.direction, self.transforms, bare, self.update, self.accumulate)
        changes = (*_CHANGED, *range(_HERE, _HERE + len(names) + len(held)))
        return self.objective.compiled(key, step, changes), held

    def __call__(self, here: LaneTensors, state: State, inputs: StepInputs, replay: bool = False) -> torch.Tensor:
        """Take one step from ``here.params``, in place, and return them.

        Args:
            here: the tensors of the lanes.
            state: state of the update rule, ``[B, ...]`` by name; changed in place.
            inputs: the inputs of the step.
            replay: whether to replay the gradients alone, where the step as a whole is not replayed.
        """
        params, (examples, mask, keys, lr) = here.params, inputs

        def data(part: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
            inside = None if mask is None else mask[part]
            return *minibatch(here.x, here.y, examples[part], keys[part], self.transforms), inside, keys[part]

        def gradient_at(params: torch.Tensor, part: int) -> tuple[torch.Tensor, torch.Tensor]:
            if self.accumulate == 1:
                return self.objective.gradient(params, *data(part), replay=replay)
            parts = range(part * self.accumulate, (part + 1) * self.accumulate)
            of_parts = shares(mask, parts, len(params), params)
            loss, gradient = torch.zeros_like(here.total), torch.zeros_like(params)
            for index, share in zip(parts, of_parts, strict=True):
                of_part = self.objective.gradient(params, *data(index), replay=replay)
                loss.addcmul_(of_part[0], share)
                gradient.addcmul_(of_part[1], share[:, None])
            return loss, gradient

        if self._is_plain and len(params) == 1 and self.objective.engine == "one_by_one":
            # Layer by layer: concatenating the gradients of a large model takes about as long as computing one of its layers.
            batch, targets, inside, key = data(0)
            inside = None if inside is None else inside[0]
            loss, layers = self.objective.gradient_by_layer(params[0], batch[0], targets[0], inside, key[0])
            here.total.add_(loss)
            for layer, gradient in layers:
                descend(layer, gradient, lr[0, 0])
            return params
        if self.direction is steepest and self.accumulate == 1:  # the gradient, without `gradient_at`
            loss, direction = self.objective.gradient(params, *data(0), replay=replay)
        else:
            loss, direction = self.direction(params, gradient_at)
        for correction in self.corrections:
            if isinstance(correction, LossTerm):
                batch, _, inside, key = data(0)
                direction = direction + correction.slope(self.objective, params, batch, inside, key)
        return self.move(here, state, lr, loss, direction)

    def move(
        self, here: LaneTensors, state: State, lr: torch.Tensor, loss: torch.Tensor, gradient: torch.Tensor
    ) -> torch.Tensor:
        """Take one step with a known loss ``[B]`` and direction ``[B, P]``, in place, and return the parameters."""
        params = here.params
        here.total.add_(loss)
        layout, followed = self.objective.layout, None
        statistics = layout.statistics if layout.num_statistics else None
        if statistics is not None:
            followed = params[:, statistics] - gradient[:, statistics]
        gradient = self.update.clipped(gradient, statistics)
        if self.update.weight_decay:
            gradient = gradient.add(params, alpha=self.update.weight_decay)
        for correction in self.corrections:
            gradient = correction.correct(gradient, params, here.start)
        self.update.step(params, gradient, state, lr)
        if followed is not None:
            params[:, statistics] = followed
        return params


def _is_expanded(tensor: torch.Tensor) -> bool:
    """Return whether rows share memory, so that no step changes one of them."""
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))


_HERE, _INPUTS = len(LaneTensors._fields), len(StepInputs._fields)
_CHANGED = tuple(LaneTensors._fields.index(name) for name in ("params", "total"))
"""Positions of the arguments of a compiled step that it changes in place, beside the state and the corrections' tensors."""
