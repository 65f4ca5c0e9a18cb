"""Run the client side of an algorithm around a foreign training loop."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol, cast

import numpy as np
import torch

from turnout.base import Correction, Local
from turnout.base.algorithm import Algorithm
from turnout.base.client_step import client_step
from turnout.core.checks import ConfigurationError
from turnout.core.lanes import Lanes
from turnout.core.types import Federation, Report, State, Task
from turnout.engine.cohort import Clients, Start
from turnout.pieces.local.cohort_steps import outcome
from turnout.record.describe import describe
from turnout_flower.arrays import Arrays
from turnout_flower.options import LOSSES
from turnout_serve.wire.format import digest

ORDER, SHARED = "turnout", "turnout.shared"
"""The records of a message for the mod: the order of the task, and vectors that are broadcast beside the model."""

Direction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""A function from gradient and parameters, ``[P]`` each, to the direction to descend, ``[P]``."""


class Loop(Protocol):
    """A training loop.

    Attributes:
        examples: number of examples of its last run.
    """

    examples: int

    def __call__(self, params: torch.Tensor, direction: Direction, stay: bool = False) -> tuple[torch.Tensor, int]:
        """Train from parameters ``[P]``; return the final parameters and the number of steps.

        Args:
            params: the initial parameters.
            direction: function that returns the direction to descend in place of the gradient.
            stay: reset the parameters after each step.
        """
        ...


@dataclass(frozen=True)
class LoopSteps(Local):
    """A training loop as a local rule, with its own minibatches, optimizer and number of steps."""

    gives: ClassVar[tuple[str, ...]] = ("loss", *LOSSES)  # the server reads these from metrics

    def alone(self, steps: int) -> Local:
        """Return the rule itself, because the loop determines the number of steps."""
        return self

    def train(self, task: Task, memory: State, clients: Clients, corrections: tuple[Correction, ...]) -> Report:
        """Run the loop once, with corrected gradients."""
        loop, start, steps = cast("LoopClient", clients).loop, task.params.reshape(-1), 0
        # An alternating correction depends on the total number of steps, so a run that changes nothing counts them first.
        if any(getattr(piece, "alternate", 0.0) for piece in corrections):
            steps = loop(start, lambda gradient, _: gradient, stay=True)[1]
        lanes = Lanes(np.zeros(1, dtype=np.int64), np.array([steps]))
        begun = [piece.begin(task, memory, clients, lanes) for piece in corrections]

        def direction(gradient: torch.Tensor, params: torch.Tensor) -> torch.Tensor:
            row = gradient[None]
            for piece in begun:
                row = piece.correct(row, params[None], start[None])
            return row[0]

        end, steps = loop(start, direction, stay=task.phase == "prepare")
        if corrections and not steps:
            names = ", ".join(type(piece).__name__ for piece in corrections)
            raise ConfigurationError(f"{names}: the ClientApp took no step of an optimizer of torch.optim to correct")
        delta, num_steps = (end - start)[None], np.array([steps], dtype=np.int64)
        changed, remembered, delta = outcome([begun], [delta], delta)
        memory |= remembered
        return Report(clients.ids, task.versions(1), clients.num_examples, num_steps, delta, changed)


class LoopStart(Start):
    """The gradient at the received model, from a run of the client's loop that does not change parameters."""

    @cached_property
    def gradient(self) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The mean gradient of the minibatches of one run of the loop, ``[1, P]``.

        It equals the gradient over all examples if each is in one minibatch and minibatches have equal size.
        """
        total = torch.zeros(self.params.shape[-1], dtype=self.params.dtype)

        def add(gradient: torch.Tensor, params: torch.Tensor) -> torch.Tensor:
            del params
            total.add_(gradient)
            return gradient

        steps = cast("LoopClient", self.clients).loop(self.params.reshape(-1), add, stay=True)[1]
        if not steps:
            raise ConfigurationError("the ClientApp took no step of an optimizer of torch.optim to read a gradient of")
        return (total / steps)[None]


@dataclass(frozen=True, eq=False)
class LoopClient(Clients):
    """A client whose examples only its own loop sees: the client of a step without data and objective."""

    loop: Loop = field(kw_only=True)

    @property
    def num_examples(self) -> np.ndarray:
        """The number of examples of the last run of the loop, int64 ``[1]``."""
        return np.array([self.loop.examples], dtype=np.int64)

    def at(self, task: Task) -> tuple[LoopClient, Start]:
        """Return the client with its `Start` at the model of a task, and this `Start`."""
        start = LoopStart(task, self)
        return replace(self, start=start), start


def work(
    algorithm: Algorithm, arrays: Arrays, loop: Loop, client: int, task: Task, memory: State
) -> tuple[Report, State]:
    """Run a task by a training loop; return the report, and the client memory if the server accepts it.

    Args:
        algorithm: the algorithm.
        arrays: the arrays of the model.
        loop: the training loop.
        client: the number of the client.
        task: the task, with the shared parameters, ``[P_u]``.
        memory: the memory of the client; empty before its first task.
    """
    measured = tuple(piece for piece in algorithm.measurements if not set(piece.gives) <= {*LOSSES})
    network = SimpleNamespace(rebase=lambda _: None, adapters=())
    objective: Any = SimpleNamespace(layout=arrays.layout, network=network, device=arrays.initial.device)
    lane = LoopClient(np.array([client]), np.zeros(1, dtype=np.int64), cast("Any", None), objective, loop=loop)
    rows = {name: value[None].clone() for name, value in (memory or first_memory(algorithm, arrays)).items()}
    report, rows = client_step(replace(algorithm, local=LoopSteps(), measurements=measured), task, rows, lane)
    return report, {name: value[0] for name, value in rows.items()}


def example(algorithm: Algorithm, arrays: Arrays, phase: str, seed: int) -> Report:
    """Return the report of a loop that leaves the parameters unchanged, as an example of names and shapes."""

    def still(params: torch.Tensor, direction: Direction, stay: bool = False) -> tuple[torch.Tensor, int]:
        del stay
        direction(torch.zeros_like(params), params)
        return params, 1

    loop: Any = still
    loop.examples = 1
    task = Task(arrays.shared, 0, seed, phase, {name: torch.zeros_like(arrays.shared) for name in algorithm.keeps})
    return work(algorithm, arrays, loop, 0, task, {})[0]


def first_memory(algorithm: Algorithm, arrays: Arrays) -> State:
    """Return the memory of a client before its first task."""
    layout, initial, personal = arrays.layout, arrays.initial, algorithm.personal
    first = initial[layout.num_shared :] if personal is None else personal.first(initial, layout.num_shared)
    return algorithm.memory(Federation(1, layout.num_shared, dtype=initial.dtype), first, layout.shared_shapes)


def client_part(algorithm: Algorithm) -> str:
    """Return a digest of the client side of an algorithm, by which server and client check that they agree."""
    names = ("corrections", "guard", "personal", "measurements")
    parts = [describe(getattr(algorithm, name)) for name in names]
    return digest(json.dumps([*parts, describe(algorithm.selection.measurements)], default=str).encode())
