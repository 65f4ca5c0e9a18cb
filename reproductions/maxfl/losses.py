"""True and empirical losses of clients along runs of MaxFL (figure 7).

MaxFL replaces a client's true loss f_k by the loss F_k on its training examples. As in the figure, f_k is the loss on test
examples, and both are averaged over clients, all of which count the same.

Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024, appendix D.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

import turnout as to
from turnout.data import Shards
from turnout.data.transforms import apply_transforms

CLIENTS, COHORT, ROUNDS, EVERY = 100, 5, 200, 10
SETTINGS = {
    "clusters": (to.partition.LabelClusters(num_clusters=5, labels_per_cluster=2), 0.05, 1.0, 1.0),
    "dirichlet": (to.partition.HsuDirichlet(alpha=0.5), 0.001, 10.0, 1e-3),
}
"""Partition, step size, server's step and epsilon of Figures 3 and 4, and of Table 1."""


class Losses(to.Callback):
    """Collect the means over clients of f_k and F_k after every `EVERY`-th round."""

    def __init__(self, data: to.FederatedData) -> None:
        assert data.client_test is not None
        self._data, self.true, self.empirical = data, list[float](), list[float]()
        self._test = data.client_test

    def on_round(self, row: Mapping[str, Any]) -> None:
        """Measure the model."""
        if row["round"] % EVERY == 0:
            model = self.current_result().model.eval()
            self.true.append(self._mean(model, self._test))
            self.empirical.append(self._mean(model, self._data.train))

    @torch.no_grad()
    def _mean(self, model: nn.Module, shards: Shards) -> float:
        x = apply_transforms(self._data.transforms, shards.x, None, training=False)
        every = nn.functional.cross_entropy(model(x), shards.y, reduction="none")
        sums = torch.zeros(shards.num_clients).index_add(0, torch.as_tensor(shards.owners()), every)
        return float((sums / torch.as_tensor(shards.sizes)).mean())


def numbers(seed: int) -> dict[str, dict[str, dict[str, float]]]:
    """Return how far the two losses are apart, relative to the empirical one."""
    found = {}
    for panel, (partition, lr, server_lr, epsilon) in SETTINGS.items():
        data = to.data.fashion_mnist().split(
            partition,
            num_clients=CLIENTS,
            unseen_clients=CLIENTS,
            official_test="pool",
            test_fraction=0.0,
            client_test_fraction=0.4,
            seed=seed,
        )
        solver = to.Sgd(lr=lr, steps=30, batch_size=32)
        losses = Losses(data)
        to.Experiment(
            data=data,
            model=to.models.Mlp(hidden=(64, 30), dropout=0.5),
            algorithm=to.maxfl(solver, epsilon=epsilon, cohort_size=COHORT, server_lr=server_lr),
            population=to.Population(requirement=to.requirement.WarmUp(steps=100)),
            rounds=ROUNDS,
            seed=seed,
        ).run(callbacks=[losses])
        apart = [abs(f - e) / e for f, e in zip(losses.true, losses.empirical, strict=True)]
        found[panel] = {
            "largest relative difference": {"maxfl": max(apart)},
            "mean relative difference": {"maxfl": sum(apart) / len(apart)},
            "true loss, end": {"maxfl": losses.true[-1]},
            "empirical loss, end": {"maxfl": losses.empirical[-1]},
        }
    return found
