"""The clients by whom a model is judged: those that train, and those that never do."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from turnout.core.algorithm import Local
from turnout.core.clients import Clients
from turnout.core.objective import Objective
from turnout.core.start import full_scores
from turnout.core.types import Task
from turnout.data.federated import Shards
from turnout.data.transforms import Transform
from turnout.evaluation.evaluate import evaluate
from turnout.local.tuning import tuned

ClientScores = dict[str, np.ndarray]
"""``train_loss``, ``train_accuracy`` and, where clients have test examples, ``test_loss`` and ``test_accuracy``: float64
``[N]``; NaN for a client without examples."""

_WORST = np.finfo(np.float64).max  # of a model that has diverged: any other is better


@dataclass(frozen=True, eq=False)
class Audience:
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
    def tested(self) -> np.ndarray:
        """Who has test examples, bool ``[N]``."""
        return np.zeros(self.num_clients, dtype=bool) if self.test is None else self.test.sizes > 0

    def scores(self, params: torch.Tensor) -> ClientScores:
        """How well one model ``[P]`` does for each of them: one pass over their examples."""
        found: ClientScores = {}
        for split, shards in self._splits().items():
            loss, accuracy = evaluate(self.objective, params, shards, self.transforms).by_client()
            found |= {f"{split}_loss": loss, f"{split}_accuracy": accuracy}
        return found

    def scores_after(self, rule: Local, task: Task, purpose: str, lanes: int) -> ClientScores:
        """How well each of them does with the task's model after local steps of its own.

        Args:
            rule, task, purpose: see `tuned`.
            lanes: how many take their steps side by side.
        """
        parts: list[ClientScores] = []
        for low in range(0, self.num_clients, lanes):
            rows = np.arange(low, min(low + lanes, self.num_clients))
            clients = Clients(self.first + rows, rows, self.train, self.objective, self.transforms)
            params, part = tuned(rule, task, clients, purpose).params, {}
            for split, shards in self._splits().items():
                loss, accuracy = full_scores(replace(clients, shards=shards), params)
                part |= {f"{split}_loss": loss.cpu().numpy(), f"{split}_accuracy": accuracy.cpu().numpy()}
            parts.append(part)
        found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        for split, shards in self._splits().items():
            loss = found[f"{split}_loss"]
            found[f"{split}_loss"] = np.where((shards.sizes > 0) & ~np.isfinite(loss), _WORST, loss)
        return found

    def _splits(self) -> dict[str, Shards]:
        return {"train": self.train} if self.test is None else {"train": self.train, "test": self.test}
