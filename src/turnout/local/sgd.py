"""Local stochastic gradient descent, the solver on which every method here is built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch

from turnout.core.algorithm import Correction, Local
from turnout.core.checks import count, known_name, not_negative, refuse
from turnout.core.clients import Clients
from turnout.core.random import fold
from turnout.core.schedule import Schedule, check_step_size, step_size
from turnout.core.types import Lanes, Report, State, Task
from turnout.local.local_step import GradientAt, LocalStep
from turnout.local.minibatches import SAMPLINGS, Plan, Sampling, batches_per_pass, plan
from turnout.local.work import Work


def _together(parts: Sequence[torch.Tensor], rows: list[torch.Tensor]) -> torch.Tensor:
    """All parts as one batch, each of which has these rows of it."""
    whole = parts[0].new_empty((sum(map(len, rows)), *parts[0].shape[1:]))
    for part, its_rows in zip(parts, rows, strict=True):
        whole[its_rows] = part
    return whole


def _stretches(num_steps: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """How many rows are at work from which step to which, while their number stays: rows with more steps come first."""
    ends = np.unique(num_steps[num_steps > 0])
    for begin, end in pairwise([0, *ends.tolist()]):
        yield int((num_steps > begin).sum()), begin, end


def _mask(counts: np.ndarray, examples: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """1 for examples ``[S, b, M]`` and 0 for padding, from how many are examples ``[b, S]``."""
    return torch.from_numpy(np.arange(examples.shape[2]) < counts.T[:, :, None]).to(like)


@dataclass(frozen=True)
class Sgd(Local):
    """Minibatch SGD: ``y <- y - lr * v``, ``v <- momentum * v + g(y) + weight_decay * y``.

    FedAU, Algorithm 1, lines 5 to 7, with its authors' minibatches as the default: shuffled passes over the client's
    data that go on from round to round, without the incomplete last minibatch (a client that has less than one
    minibatch uses all it has).

    Args:
        lr: the client's step size (gamma), or a `Schedule` of it by round.
        steps: local steps a round (I), or a `Work` that varies by client and round; None where `epochs` is given.
        epochs: passes over the client's own data a round instead, so that large clients do more steps; or a `Work`.
        batch_size: examples in a minibatch.
        momentum: of the heavy ball; starts at zero every round.
        weight_decay: L2 penalty's factor.
        sampling: ``"pass"``, ``"fresh"`` (a new shuffle every round) or ``"replacement"``.
        drop_last: leave out the incomplete last minibatch of a pass; None means yes with `steps`, no with `epochs`.

    Seen by the server: ``loss [B]``, the mean loss over the minibatches of the local steps.
    """

    gives: ClassVar[tuple[str, ...]] = ("loss",)

    lr: float | Schedule = 0.1
    steps: int | Work | None = 5
    epochs: int | Work | None = None
    batch_size: int = 16
    momentum: float = 0.0
    weight_decay: float = 0.0
    sampling: Sampling = "pass"
    drop_last: bool | None = None

    def __post_init__(self) -> None:
        check_step_size("lr", self.lr)
        count("batch_size", self.batch_size)
        known_name("sampling", self.sampling, SAMPLINGS)
        not_negative("weight_decay", self.weight_decay)
        not_negative("momentum", self.momentum)
        if self.momentum >= 1:
            raise refuse("momentum", given=self.momentum, needed="a number >= 0 and < 1")
        if (self.steps is None) == (self.epochs is None):
            raise refuse(
                "steps and epochs",
                given=(self.steps, self.epochs),
                needed="exactly one of the two",
                instead="Write Sgd(steps=None, epochs=1) for one pass over the client's data",
            )
        name, work = ("steps", self.steps) if self.epochs is None else ("epochs", self.epochs)
        if not isinstance(work, Work):
            count(name, work)  # type: ignore[arg-type]
        elif name == "epochs" and work.counts_steps:
            raise refuse(
                "epochs",
                given=work,
                needed="an amount of epochs, and this is how many local steps fit into a time",
                instead="Write steps=TimeBudget(...) in place of epochs",
            )

    @property
    def per_step(self) -> int:
        """Minibatches of one step."""
        return 1

    def memory(self, num_params: int) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """The number of minibatches a client has used in its life: where its pass goes on."""
        del num_params
        return {"steps_done": ((), torch.int64)} if self.sampling == "pass" else {}

    def alone(self, steps: int) -> Sgd:
        """The same steps, in passes that start anew."""
        sampling = "fresh" if self.sampling == "pass" else self.sampling
        return replace(self, steps=steps, epochs=None, sampling=sampling)

    @property
    def _drops_last(self) -> bool:
        return self.epochs is None if self.drop_last is None else self.drop_last

    @property
    def _work(self) -> int | Work | None:
        return self.steps if self.epochs is None else self.epochs

    @property
    def varies(self) -> bool:
        """Whether the number of a client's local steps depends on the version it is asked with."""
        return isinstance(self._work, Work)

    @property
    def deadline(self) -> float | None:
        """Seconds that a round lasts by the amount of steps, if it says so."""
        return self.steps.deadline if isinstance(self.steps, Work) else None

    def num_steps(self, task: Task, clients: Clients) -> np.ndarray:
        """How many local steps B clients take with a task, int64 ``[B]``."""
        work, sizes = self._work, clients.num_examples
        amount = work.amount(task, clients) if isinstance(work, Work) else np.full(len(sizes), work)
        if self.epochs is None:
            return amount
        return amount * batches_per_pass(sizes, self.batch_size, self._drops_last)

    def plan(self, task: Task, memory: State, clients: Clients) -> Plan:
        """The minibatches of this round, `per_step` for each step."""
        sizes = clients.num_examples
        done = memory["steps_done"].numpy() if self.sampling == "pass" else np.zeros_like(sizes)
        return plan(
            offsets=clients.shards.offsets[clients.rows],
            sizes=sizes,
            clients=clients.ids,
            versions=task.draws(len(clients)),
            done=done,
            num_steps=self.num_steps(task, clients) * self.per_step,
            batch_size=self.batch_size,
            sampling=self.sampling,
            drop_last=self._drops_last,
            seed=task.seed,
        )

    def train(self, task: Task, memory: State, clients: Clients, corrections: tuple[Correction, ...]) -> Report:
        """Descend from the task's parameters; clients with more steps go on after the others have finished."""
        planned = self.plan(task, memory, clients)
        num_steps = planned.num_steps // self.per_step
        # Longest first: the clients still at work are always the first rows, and a slice of a matrix costs nothing.
        order = np.argsort(-num_steps, kind="stable")
        objective = clients.objective
        products = self.batch_size * self.per_step * objective.layout.num_params
        parts = objective.crew.parts(num_steps[order], products, single=objective.engine == "one_by_one")

        def begin(part: slice) -> tuple[Lanes, tuple[Correction, ...]]:
            lanes = Lanes(order[part], num_steps[order[part]])
            return lanes, tuple(correction.begin(task, memory, clients, lanes) for correction in corrections)

        def descend(begun: tuple[Lanes, tuple[Correction, ...]]) -> tuple[torch.Tensor, torch.Tensor]:
            alike = all(mine is given for mine, given in zip(begun[1], corrections, strict=True))
            return self._descend(task, planned, *begun, clients, alike)

        begun = [begin(part) for part in parts]
        deltas, losses = zip(*objective.crew.map(descend, begun), strict=True)
        changes = [{k: v for one in own for k, v in one.changes().items()} for _, own in begun]
        if self.sampling == "pass":
            memory["steps_done"] += torch.from_numpy(planned.num_steps)
        rows = [torch.from_numpy(order[part]).to(task.params.device) for part in parts]
        return Report(
            client=clients.ids,
            version=task.versions(len(clients)),
            num_examples=clients.num_examples,
            num_steps=num_steps,
            delta=_together(deltas, rows),
            extra={name: _together([change[name] for change in changes], rows) for name in changes[0]},
            seen={"loss": _together(losses, rows)},
        )

    def _descend(
        self,
        task: Task,
        planned: Plan,
        lanes: Lanes,
        corrections: tuple[Correction, ...],
        clients: Clients,
        alike: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Updates ``[b, P]`` and mean losses ``[b]`` of some lanes; corrections are `alike` that hold nothing of a round."""
        device, order, num_steps = task.params.device, lanes.order, lanes.num_steps
        minibatches = slice(int(num_steps[0]) * self.per_step)
        examples = torch.from_numpy(planned.examples[order, minibatches].swapaxes(0, 1).copy()).to(device)  # [S, b, M]
        keys = fold(
            clients.keys("local step", task.seed, task.draws(len(clients)), order),
            torch.arange(len(examples), device=device)[:, None],
        )
        mask = None if planned.full else _mask(planned.counts[order, minibatches], examples, task.params)
        lr = torch.from_numpy(step_size(self.lr, task.versions(len(clients))[order]))
        lr = lr.to(device, task.params.dtype)[:, None]
        rows, known = torch.from_numpy(order).to(device), self._known(clients)
        start = task.params.expand(len(order), -1) if task.params.dim() == 1 else task.params[rows]
        params, velocity = start.clone(), torch.zeros_like(start) if self.momentum else None
        total = torch.zeros(len(order), dtype=task.params.dtype, device=device)
        step = LocalStep(
            clients.objective, clients.transforms, self._gradient, corrections, self.momentum, self.weight_decay
        )
        data, parts = (clients.shards.x, clients.shards.y), (int(num_steps[0]), self.per_step)
        examples, keys = examples.unflatten(0, parts), keys.unflatten(0, parts)
        mask = None if mask is None else mask.unflatten(0, parts)
        for active, begin, end in _stretches(num_steps):
            moving = None if velocity is None else velocity[:active]
            here = params[:active], start[:active], moving, total[:active], lr[:active]
            if begin == 0 and known is not None:
                step.move(*here, known[0][rows[:active]], known[1][rows[:active]])
                begin = 1
            if begin == end:
                continue
            now = slice(begin, end), slice(None), slice(active)
            step.repeat((*here, *data), (examples[now], None if mask is None else mask[now], keys[now]), alike)
        return params.sub_(start), total / torch.from_numpy(np.maximum(num_steps, 1)).to(device)

    def _gradient(self, params: torch.Tensor, gradient: GradientAt) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss ``[B]`` and direction ``[B, P]`` of a step."""
        return gradient(params, 0)

    def _known(self, clients: Clients) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Loss and gradient of the first step, where they are measured already: the first minibatches hold all data.

        Asked of all clients' data and not of the cohort's, so that no result depends on who trains beside whom.
        """
        if clients.start is None or clients.objective.draws or clients.transforms or self.sampling == "replacement":
            return None
        return clients.start.known if self.batch_size >= clients.shards.largest else None
