"""Hold the parameters, minibatches and solver state of clients during their local steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

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
    """The local steps of B clients, those with more steps before those with fewer: who is at work is a slice of the rows.

    Attributes:
        num_steps: of each client, int64 ``[B]``, falling.
        start: where they begin, ``[B, P]``.
        lr: step sizes, ``[S, B, 1]``, or ``[S, 1, 1]`` where they are those of all clients.
        examples: positions in the flat data, ``[S, parts, B, M]``: of each step, one or more minibatches.
        mask: 1, or its weight, for an example and 0 for padding, as `examples`; None where nothing is padded or weighted.
        counts: how many of each minibatch are examples, on the host, int64 ``[B, S, parts]``.
        keys: 64 random bits of each minibatch, ``[S, parts, B]``.
        first_loss, first_gradient: of the first step, ``[B]`` and ``[B, P]``, where they are known.
        weighted: whether the mask holds weights.
    """

    num_steps: np.ndarray
    start: torch.Tensor
    lr: torch.Tensor
    examples: torch.Tensor
    mask: torch.Tensor | None
    counts: np.ndarray
    keys: torch.Tensor
    first_loss: torch.Tensor | None
    first_gradient: torch.Tensor | None
    weighted: bool = False

    def part(self, rows: slice, state: StepState, x: torch.Tensor, y: torch.Tensor, alone: bool) -> Part:
        """Return the work of one thread: a slice of the clients. Threads do not wait for each other's Python.

        Args:
            rows: which.
            state: of all clients.
            x, y: all examples, end to end.
            alone: whether it is one client, who needs no padding to be like others.
        """
        # By `data`, because derivatives of one thread must not see what another one changes in the same tensor.
        params, start, stretches = state.params[rows].data, self.start[rows], []
        for active, begin, end in self._stretches(rows):
            rows_at_work = slice(rows.start, rows.start + active)
            sizes = rows_at_work if self.lr.shape[1] > 1 else slice(0, 1)
            moments = {name: value[rows_at_work] for name, value in state.moments.items()}
            here = params[:active], start[:active], state.total[rows_at_work], x, y
            first = None
            if begin == 0 and self.first_loss is not None and self.first_gradient is not None:
                first, begin = (self.lr[0, sizes], self.first_loss[rows_at_work], self.first_gradient[rows_at_work]), 1
            for low, high, width in self._widths(rows.start, begin, end) if alone else ((begin, end, None),):
                now = slice(low, high), slice(None), rows_at_work
                padded = self.weighted or width is None
                mask = None if self.mask is None or not padded else self.mask[now][..., :width]
                minibatches = self.examples[now][..., :width], mask, self.keys[now], self.lr[low:high, sizes]
                stretches.append(Stretch(here, moments, first, high - low, minibatches))
                first = None
        return Part(params, start, stretches)

    def _widths(self, row: int, begin: int, end: int) -> Iterator[tuple[int, int, int | None]]:
        """Yield steps (begin, end) of one client and the size of their minibatches, None if sizes in a step differ."""
        counts = self.counts[row, begin:end]
        if begin == end or (counts != counts[:, :1]).any():
            yield begin, end, None
            return
        changes = np.flatnonzero(np.diff(counts[:, 0])) + 1
        for low, high in pairwise([0, *changes.tolist(), end - begin]):
            yield begin + low, begin + high, int(counts[low, 0])

    def _stretches(self, rows: slice) -> Iterator[tuple[int, int, int]]:
        """Yield how many of the clients are at work, and the steps (begin, end) in which they are."""
        num_steps = self.num_steps[rows]
        if len(num_steps) and num_steps[0] == num_steps[-1] > 0:  # nobody between them differs
            yield len(num_steps), 0, int(num_steps[0])
            return
        ends = np.unique(num_steps[num_steps > 0])
        for begin, end in pairwise([0, *ends.tolist()]):
            yield int((num_steps > begin).sum()), begin, end


@dataclass(frozen=True, eq=False)
class StepState:
    """What the steps of B clients change.

    Attributes:
        params: where they are, ``[B, P]``, and in the end how far each has come.
        total: the sum of its losses, ``[B]``.
        moments: the state of the solver's rule, rows ``[B, ...]`` by name.
    """

    params: torch.Tensor
    total: torch.Tensor
    moments: State

    @classmethod
    def of(cls, descent: Descent, update: Update, memory: State) -> StepState:
        """Return the state before the first step, with the solver state from earlier rounds if there is one."""
        start = descent.start
        return cls(start.new_empty(start.shape), start.new_zeros(len(start)), memory or update.init(start))


@dataclass(frozen=True, eq=False)
class Stretch:
    """Steps in which the same clients are at work.

    Attributes:
        here: the first arguments of a step, up to the state.
        moments: the state.
        first: step size, loss and gradient of the first step, where they are known.
        number: of the steps that follow.
        minibatches: the other arguments of these, with a row for each.
    """

    here: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
    moments: State
    first: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None
    number: int
    minibatches: tuple[torch.Tensor | None, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """What one thread does: clients from where they begin, ``[b, P]``, stretch by stretch."""

    params: torch.Tensor
    start: torch.Tensor
    stretches: list[Stretch]


def minibatches_of(
    planned: Plan, task: Task, order: np.ndarray, clients: Clients, purpose: str
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Return the planned minibatches on the device, rows in this order.

    Args:
        planned: minibatches of the clients.
        task: whose seed and version random bits depend on.
        order: of the rows, int64 ``[B]``.
        clients: whose data they are of.
        purpose: of the random bits.

    Returns:
        Positions in the flat data, ``[S, B, M]``; the mask, as in `Descent`; and 64 random bits of each, ``[S, B]``.
    """
    device, weights = task.params.device, clients.shards.weights
    examples = to_device(planned.examples[order].swapaxes(0, 1).copy(), device)
    if clients.objective.draws or clients.transforms:
        keys = clients.keys(purpose, task.seed, task.draws(len(clients)), order)
        keys = fold(keys, torch.arange(len(examples), device=device)[:, None])
    else:  # nothing is random but the order of examples
        keys = torch.zeros(examples.shape[:2], dtype=torch.int64, device=device)
    mask = None
    if not planned.full or weights is not None:
        inside = np.arange(examples.shape[-1]) < planned.counts[order].T[:, :, None]
        mask = to_device(inside, device, task.params.dtype)
        mask = mask if weights is None else mask * weights[examples].to(mask.dtype)
    return examples, mask, keys


def step_sizes(lr: float | Schedule, task: Task, order: np.ndarray, num_steps: np.ndarray) -> torch.Tensor:
    """Return the size of each step and lane, ``[S, B, 1]``, or of all lanes, ``[S, 1, 1]``.

    They are zero where gradients alone are asked for, so that weight decay rests, too.
    """
    shape, params = (int(num_steps.max(initial=0)), 1, 1), task.params
    if task.phase == "prepare":
        return params.new_zeros(()).expand(shape)
    if not isinstance(lr, Schedule):
        return params.new_full((), float(lr)).expand(shape)
    sizes = lr.at_steps(task.rounds(len(order))[order], num_steps)
    if (sizes == sizes[:, :1]).all():  # one column, for which a step costs less
        sizes = sizes[:, :1]
    return to_device(np.array(sizes), params.device, params.dtype)[:, :, None]
