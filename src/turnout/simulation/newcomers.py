"""Evaluate personal models of clients that never train, which they fit to their data."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from turnout.base import Local, Personalization
from turnout.base.tuning import tuned
from turnout.configuration import Configuration
from turnout.core.checks import ConfigurationError
from turnout.core.types import Task
from turnout.data.gather import held_out
from turnout.simulation.client_groups import ClientGroup, client_group
from turnout.simulation.workspace import Workspace


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
        group = ClientGroup(fitting, validation, workspace.objective, workspace.data.transforms, data.num_clients)
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
        objective = self.group.objective
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

    def figures(self, task: Task, lanes: int) -> dict[str, float]:
        """Return loss, and accuracy or root-mean-square error, over all examples of the clients.

        They receive the shared part, which is frozen, and fit a personal part to their data.

        Args:
            task: the shared part, the version and the seed.
            lanes: number of clients that train side by side.
        """
        steps = self.personal.adaptation_steps
        by_kind = {f"unseen_after_{k}": k for k in steps} if isinstance(steps, tuple) else {"unseen": steps}
        return {
            f"{kind}_{name}": value
            for kind, number in by_kind.items()
            for name, value in self._figures_after(number, task, lanes).items()
        }

    def _figures_after(self, steps: int, task: Task, lanes: int) -> dict[str, float]:
        """Return the figures after this number of steps, by split and name."""
        group, whole = self.group, self._first(task)
        rule, row = self.personal.adapting(self.local, steps), {}
        scores = group.scores_after(rule, lambda _: whole, task, "personal parts of the unseen", lanes)
        for split, shards in group.splits.items():
            has_data = shards.sizes > 0
            share = shards.sizes[has_data] / max(shards.sizes.sum(), 1)
            for name in ("loss", group.objective.metric(shards.y)):
                values, power = scores[f"{split}_{name}"][has_data], 2 if name == "rmse" else 1
                row[f"{split}_{name}"] = float((share @ values**power) ** (1 / power))
        # The score is NaN if outputs do not have the shape of targets.
        return {name: value for name, value in row.items() if not np.isnan(value)}
