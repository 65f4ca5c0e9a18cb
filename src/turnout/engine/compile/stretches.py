"""Replay the steps of a stretch: all of them as one recording if their number is frequent, and one by one otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from turnout.engine.compile import plain
from turnout.engine.compile.cuda_graph import Graphed
from turnout.engine.compile.tracer import Operations

_CALLS = 2  # stretches of a number of steps before these are recorded together
_MOST = 2  # numbers of steps with a recording of all steps


def build(
    traced: Operations, arguments: list[torch.Tensor], changes: tuple[int, ...], fixed: int | None
) -> Callable[..., Any]:
    """Return a function that records the operations as a CUDA graph, and replays them; see `Backend.build`."""
    function = plain.build(traced, arguments, changes, None)
    return Graphed(function, changes) if fixed is None else Stretches(function, changes)


class Stretches:
    """Call ``function(*fixed, *(rows[i] for rows in columns))`` for every i, for its changes in place.

    A recording of all steps reads the rows of its columns in place, so that a stretch takes one copy of each argument and one
    start. A recording of one step, which serves all other numbers of steps, takes a copy of each row and a start per step.

    Args:
        function: function of tensors, with the same operations in every call.
        changes: indices of the arguments that it changes in place.
        options: further arguments of `Graphed`.

    Attributes:
        step: the recorded step.
        whole: the recorded stretches, by number of steps.
    """

    def __init__(self, function: Callable[..., Any], changes: tuple[int, ...], **options: Any) -> None:
        self._function, self._changes, self._options = function, changes, options
        self._calls = Counter[int]()
        self.step = Graphed(function, changes, **options)
        self.whole: dict[int, Graphed] = {}

    def __call__(self, fixed: list[torch.Tensor], columns: list[torch.Tensor]) -> None:
        """Take the steps of a stretch."""
        whole = self._whole(len(columns[0]), len(fixed))
        # A row that is the same in all steps of this stretch, such as a step size, may differ in those of the next one.
        if whole is None or not whole.replay(fixed, [c.contiguous() if c.stride(0) == 0 else c for c in columns]):
            self.step.repeat(fixed, columns)

    def _whole(self, number: int, num_fixed: int) -> Graphed | None:
        """Return all steps of a stretch as one function; None if they are not, or not yet, recorded together."""
        self._calls[number] += 1
        if number in self.whole:
            return self.whole[number]
        if number == 1 or self._calls[number] <= _CALLS or len(self.whole) == _MOST or not self.step.is_trusted:
            return None
        function = self._function

        def steps(*arguments: torch.Tensor) -> None:
            for rows in zip(*(column.unbind() for column in arguments[num_fixed:]), strict=True):
                function(*arguments[:num_fixed], *rows)

        self.whole[number] = Graphed(steps, self._changes, unit="step", **self._options)
        return self.whole[number]
