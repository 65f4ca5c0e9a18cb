"""Score models on groups of clients: those that train, and those that never do and fit personal models to their data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from turnout.base import Local, Personalization
from turnout.base.tuning import tuned
from turnout.configuration import Configuration
from turnout.core.checks import ConfigurationError
from turnout.core.types import Task
from turnout.data.federated import FederatedData
from turnout.data.gather import held_out
from turnout.data.shards import Shards
from turnout.engine.cohort import Clients
from turnout.engine.full_batch import full_scores
from turnout.evaluation.evaluate import figures
from turnout.simulation.workspace import Workspace, ignore_progress

ClientScores = dict[str, np.ndarray]
"""``train_loss``, ``train_accuracy`` (``train_rmse`` for regression) and, if clients have test examples, the same of
``test``: float64 ``[N]``; NaN for a client without examples."""

_NUM_REPORTS, _MIN_CLIENTS = 10, 10
"""The number of progress reports of work on all clients, and the least number of clients between two of them."""

_WORST = np.finfo(np.float64).max  # the loss of a diverged model: any other model is better


@dataclass(frozen=True, eq=False)
class ClientGroup:
    """A group of clients and their data.

    Attributes:
        train: training examples, on the model's device.
        test: test examples; None if there are none.
        workspace: the model, and the number of clients that train side by side.
        first: the number of the first client, on which randomness depends.
    """

    train: Shards
    test: Shards | None
    workspace: Workspace
    first: int = 0

    @property
    def num_clients(self) -> int:
        """The number of clients."""
        return self.train.num_clients

    @property
    def splits(self) -> dict[str, Shards]:
        """Examples by split."""
        return {"train": self.train} if self.test is None else {"train": self.train, "test": self.test}

    @property
    def tested(self) -> np.ndarray:
        """The clients that have test examples, bool ``[N]``."""
        return np.zeros(self.num_clients, dtype=bool) if self.test is None else self.test.sizes > 0

    def one(self) -> ClientGroup:
        """Return the group of one client: the first with training and test examples, if one has both."""
        k = int((1 * (self.train.sizes > 0) + self.tested).argmax())
        test = None if self.test is None else self.test.only(k)
        return replace(self, train=self.train.only(k), test=test, first=self.first + k)

    def clients(self, rows: np.ndarray) -> Clients:
        """Return the clients in these rows of the group, with their training examples."""
        return replace(self.workspace.clients(rows, self.train), ids=self.first + rows)

    def scores_after(
        self,
        rule: Local,
        models: Callable[[np.ndarray], torch.Tensor],
        task: Task,
        purpose: str,
        watch: Callable[[str, int, int], None] = ignore_progress,
    ) -> ClientScores:
        """Return the scores of each client with a model that it fits to its data by local steps.

        Args:
            rule, task, purpose: see `tuned`; the model of the task is not used.
            models: function that returns the models from which clients start, ``[P]`` or ``[B, P]``, by their rows in
                the group.
            watch: receives the progress; see `Workspace`.
        """
        parts: list[ClientScores] = []
        lanes = min(self.workspace.lanes, max(_MIN_CLIENTS, -(-self.num_clients // _NUM_REPORTS)))
        for low in range(0, self.num_clients, lanes):
            rows = np.arange(low, min(low + lanes, self.num_clients))
            clients = self.clients(rows)
            params, part = tuned(rule, replace(task, params=models(rows)), clients, purpose).params, {}
            for split, shards in self.splits.items():
                loss, score = (value.cpu().numpy() for value in full_scores(replace(clients, shards=shards), params))
                diverged = (shards.sizes[rows] > 0) & ~np.isfinite(loss)
                scores = figures(self.workspace.objective.metric(shards.y), np.where(diverged, _WORST, loss), score)
                part |= {f"{split}_{name}": values for name, values in scores.items()}
            parts.append(part)
            watch(purpose, low + len(rows), self.num_clients)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def client_group(kind: str, data: FederatedData, workspace: Workspace) -> ClientGroup | None:
    """Return the clients that train (``"seen"``), or those that never do (``"unseen"``); None if there are none."""
    seen = kind == "seen"
    train, test = (data.train, data.client_test) if seen else (data.unseen_train, data.unseen_test)
    if train is None or not train.num_clients:
        return None
    test = None if test is None else workspace.data(test)
    return ClientGroup(workspace.data(train), test, workspace, 0 if seen else data.num_clients)


@dataclass(frozen=True, eq=False)
class Newcomers:
    """Clients that never train, with personal models that they fit to their training examples.

    Args:
        personal: the personalization, with the numbers of local steps after which models are evaluated.
        local: the local rule.
        group: the clients.
    """

    personal: Personalization
    local: Local
    group: ClientGroup

    @classmethod
    def of(cls, experiment: Configuration, workspace: Workspace) -> Newcomers | None:
        """Return the validation clients of a run; None without such clients or personal models.

        They fit models to half of their examples, and are validated on the other half, drawn at random for each client.

        Raises:
            ConfigurationError: if no client has two examples.
        """
        data, personal = experiment.data, experiment.algorithm.personal
        if data.unseen_validation is None or personal is None:
            return None
        shards = workspace.data(data.unseen_validation)
        validates = held_out(shards.owners().numpy(), 0.5, 0, "validation of newcomers")
        if not validates.any():
            raise ConfigurationError(
                "validation_clients: no client has two examples, one to fit a personal part to and one to validate it: write "
                "more validation_clients, or validation_fraction=0.1 in their place"
            )
        fitting, validation = (shards.at(torch.from_numpy(half.nonzero()[0])) for half in (~validates, validates))
        group = ClientGroup(fitting, validation, workspace, data.num_clients)
        return cls(personal, experiment.algorithm.local, group)

    @classmethod
    def unseen(cls, experiment: Configuration, workspace: Workspace) -> Newcomers | None:
        """Return the unseen clients; None without such clients or personal models."""
        personal, group = experiment.algorithm.personal, client_group("unseen", experiment.data, workspace)
        return None if personal is None or group is None else cls(personal, experiment.algorithm.local, group)

    def one(self) -> Newcomers:
        """Return one of the clients, see `ClientGroup.one`."""
        return replace(self, group=self.group.one())

    def _first(self, task: Task) -> torch.Tensor:
        """Return the model that the clients start from, ``[P]``."""
        objective = self.group.workspace.objective
        first = self.personal.first(objective.initial, objective.layout.num_shared)
        return self.personal.newcomer(task.params, first)

    def models(self, task: Task, rows: np.ndarray) -> torch.Tensor:
        """Return the personal models of clients, ``[B, P]``, after the largest number of local steps.

        Args:
            task: the shared part, the version and the seed.
            rows: the clients, ``[B]``.
        """
        steps = self.personal.adaptation_steps
        rule = self.personal.adapting(self.local, max(steps) if isinstance(steps, tuple) else steps)
        whole = self._first(task).expand(len(rows), -1)
        purpose = "personal parts of validation clients"
        return tuned(rule, replace(task, params=whole), self.group.clients(rows), purpose).params

    def figures(self, task: Task) -> dict[str, float]:
        """Return loss, and accuracy or root-mean-square error, over all examples of the clients.

        They receive the shared part, which is frozen, and fit a personal part to their data.

        Args:
            task: the shared part, the version and the seed.
        """
        steps, group, whole, row = self.personal.adaptation_steps, self.group, self._first(task), {}
        by_kind = {f"unseen_after_{k}": k for k in steps} if isinstance(steps, tuple) else {"unseen": steps}
        for kind, number in by_kind.items():
            rule = self.personal.adapting(self.local, number)
            scores = group.scores_after(rule, lambda _: whole, task, "personal parts of the unseen")
            for split, shards in group.splits.items():
                has_data = shards.sizes > 0
                share = shards.sizes[has_data] / max(shards.sizes.sum(), 1)
                for name in ("loss", group.workspace.objective.metric(shards.y)):
                    values, power = scores[f"{split}_{name}"][has_data], 2 if name == "rmse" else 1
                    row[f"{kind}_{split}_{name}"] = float((share @ values**power) ** (1 / power))
        # The score is NaN if outputs do not have the shape of targets.
        return {name: value for name, value in row.items() if not np.isnan(value)}
