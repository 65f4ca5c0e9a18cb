"""Local stochastic gradient descent, the solver on which every method here is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, count, known_name, not_negative, refuse
from turnout.core.device import to_device
from turnout.core.random import fold
from turnout.core.schedule import LARGEST, Schedule, check_step_size
from turnout.core.types import Lanes, Report, State, Task
from turnout.engine.cohort import Clients
from turnout.pieces.base import Correction, Local
from turnout.pieces.local.descent import Descent, StepState
from turnout.pieces.local.local_step import Direction, LocalStep, steepest
from turnout.pieces.local.minibatches import SAMPLINGS, Plan, Sampling, batches_per_pass, plan
from turnout.pieces.local.work import MOST, Work


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
        count("batch_size", self.batch_size, most=MOST)
        known_name("sampling", self.sampling, SAMPLINGS)
        not_negative("weight_decay", self.weight_decay)
        if self.weight_decay > LARGEST:
            raise refuse("weight_decay", given=self.weight_decay, needed=f"a number <= {LARGEST:.4g}, as float32 holds")
        not_negative("momentum", self.momentum)
        if self.momentum >= 1:
            raise refuse("momentum", given=self.momentum, needed="a number >= 0 and < 1")
        if (self.steps is None) == (self.epochs is None):
            raise ConfigurationError(
                f"steps and epochs: got steps={self.steps} and epochs={self.epochs}, needed one of them, and None for the "
                "other: write Sgd(steps=None, epochs=1) for one pass over the client's data"
            )
        name, work = ("steps", self.steps) if self.epochs is None else ("epochs", self.epochs)
        if not isinstance(work, Work):
            count(name, work, most=MOST)  # type: ignore[arg-type]
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
        """Return the number of minibatches a client has used in its life: where its pass goes on."""
        del num_params
        return {"steps_done": ((), torch.int64)} if self.sampling == "pass" else {}

    def alone(self, steps: int) -> Sgd:
        """Return the same steps, in passes that start anew."""
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
    def plain(self) -> dict[str, Any] | None:
        """The options, for clients in other languages; None where they are not the same for all clients and rounds."""
        if type(self) is not Sgd or isinstance(self.lr, Schedule) or isinstance(self._work, Work):
            return None
        return {**vars(self), "drop_last": self._drops_last}

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
        """Return the minibatches of this round, `per_step` for each step."""
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
        in_order = bool((num_steps[1:] <= num_steps[:-1]).all())
        order = np.arange(len(num_steps)) if in_order else np.argsort(-num_steps, kind="stable")
        descent, objective = self._descent(task, planned, order, clients), clients.objective
        products = self.batch_size * self.per_step * objective.layout.num_params
        parts = objective.threads.parts(descent.num_steps, products, single=objective.engine == "one_by_one")
        lanes = [Lanes(order[part], descent.num_steps[part]) for part in parts]
        begun = [tuple(each.begin(task, memory, clients, some) for each in corrections) for some in lanes]
        delta, loss = self._descend(descent, parts, begun, clients)
        if self.sampling == "pass":
            memory["steps_done"] += torch.from_numpy(planned.num_steps)

        def back(rows: torch.Tensor) -> torch.Tensor:
            """Rows in the order of the clients; not a copy where they are that already."""
            return rows if in_order else rows[to_device(np.argsort(order), rows.device)]

        changed, remembered = _corrected(begun, [delta[part] for part in parts])
        for name, rows in remembered.items():
            memory[name] = back(rows).to(memory[name].device)
        return Report(
            client=clients.ids,
            version=task.versions(len(clients)),
            num_examples=clients.num_examples,
            num_steps=num_steps,
            delta=back(delta),
            extra={name: back(rows) for name, rows in changed.items()},
            seen={"loss": back(loss)},
        )

    def _descend(
        self,
        descent: Descent,
        parts: list[slice],
        begun: list[tuple[Correction, ...]],
        clients: Clients,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take all steps, the parts side by side: how far each lane came, ``[B, P]``, and its mean loss, ``[B]``."""
        objective, shards, state = clients.objective, clients.shards, StepState.of(descent, self.momentum)
        work = []
        for part, own in zip(parts, begun, strict=True):
            step = LocalStep(objective, clients.transforms, self._direction, own, self.momentum, self.weight_decay)
            work.append((descent.part(part, state, shards.x, shards.y, objective.engine == "one_by_one"), step))
        list(objective.threads.map(lambda each: each[0].run(each[1]), work))
        number = to_device(np.maximum(descent.num_steps, 1), state.total.device, state.total.dtype)
        return state.params, state.total / number

    def _descent(self, task: Task, planned: Plan, order: np.ndarray, clients: Clients) -> Descent:
        """All that the local steps begin with, rows in this order."""
        device, dtype = task.params.device, task.params.dtype
        numbers = (planned.examples.shape[1] // self.per_step, self.per_step)  # S, parts
        examples = to_device(planned.examples[order].swapaxes(0, 1).copy(), device)
        examples = examples.unflatten(0, numbers)
        if clients.objective.draws or clients.transforms:
            keys = clients.keys("local step", task.seed, task.draws(len(clients)), order)
            keys = fold(keys, torch.arange(planned.examples.shape[1], device=device)[:, None]).unflatten(0, numbers)
        else:  # nothing is random but the order of examples
            keys = torch.zeros((*numbers, len(order)), dtype=torch.int64, device=device)
        mask = None
        if not planned.full:
            inside = np.arange(examples.shape[-1]) < planned.counts[order].T[:, :, None]
            mask = to_device(inside, device, dtype).unflatten(0, numbers)
        rows = to_device(order, device)
        start = task.params.expand(len(order), -1) if task.params.dim() == 1 else task.params[rows]
        known = self._known(clients)
        return Descent(
            num_steps=planned.num_steps[order] // self.per_step,
            start=start,
            lr=self._step_sizes(task, order)[:, None],
            examples=examples,
            mask=mask,
            counts=planned.counts[order].reshape(len(order), *numbers),
            keys=keys,
            first_loss=None if known is None else known[0][rows],
            first_gradient=None if known is None else known[1][rows],
        )

    def _step_sizes(self, task: Task, order: np.ndarray) -> torch.Tensor:
        """Of each lane, ``[B]``."""
        params = task.params
        if isinstance(self.lr, Schedule):
            sizes = torch.from_numpy(self.lr.at(task.rounds(len(order))[order]))
            return to_device(sizes, params.device, params.dtype)
        return params.new_full((len(order),), float(self.lr))

    @property
    def _direction(self) -> Direction:
        """What a step descends."""
        return steepest

    def _known(self, clients: Clients) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Loss and gradient of the first step, where they are measured already: the first minibatches hold all data.

        Asked of all clients' data and not of the cohort's, so that no result depends on who trains beside whom.
        """
        if clients.objective.layout.num_statistics:  # a minibatch is normalised by its own
            return None
        if clients.start is None or clients.objective.draws or clients.transforms or self.sampling == "replacement":
            return None
        return clients.start.known if self.batch_size >= clients.shards.largest else None


def _corrected(begun: Sequence[Sequence[Correction]], deltas: Sequence[torch.Tensor]) -> tuple[State, State]:
    """Return what all corrections changed and what they remember, by name, part after part."""
    ended = [(one, delta) for own, delta in zip(begun, deltas, strict=True) for one in own]
    return _joined([one.changes(delta) for one, delta in ended]), _joined(
        [one.remembered(delta) for one, delta in ended]
    )


def _joined(parts: Sequence[State]) -> State:
    """Return the rows of all parts by name, in the order of the parts."""
    rows: dict[str, list[torch.Tensor]] = {}
    for part in parts:
        for name, value in part.items():
            rows.setdefault(name, []).append(value)
    return {name: torch.cat(values) for name, values in rows.items()}
