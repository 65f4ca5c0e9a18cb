"""Measure the distance of a run from a stationary point by gradient norms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from turnout.core.other_names import ExplainsArguments
from turnout.core.ranges import Count
from turnout.engine.full_batch import full_gradient
from turnout.evaluation.personal import Models

if TYPE_CHECKING:
    from turnout.engine.cohort import Clients

_TOGETHER = 16  # clients whose gradients are summed at a time; fixed, so that bits do not depend on the number of lanes


@dataclass(frozen=True)
class GradientMetrics(ExplainsArguments):
    """Columns of squared gradient norms at the present models, computed at every evaluation.

    - ``squared_shared_gradient_norm``: ``G_u = ||(1/n) sum_i grad_u f_i(u, v_i)||^2``;
    - ``squared_personal_gradient_norm``: ``G_v = (1/n) sum_i ||grad_v f_i(u, v_i)||^2``, if there is a personal part;
    - ``squared_gradient_norm``: ``G_u + (m/n) G_v``, as in theorems 3.11, 3.16 and 4.6 of Chen et al.

    Gradients are over all training examples; all clients have the same weight.

    Args:
        participants: m, the number of clients in a round; None is the size of the selection's cohort, or n if it has none.

    Reference: Chen et al., "Sharper convergence guarantees for federated learning with partial model personalization".
    """

    participants: Count | None = None

    def share(self, cohort_size: float | None, num_clients: int) -> float:
        """Return the fraction of clients in a round, m / n."""
        if isinstance(cohort_size, float):
            cohort_size = max(1, round(cohort_size * num_clients))
        return min(self.participants or cohort_size or num_clients, num_clients) / num_clients


def gradient_figures(
    models: Models, clients: Callable[[np.ndarray], Clients], num_clients: int, share: float, lanes: int
) -> dict[str, float]:
    """Return the columns of `GradientMetrics`.

    Args:
        models: function that returns the models of clients.
        clients: function that returns clients by their numbers.
        num_clients: n.
        share: m / n.
        lanes: number of clients that are evaluated side by side.
    """
    layout = clients(np.zeros(1, dtype=np.int64)).objective.layout
    shared, personal = torch.zeros(()), torch.zeros((), dtype=torch.float64)
    for low in range(0, num_clients, _TOGETHER):
        ids = np.arange(low, min(low + _TOGETHER, num_clients))
        chunks = np.split(ids, range(lanes, len(ids), lanes))
        gradient = torch.cat([full_gradient(clients(chunk), models(chunk))[1] for chunk in chunks]).double()
        shared = shared + gradient[:, : layout.num_shared].sum(dim=0)
        personal = personal + gradient[:, layout.num_shared :].square().sum()
    g_u, g_v = float((shared / num_clients).square().sum()), float(personal / num_clients)
    row = {"squared_shared_gradient_norm": g_u, "squared_gradient_norm": g_u + share * g_v}
    return row if layout.num_params == layout.num_shared else row | {"squared_personal_gradient_norm": g_v}
