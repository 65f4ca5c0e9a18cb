"""Base class of local solvers, which take local steps on minibatches and hold the options common to all of them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch

from turnout.base import Correction, CountsSteps, Local, LossTerm, MemoryShapes, Traits
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.registry import Family
from turnout.core.schedule import StepSize
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients
from turnout.pieces.local.cohort_steps import lanes_of, outcome, take_steps
from turnout.pieces.local.descent import Descent, StepState
from turnout.pieces.local.local_step import LocalStep, split_tensors
from turnout.pieces.local.minibatches import Plan, Sampling, batches_per_pass, plan
from turnout.pieces.local.update import Direction, MaxNorm, Update, steepest
from turnout.pieces.local.work import Amount, Work, check_work

PREFIX = "solver."
"""Prefix of the names of a solver's state in client memory."""


@dataclass(frozen=True)
class Solver(Local, CountsSteps):
    """Train clients by local steps on minibatches.

    A local step is ``y <- y - lr d``, where the update rule of the solver computes the direction d from the minibatch
    gradient. By default, minibatches are those of FedAU's authors: shuffled passes over the client's data that continue
    from round to round, without the incomplete last minibatch (a client with less than one minibatch uses all of its
    examples).

    Args:
        lr: step size of the client, > 0, or a `Schedule` by round or by local step.
        steps: local steps per round, >= 1, or a `Work` that varies by client and round; None if `epochs` is given.
        epochs: passes over the client's data per round in place of `steps`, >= 1, or a `Work`; clients with more
            examples then take more steps.
        batch_size: number of examples in a minibatch, >= 1.
        sampling: ``"pass"``: shuffled passes over the data that continue from round to round; ``"fresh"``: a new
            shuffled pass in every round; ``"replacement"``: independent draws with replacement.
        drop_last: whether to leave out the incomplete last minibatch of a pass; None does so with `steps` and not with
            `epochs`.
        accumulate: number of minibatches per step, >= 1. The gradient is the mean over all of their examples, and one
            minibatch is in memory at a time.
        max_norm: largest Euclidean norm of a step's gradient over all parameters, > 0; larger gradients are scaled down
            before anything is added to them, as by ``torch.nn.utils.clip_grad_norm_``. None does not clip.
        keep_state: whether a client keeps the solver's state (momentum, moments) for its next round; otherwise the
            state starts anew in every round. If the server drops a report, because of NaN or infinity, the state does
            not change.

    Raises:
        ConfigurationError: if an option is out of range, or if not exactly one of `steps` and `epochs` is given.

    Seen by the server: ``loss [B]``, the mean loss over the minibatches of the local steps.
    """

    family = Family("solver", "solvers", ("turnout.pieces.local",))

    gives = ("loss",)

    lr: StepSize = 0.1
    steps: int | Work | None = 5
    epochs: int | Work | None = None
    batch_size: Amount = 16
    sampling: Sampling = "pass"
    drop_last: bool | None = None
    accumulate: Amount = 1
    max_norm: MaxNorm | None = None
    keep_state: bool = False

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise ConfigurationError(
                f"steps and epochs: got steps={self.steps} and epochs={self.epochs}, needed one of them, and None for the "
                f"other: write {type(self).__name__}(steps=None, epochs=1) for one pass over the client's data"
            )
        check_work("steps" if self.epochs is None else "epochs", self._work)

    @property
    @abstractmethod
    def update(self) -> Update:
        """The update rule of the local steps."""

    @property
    def traits(self) -> Traits:
        """Properties that follow from the update rule, the kept state and the amount of work."""
        return Traits(
            of_one_minibatch=self.accumulate == 1 and self.direction is steepest,
            varies=isinstance(self._work, Work),
            steps_by_examples=self.epochs is not None,
            deadline=self.steps.deadline if isinstance(self.steps, Work) else None,
            remembers=self._kept,
            adapts=bool(self.update.init(torch.empty((1, 1), device="meta"))),
            drifts=self.keep_state,
        )

    @property
    def per_step(self) -> int:
        """Number of minibatches per step."""
        return self.accumulate

    def memory(self, num_params: int, dtype: torch.dtype) -> MemoryShapes:
        """Return the shapes of the number of minibatches used so far, where a pass continues, and of the kept state."""
        passes = {"steps_done": ((), torch.int64)} if self.sampling == "pass" else {}
        if not self.keep_state:
            return passes
        state = self.update.init(torch.empty((1, num_params), dtype=dtype, device="meta"))
        return passes | {PREFIX + name: (tuple(rows.shape[1:]), rows.dtype) for name, rows in state.items()}

    @property
    def _kept(self) -> tuple[str, ...]:
        """Names of the kept state in client memory."""
        return tuple(name for name in self.memory(1, torch.float32) if name.startswith(PREFIX))

    def alone(self, steps: int) -> Self:
        """Return the same steps without client memory: passes and state start anew."""
        sampling = "fresh" if self.sampling == "pass" else self.sampling
        return replace(self, steps=steps, epochs=None, sampling=sampling, keep_state=False)

    @property
    def _drops_last(self) -> bool:
        return self.epochs is None if self.drop_last is None else self.drop_last

    @property
    def _work(self) -> int | Work | None:
        return self.steps if self.epochs is None else self.epochs

    def num_steps(self, task: Task, clients: Clients) -> np.ndarray:
        """Return the number of local steps of B clients with a task, int64 ``[B]``."""
        work, sizes = self._work, clients.num_examples
        return self._steps_of(
            work.amount(task, clients) if isinstance(work, Work) else np.full(len(sizes), work), sizes
        )

    def max_steps(self, num_examples: np.ndarray) -> np.ndarray | None:
        """Return the maximum number of local steps in any task, int64 ``[B]``; None if the amount of work has no limit."""
        work = self._work
        most = work.limit if isinstance(work, Work) else work
        return None if most is None else self._steps_of(np.full(len(num_examples), most), num_examples)

    def _steps_of(self, amount: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return the number of local steps for an amount of work and a number of examples, int64 ``[B]``."""
        if self.epochs is None:
            return amount
        return -(-amount * batches_per_pass(sizes, self.batch_size, self._drops_last) // self.accumulate)

    def plan(self, task: Task, memory: State, clients: Clients) -> Plan:
        """Return the minibatches of this round, `per_step` for each step."""
        inputs = self._inputs(task, memory, clients)
        planned = clients.ahead.take(inputs)
        return plan(**inputs) if planned is None else planned

    def plan_ahead(self, task: Task, memory: State, clients: Clients) -> None:
        """Plan the minibatches of a later round, and keep them for `plan`."""
        inputs = self._inputs(task, memory, clients)
        clients.ahead.keep(inputs, plan(**inputs))

    def _inputs(self, task: Task, memory: State, clients: Clients) -> dict[str, Any]:
        """Return the arguments of `plan`."""
        sizes = clients.num_examples
        return {
            "offsets": clients.shards.offsets[clients.rows],
            "sizes": sizes,
            "clients": clients.ids,
            "versions": task.draws(len(clients)),
            # a copy, because `train` adds to the memory in place
            "done": memory["steps_done"].numpy().copy() if self.sampling == "pass" else np.zeros_like(sizes),
            "num_steps": self.num_steps(task, clients) * self.per_step,
            "batch_size": self.batch_size,
            "sampling": self.sampling,
            "drop_last": self._drops_last,
            "seed": task.seed,
            "device": None if task.params.device.type == "cpu" else task.params.device,
        }

    def train(self, task: Task, memory: State, clients: Clients, corrections: tuple[Correction, ...]) -> Report:
        """Train B clients from the task's parameters. Clients with more steps continue after the others have finished."""
        planned, objective, device = self.plan(task, memory, clients), clients.objective, task.params.device
        num_steps = planned.num_steps // self.per_step
        # The approximate number of multiplications in a step of a client.
        products = planned.examples.shape[2] * self.per_step * objective.layout.num_params
        lanes, parts = lanes_of(num_steps, objective, products)
        begun = [tuple(each.begin(task, memory, clients, lanes.part(part)) for each in corrections) for part in parts]
        steps = [
            LocalStep(objective, clients.transforms, self.direction, of_part, self.update, self.accumulate)
            for of_part in begun
        ]
        rounded = partial(objective.lane_sizes.rounded, products=products)
        if any(split_tensors(of_part) is None for of_part in begun):
            rounded = None  # a step may change what is no tensor, so that the results of finished clients are not kept
        first, masked = self._first_gradient(clients, corrections), self._masked(clients)
        descent = Descent.of(planned, task, lanes.order, clients, self.lr, self.per_step, first, masked, rounded)
        kept = {name.removeprefix(PREFIX): to_device(memory[name][lanes.order], device) for name in self._kept}
        state = StepState.of(descent, self.update, kept)
        delta, loss = take_steps(steps, parts, descent, state, clients)
        changed, remembered, sent = outcome(begun, [delta[part] for part in parts], delta)
        if task.phase != "prepare":
            remembered |= {PREFIX + name: state.moments[name] for name in kept}
        for name, values in remembered.items():
            memory[name] = lanes.back(values).to(memory[name].device)
        if self.sampling == "pass":
            memory["steps_done"] += torch.from_numpy(planned.num_steps)
        return Report(
            client=clients.ids,
            version=task.versions(len(clients)),
            num_examples=clients.num_examples,
            num_steps=num_steps,
            delta=lanes.back(sent),
            extra={name: lanes.back(values) for name, values in changed.items()},
            seen={"loss": lanes.back(loss)},
        )

    def _masked(self, clients: Clients) -> bool:
        """Return whether all minibatches have a mask, because some minibatches of some clients have padding.

        A mask of ones changes no bit, unless a layer reads it, and cohorts with and without padding have the same shapes.
        """
        objective = clients.objective
        if self.sampling == "replacement" or self.accumulate > 1 or objective.network.reads_masks:
            return False
        return objective.engine == "vectorized" and clients.shards.is_ragged(self.batch_size, self._drops_last)

    @property
    def direction(self) -> Direction:
        """The function that computes the direction of a step before corrections and the update rule.

        By default it is the gradient on the first minibatch of the step. A solver with several gradients a step returns a
        function ``(params [B, P], gradient) -> (loss [B], direction [B, P])``, where ``gradient(params, i)`` returns the
        losses and the gradients on the i-th of the step's `per_step` minibatches, at any parameters. Equal options must give
        equal functions, such as instances of a frozen dataclass, because runs with equal functions share traces.
        """
        return steepest

    def _first_gradient(
        self, clients: Clients, corrections: tuple[Correction, ...]
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return the loss and the gradient of the first step, if they were measured at the received model; else None.

        A gradient that was measured lacks the terms that corrections of minibatches add to the loss, and is one over all
        data of a client. Whether a minibatch has room for these is asked of all clients and not of the cohort, so that no
        result depends on the other clients of a cohort.
        """
        if self.direction is not steepest or self.sampling == "replacement":
            return None
        if any(isinstance(correction, LossTerm) for correction in corrections):
            return None
        objective = clients.objective
        if objective.layout.num_statistics:  # in training, minibatches are normalized by their own statistics
            return None
        if objective.network.draws or clients.transforms or self.batch_size < clients.shards.largest:
            return None
        return None if clients.start is None else clients.start.known
