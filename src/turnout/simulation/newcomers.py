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
from turnout.simulation.client_groups import ClientGroup
from turnout.simulation.workspace import Workspace


@dataclass(frozen=True, eq=False)
class Newcomers:
    """Validation clients with personal models, which they fit to half of their examples.

    The other half, drawn at random for each client, validates the fitted models.

    Args:
        personal: the personalization; models are fitted by the largest of its numbers of local steps.
        local: the local rule.
        first: the initial personal part, ``[P_v]``.
        group: the clients, with the two halves of their examples as training and test examples.
    """

    personal: Personalization
    local: Local
    first: torch.Tensor
    group: ClientGroup

    @classmethod
    def of(cls, experiment: Configuration, workspace: Workspace) -> Newcomers | None:
        """Divide the examples of validation clients into halves; None without such clients or personal models.

        Raises:
            ConfigurationError: if no client has two examples.
        """
        algorithm, data, layout = experiment.algorithm, experiment.data, workspace.objective.layout
        if data.unseen_validation is None or algorithm.personal is None:
            return None
        shards = workspace.data(data.unseen_validation)
        validates = held_out(shards.owners().numpy(), 0.5, 0, "validation of newcomers")
        if not validates.any():
            raise ConfigurationError(
                "validation_clients: no client has two examples, one to fit a personal part to and one to validate it: write "
                "more validation_clients, or validation_fraction=0.1 in their place"
            )
        first = algorithm.personal.first(workspace.objective.initial, layout.num_shared)
        fitting, validation = (shards.at(torch.from_numpy(half.nonzero()[0])) for half in (~validates, validates))
        transforms = workspace.data.transforms
        group = ClientGroup(fitting, validation, workspace.objective, transforms, data.num_clients)
        return cls(algorithm.personal, algorithm.local, first, group)

    def models(self, task: Task, rows: np.ndarray) -> torch.Tensor:
        """Return the personal models of clients, ``[B, P]``, after they were fitted.

        Args:
            task: the shared part, the version and the seed.
            rows: the clients, ``[B]``.
        """
        steps = self.personal.adaptation_steps
        rule = self.personal.adapting(self.local, max(steps) if isinstance(steps, tuple) else steps)
        whole = self.personal.newcomer(task.params, self.first).expand(len(rows), -1)
        purpose = "personal parts of validation clients"
        return tuned(rule, replace(task, params=whole), self.group.clients(rows), purpose).params


def unseen_figures(
    personal: Personalization, local: Local, task: Task, first: torch.Tensor, group: ClientGroup, lanes: int
) -> dict[str, float]:
    """Return loss, and accuracy or root-mean-square error, of clients that never trained.

    They receive the shared part, which is frozen, and fit a personal part to their data. Figures are over all their examples.

    Args:
        personal: the personalization, with the number of local steps.
        local: the local rule.
        task: the shared part, the version and the seed.
        first: the initial personal part, ``[P_v]``.
        group: the clients.
        lanes: number of clients that train side by side.
    """
    steps = personal.adaptation_steps
    by_kind = {f"unseen_after_{k}": k for k in steps} if isinstance(steps, tuple) else {"unseen": steps}
    return {
        f"{kind}_{name}": value
        for kind, number in by_kind.items()
        for name, value in _figures(personal, local, number, task, first, group, lanes).items()
    }


def _figures(
    personal: Personalization,
    local: Local,
    steps: int,
    task: Task,
    first: torch.Tensor,
    group: ClientGroup,
    lanes: int,
) -> dict[str, float]:
    """Return the figures after this number of steps, by split and name."""
    whole = personal.newcomer(task.params, first)
    rule, row = personal.adapting(local, steps), {}
    scores = group.scores_after(rule, lambda _: whole, task, "personal parts of the unseen", lanes)
    for split, shards in group.splits.items():
        has_data = shards.sizes > 0
        share = shards.sizes[has_data] / max(shards.sizes.sum(), 1)
        for name in ("loss", group.objective.metric(shards.y)):
            values, power = scores[f"{split}_{name}"][has_data], 2 if name == "rmse" else 1
            row[f"{split}_{name}"] = float((share @ values**power) ** (1 / power))
    # The score is NaN if outputs do not have the shape of targets.
    return {name: value for name, value in row.items() if not np.isnan(value)}
