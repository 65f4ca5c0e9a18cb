"""Hold the parameters, minibatches and solver state of clients during their local steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from turnout.core.device import to_device
from turnout.core.random import fold
from turnout.core.schedule import Schedule
from turnout.core.types import State, Task
from turnout.engine.cohort import Clients
from turnout.pieces.local.minibatches import Plan
from turnout.pieces.local.update import Update


@dataclass(frozen=True, eq=False)
class Descent:
    """The inputs of the local steps of B clients, in lanes by descending number of steps.

    Because of this order, the clients that still train are always a slice of the first lanes.

    Attributes:
        num_steps: local steps of each lane, int64 ``[B]``, descending, on the host.
        start: parameters before the first step, ``[B, P]``.
        lr: step sizes, ``[S, B, 1]``, or ``[S, 1, 1]`` if all lanes share them.
        examples: positions of the minibatches' examples in the flat data, int64 ``[S, parts, B, M]``; `parts` is the
            number of minibatches of a step.
        mask: 1, or its weight, for an example and 0 for padding, in the shape of `examples`; None without padding and
            weights.
        counts: number of examples of each minibatch without padding, int64 ``[B, S, parts]``, on the host.
        keys: 64 random bits for each minibatch, int64 ``[S, parts, B]``.
        first: loss ``[B]`` and gradient ``[B, P]`` of the first step, if they are known in advance; else None.
        weighted: whether the mask holds weights of examples.
        rounded: function that returns the number of lanes to compute for a number of lanes that train; None computes
            no others.
    """

    num_steps: np.ndarray
    start: torch.Tensor
    lr: torch.Tensor
    examples: torch.Tensor
    mask: torch.Tensor | None
    counts: np.ndarray
    keys: torch.Tensor
    first: tuple[torch.Tensor, torch.Tensor] | None
    weighted: bool = False
    rounded: Callable[[int], int] | None = None

    @classmethod
    def of(
        cls,
        planned: Plan,
        task: Task,
        order: np.ndarray,
        clients: Clients,
        lr: float | Schedule,
        per_step: int,
        first: tuple[torch.Tensor, torch.Tensor] | None,
        masked: bool = False,
        rounded: Callable[[int], int] | None = None,
    ) -> Descent:
        """Return the inputs of the local steps of clients.

        Args:
            planned: minibatches of the clients, `per_step` for each step.
            task: the task.
            order: order of the rows by descending number of steps, int64 ``[B]``.
            clients: the clients.
            lr: step size, or a schedule.
            per_step: number of minibatches per step.
            first: loss ``[B]`` and gradient ``[B, P]`` of the first step, if they are known in advance; else None.
            masked: whether there is a mask even if no minibatch has padding.
            rounded: as above.
        """
        examples, mask, keys = minibatches_of(planned, task, order, clients, "local step", masked)
        numbers = (len(examples) // per_step, per_step)  # S, parts
        num_steps = planned.num_steps[order] // per_step
        rows = to_device(order, task.params.device)
        return cls(
            num_steps=num_steps,
            start=task.params.expand(len(order), -1) if task.params.dim() == 1 else task.params[rows],
            lr=step_sizes(lr, task, len(clients), order, num_steps),
            examples=examples.unflatten(0, numbers),
            mask=None if mask is None else mask.unflatten(0, numbers),
            counts=planned.counts[order].reshape(len(order), *numbers),
            keys=keys.unflatten(0, numbers),
            first=None if first is None else (first[0][rows], first[1][rows]),
            weighted=clients.shards.weights is not None,
            rounded=rounded,
        )

    def part(self, rows: slice, state: StepState, x: torch.Tensor, y: torch.Tensor, alone: bool) -> Part:
        """Return the work of one thread, for a slice of the lanes. Threads do not wait for each other's Python.

        Args:
            rows: slice of the lanes.
            state: state of all lanes.
            x, y: examples of all clients, concatenated.
            alone: whether the slice is a single client, whose minibatches need no padding to a common size.
        """
        # Without autograd's version counter (`data`): it is shared by all views, so that a thread would fail because another
        # thread changes its own rows of the same tensor.
        params, start, stretches = state.params[rows].data, self.start[rows], []
        for active, begin, end in self._stretches(rows):
            lanes = active if self.rounded is None else min(self.rounded(active), len(params))
            rows_at_work = slice(rows.start, rows.start + lanes)
            sizes = rows_at_work if self.lr.shape[1] > 1 else slice(0, 1)
            moments = {name: value[rows_at_work] for name, value in state.moments.items()}
            here = LaneTensors(params[:lanes], start[:lanes], state.total[rows_at_work], x, y)
            first = None
            if begin == 0 and self.first is not None:
                loss, gradient = self.first
                first, begin = (self.lr[0, sizes], loss[rows_at_work], gradient[rows_at_work]), 1
            for low, high, width in self._widths(rows.start, begin, end) if alone else ((begin, end, None),):
                now = slice(low, high), slice(None), rows_at_work
                padded = self.weighted or width is None
                mask = None if self.mask is None or not padded else self.mask[now][..., :width]
                inputs = StepInputs(self.examples[now][..., :width], mask, self.keys[now], self.lr[low:high, sizes])
                stretches.append(Stretch(here, moments, first, inputs, lanes - active))
                first = None
        return Part(params, start, stretches)

    def _widths(self, row: int, begin: int, end: int) -> Iterator[tuple[int, int, int | None]]:
        """Yield ranges of steps (begin, end) of a client and their minibatch size; None if it varies within a step."""
        counts = self.counts[row, begin:end]
        if begin == end or (counts != counts[:, :1]).any():
            yield begin, end, None
            return
        changes = np.flatnonzero(np.diff(counts[:, 0])) + 1
        for low, high in pairwise([0, *changes.tolist(), end - begin]):
            yield begin + low, begin + high, int(counts[low, 0])

    def _stretches(self, rows: slice) -> Iterator[tuple[int, int, int]]:
        """Yield the number of lanes that still train, and the range of steps (begin, end) over which it is constant."""
        num_steps = self.num_steps[rows]
        if len(num_steps) and num_steps[0] == num_steps[-1] > 0:  # descending, so all are equal
            yield len(num_steps), 0, int(num_steps[0])
            return
        ends = np.unique(num_steps[num_steps > 0])
        for begin, end in pairwise([0, *ends.tolist()]):
            yield int((num_steps > begin).sum()), begin, end


@dataclass(frozen=True, eq=False)
class StepState:
    """The tensors that local steps of B clients change.

    Attributes:
        params: present parameters, ``[B, P]``; after the last step, the updates.
        total: sum of the losses so far, ``[B]``.
        moments: state of the update rule, ``[B, ...]`` by name.
    """

    params: torch.Tensor
    total: torch.Tensor
    moments: State

    @classmethod
    def of(cls, descent: Descent, update: Update, memory: State) -> StepState:
        """Return the state before the first step, with the update rule's state of earlier rounds if there is one."""
        start = descent.start
        return cls(start.new_empty(start.shape), start.new_zeros(len(start)), memory or update.init(start))


class LaneTensors(NamedTuple):
    """The tensors of b lanes that are the same in all steps of a stretch.

    Attributes:
        params: present parameters, ``[b, P]``; changed in place by every step.
        start: parameters before the first step, ``[b, P]``.
        total: sum of the losses so far, ``[b]``; changed in place by every step.
        x, y: examples of all clients, concatenated.
    """

    params: torch.Tensor
    start: torch.Tensor
    total: torch.Tensor
    x: torch.Tensor
    y: torch.Tensor


class StepInputs(NamedTuple):
    """The tensors that differ from step to step; in a `Stretch`, with a row for each step.

    Attributes:
        examples: positions of the step's minibatches in `x` and `y`, int64 ``[parts, b, M]``.
        mask: 1, or its weight, for an example and 0 for padding, ``[parts, b, M]``; None without padding and weights.
        keys: 64 random bits for each minibatch, int64 ``[parts, b]``.
        lr: step sizes, ``[b, 1]``, or ``[1, 1]`` for all clients.
    """

    examples: torch.Tensor
    mask: torch.Tensor | None
    keys: torch.Tensor
    lr: torch.Tensor


@dataclass(frozen=True, eq=False)
class Stretch:
    """A sequence of steps in which the same lanes train.

    Attributes:
        here: the tensors of the lanes.
        moments: state of the update rule, ``[b, ...]`` by name.
        first: step size, loss and gradient of a first step that is known in advance; else None.
        inputs: the inputs of the steps that remain after it, with a row for each.
        idle: number of the last lanes whose clients have finished, so that nothing reads what they compute.
    """

    here: LaneTensors
    moments: State
    first: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None
    inputs: StepInputs
    idle: int = 0


@dataclass(frozen=True, eq=False)
class Part:
    """The work of one thread: the parameters ``[b, P]`` of its lanes, their start, and their stretches of steps."""

    params: torch.Tensor
    start: torch.Tensor
    stretches: list[Stretch]


def minibatches_of(
    planned: Plan, task: Task, order: np.ndarray, clients: Clients, purpose: str, masked: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Return planned minibatches on the device, with rows in a given order.

    Args:
        planned: minibatches of the clients.
        task: the task, whose seed and version determine the random bits.
        order: order of the rows, int64 ``[B]``.
        clients: the clients, whose data the minibatches index.
        purpose: name of the stream of random bits.
        masked: whether to return a mask even if no minibatch has padding.

    Returns:
        Positions in the flat data, int64 ``[S, B, M]``; the mask, as in `Descent`; and 64 random bits of each, ``[S,
        B]``.
    """
    device, weights = task.params.device, clients.shards.weights
    examples = planned.on(device, order)
    if clients.objective.network.draws or clients.transforms:
        keys = clients.keys(purpose, task.seed, task.draws(len(clients)), order)
        keys = fold(keys, torch.arange(len(examples), device=device)[:, None])
    else:  # the order of examples is the only randomness
        keys = torch.zeros(examples.shape[:2], dtype=torch.int64, device=device)
    mask = None
    if masked or not planned.full or weights is not None:
        # A contiguous mask: its strides are a part of the key of a trace.
        counts = to_device(np.ascontiguousarray(planned.counts[order].T), device)
        mask = (torch.arange(examples.shape[-1], device=device) < counts[:, :, None]).to(task.params.dtype)
        mask = mask if weights is None else mask * weights[examples].to(mask.dtype)
    return examples, mask, keys


def step_sizes(
    lr: float | Schedule, task: Task, num_clients: int, order: np.ndarray, num_steps: np.ndarray
) -> torch.Tensor:
    """Return the step size of every step and lane, ``[S, B, 1]``, or ``[S, 1, 1]`` if all lanes share them.

    In the phase ``"prepare"``, which only asks for gradients, step sizes are zero, so that weight decay moves nothing
    either.
    """
    shape, params = (int(num_steps.max(initial=0)), 1, 1), task.params
    if task.phase == "prepare":
        return params.new_zeros(()).expand(shape)
    if not isinstance(lr, Schedule):
        return params.new_full((), float(lr)).expand(shape)
    sizes = lr.at_steps(task.rounds(num_clients)[order], num_steps)
    if (sizes == sizes[:, :1]).all():  # a step is faster with a single column
        sizes = sizes[:, :1]
    return to_device(np.array(sizes), params.device, params.dtype)[:, :, None]
