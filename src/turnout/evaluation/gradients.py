"""How far a run is from a stationary point: the gradient norms of which theorems speak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from turnout.core.checks import count
from turnout.engine.full_batch import full_gradient
from turnout.evaluation.own import Models

if TYPE_CHECKING:
    from turnout.engine.cohort import Clients

_TOGETHER = 16  # clients whose gradients are summed at a time, whatever the lanes, so that these change no bit


@dataclass(frozen=True)
class GradientMetrics:
    """Further columns of the table of rounds, at every evaluation: squared gradient norms at the present models.

    - ``squared_shared_gradient_norm``: ``G_u = ||(1/n) sum_i grad_u f_i(u, v_i)||^2``;
    - ``squared_personal_gradient_norm``: ``G_v = (1/n) sum_i ||grad_v f_i(u, v_i)||^2``, where there is a personal part;
    - ``squared_gradient_norm``: ``G_u + (m/n) G_v``, of the theorems 3.11, 3.16 and 4.6 of Chen et al.

    Gradients are over all training examples of all clients, who count alike, and without noise.

    Args:
        participants: m, clients in a round; None takes the size of the selection's cohort, or n where it has none.

    Reference: Chen et al., "Sharper convergence guarantees for federated learning with partial model personalization".
    """

    participants: int | None = None

    def __post_init__(self) -> None:
        if self.participants is not None:
            count("participants", self.participants)

    def share(self, cohort_size: int | None, num_clients: int) -> float:
        """Return the share of the clients that take part in a round, m / n."""
        return min(self.participants or cohort_size or num_clients, num_clients) / num_clients


def gradient_figures(
    models: Models, clients: Callable[[np.ndarray], Clients], num_clients: int, share: float, lanes: int
) -> dict[str, float]:
    """Return the columns of `GradientMetrics`.

    Args:
        models: everyone's model.
        clients: lanes for client numbers.
        share: m / n.
        lanes: how many clients to go through side by side.
    """
    layout = clients(np.zeros(1, dtype=np.int64)).objective.layout
    shared, personal = torch.zeros(()), torch.zeros((), dtype=torch.float64)
    for low in range(0, num_clients, _TOGETHER):
        ids = np.arange(low, min(low + _TOGETHER, num_clients))
        parts = [(clients(some), models(some)) for some in np.split(ids, range(lanes, len(ids), lanes))]
        gradient = torch.cat([full_gradient(who, params)[1] for who, params in parts]).double()
        shared = shared + gradient[:, : layout.num_shared].sum(dim=0)
        personal = personal + gradient[:, layout.num_shared :].square().sum()
    g_u, g_v = float((shared / num_clients).square().sum()), float(personal / num_clients)
    row = {"squared_shared_gradient_norm": g_u, "squared_gradient_norm": g_u + share * g_v}
    return row if layout.num_params == layout.num_shared else row | {"squared_personal_gradient_norm": g_v}
