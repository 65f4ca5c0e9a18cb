"""The clients by whom models are judged: those that train, and those that never do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from turnout.core.types import Task
from turnout.data.federated import Shards
from turnout.data.transforms import Transform
from turnout.engine.cohort import Clients
from turnout.engine.full_batch import full_scores
from turnout.engine.loss import metric_of
from turnout.engine.objective import Objective
from turnout.evaluation.evaluate import figures
from turnout.pieces.base import Local, Personalization
from turnout.pieces.base.tuning import tuned
from turnout.simulation.workspace import nobody

ClientScores = dict[str, np.ndarray]
"""``train_loss``, ``train_accuracy`` (of numbers to predict ``train_rmse``) and, where clients have test examples, the same
of ``test``: float64 ``[N]``; NaN for a client without examples."""

_TIMES_TOLD, _LEAST_TOLD = 10, 10
"""How often work on all clients tells how far it is, and the fewest clients after which it does."""

_WORST = np.finfo(np.float64).max  # of a model that has diverged: any other is better


@dataclass(frozen=True, eq=False)
class ClientGroup:
    """Clients and what they hold.

    Attributes:
        train, test: their examples, on the objective's device; `test` is None where they have none.
        objective: model and loss.
        transforms: what happens to examples before the model sees them.
        first: the number of the first of them; randomness depends on numbers.
    """

    train: Shards
    test: Shards | None
    objective: Objective
    transforms: tuple[Transform, ...] = ()
    first: int = 0

    @property
    def num_clients(self) -> int:
        """How many there are."""
        return self.train.num_clients

    @property
    def splits(self) -> dict[str, Shards]:
        """Their examples, by what they are for."""
        return {"train": self.train} if self.test is None else {"train": self.train, "test": self.test}

    @property
    def tested(self) -> np.ndarray:
        """Who has test examples, bool ``[N]``."""
        return np.zeros(self.num_clients, dtype=bool) if self.test is None else self.test.sizes > 0

    def scores_after(
        self,
        rule: Local,
        models: Callable[[np.ndarray], torch.Tensor],
        task: Task,
        purpose: str,
        lanes: int,
        watch: Callable[[str, int, int], None] = nobody,
    ) -> ClientScores:
        """How well each of them does with a model after local steps of its own.

        Args:
            rule, task, purpose: see `tuned`; the task's model is not used.
            models: what clients start from, ``[P]`` or ``[B, P]``, by their numbers among themselves.
            lanes: how many take their steps side by side, at most.
            watch: is told how far it is, a few times; see `Workspace`.
        """
        parts: list[ClientScores] = []
        lanes = min(lanes, max(_LEAST_TOLD, -(-self.num_clients // _TIMES_TOLD)))
        for low in range(0, self.num_clients, lanes):
            rows = np.arange(low, min(low + lanes, self.num_clients))
            clients = Clients(self.first + rows, rows, self.train, self.objective, self.transforms)
            params, part = tuned(rule, replace(task, params=models(rows)), clients, purpose).params, {}
            for split, shards in self.splits.items():
                loss, score = (value.cpu().numpy() for value in full_scores(replace(clients, shards=shards), params))
                diverged = (shards.sizes[rows] > 0) & ~np.isfinite(loss)
                found = figures(metric_of(shards.y), np.where(diverged, _WORST, loss), score)
                part |= {f"{split}_{name}": values for name, values in found.items()}
            parts.append(part)
            watch(purpose, low + len(rows), self.num_clients)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def unseen_figures(
    own: Personalization, local: Local, task: Task, first: torch.Tensor, group: ClientGroup, lanes: int
) -> dict[str, float]:
    """Return loss, and accuracy or root-mean-square error, of clients who never trained.

    They received the shared part and fitted their own to their data. Figures are over all their examples.

    Args:
        own: what is personal, and how many local steps they may take on it; the shared part is frozen.
        local: the steps.
        task: the shared part, the version and the seed.
        first: the personal part from which everyone starts, ``[P_v]``.
        group: the clients.
        lanes: how many of them to go through side by side.
    """
    if isinstance(own.adaptation_steps, tuple):
        by_steps = {
            f"unseen_after_{k}": _figures(own, local, k, task, first, group, lanes) for k in own.adaptation_steps
        }
    else:
        by_steps = {"unseen": _figures(own, local, own.adaptation_steps, task, first, group, lanes)}
    return {f"{kind}_{name}": value for kind, found in by_steps.items() for name, value in found.items()}


def _figures(
    own: Personalization, local: Local, steps: int, task: Task, first: torch.Tensor, group: ClientGroup, lanes: int
) -> dict[str, float]:
    """Return the same after so many steps, by split and figure."""
    whole = own.newcomer(task.params, first)
    rule, row = own.adapting(local, steps), {}
    scores = group.scores_after(rule, lambda _: whole, task, "personal parts of the unseen", lanes)
    for split, shards in group.splits.items():
        held = shards.sizes > 0
        share = shards.sizes[held] / max(shards.sizes.sum(), 1)
        for name in ("loss", metric_of(shards.y)):
            values, power = scores[f"{split}_{name}"][held], 2 if name == "rmse" else 1
            row[f"{split}_{name}"] = float((share @ values**power) ** (1 / power))
    # Without those of outputs that are not like the targets.
    return {name: value for name, value in row.items() if not np.isnan(value)}
