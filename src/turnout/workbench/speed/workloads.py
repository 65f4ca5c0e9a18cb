"""Define five workloads with random data, on which simulators of federated learning are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from turnout.core.other_names import ExplainsArguments
from turnout.core.random import stream
from turnout.core.ranges import Count
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards


@dataclass(frozen=True)
class Workload(ExplainsArguments):
    """Plain SGD on random examples of N clients.

    Attributes:
        name: as in tables.
        title: a description in one line.
        shape: shape of one example.
        num_clients: N.
        num_examples: examples of each client.
        num_classes: C.
        cohort_size: clients of a round, drawn uniformly; their mean number, if they participate by chance.
        rounds: the default number of timed rounds.
        model: name and options of the model, as in settings.
        local: options of SGD.
        centers: distance of the classes in standard deviations of an input; None for texts of C characters, whose last
            character determines the label with probability 0.8.
        scale: factor of all inputs.
        least_examples: if given, numbers of examples are drawn between it and `num_examples`.
        by_chance: each client takes part in a round with probability ``cohort_size / num_clients``, so that cohorts vary.
        algorithm: its name.
    """

    name: str
    title: str
    shape: tuple[int, ...]
    num_clients: Count
    num_examples: Count
    num_classes: int
    cohort_size: Count
    rounds: Count
    model: Mapping[str, Any] = field(default_factory=dict)
    local: Mapping[str, Any] = field(default_factory=dict)
    centers: float | None = 0.05
    scale: float = 1.0
    least_examples: int | None = None
    by_chance: bool = False
    algorithm: str = "average_participating"

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the data, as a layer of settings; evaluations are only at the end."""
        chance = {"availability": {"name": "bernoulli", "mean": min(1.0, self.cohort_size / self.num_clients)}}
        drawn = {"availability": "everyone", "selection": {"name": "uniform", "cohort_size": self.cohort_size}}
        return {
            "name": self.name,
            "algorithm": self.algorithm,
            **(chance if self.by_chance else drawn),
            "model": dict(self.model),
            "local": dict(self.local),
            "evaluate_every": 10**9,
            "evaluation_examples": 4000,
        }

    def data(self, seed: int = 0) -> FederatedData:
        """Generate the clients' data, a function of the seed."""
        generator = torch.Generator().manual_seed(stream(f"workload {self.name}", seed))
        sizes = torch.full((self.num_clients,), self.num_examples)
        if self.least_examples is not None:
            sizes = torch.randint(self.least_examples, self.num_examples + 1, sizes.shape, generator=generator)
        y = torch.randint(self.num_classes, (int(sizes.sum()),), generator=generator)
        x = self._texts(y, generator) if self.centers is None else self._points(y, self.centers, generator)
        offsets = np.concatenate([[0], sizes.cumsum(0).numpy()])
        return FederatedData(self.name, Shards(x, y, offsets), self.num_classes)

    def _points(self, y: torch.Tensor, centers: float, generator: torch.Generator) -> torch.Tensor:
        """Draw normal noise around a center for each class, float32 ``[n, *shape]``; centers of images are coarse."""
        images = len(self.shape) == 3
        coarse = torch.randn((self.num_classes, self.shape[0], 4, 4) if images else (self.num_classes, *self.shape),
                             generator=generator)  # fmt: skip
        middle = centers * (torch.nn.functional.interpolate(coarse, self.shape[1:]) if images else coarse)
        x = torch.empty(len(y), *self.shape).normal_(generator=generator)
        for rows in torch.arange(len(y)).split(self.num_examples):  # a client at a time: no second copy of all inputs
            x[rows[0] : rows[-1] + 1] += middle[y[rows]]
        return x.mul_(self.scale)

    def _texts(self, y: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Draw characters with frequencies 1, 1/2, 1/3, ..., int64 ``[n, T]``; writes the labels into `y`."""
        frequency = 1 / (1 + torch.arange(self.num_classes))
        drawn = torch.multinomial(frequency, len(y) * (self.shape[0] + 1), replacement=True, generator=generator)
        x, other = drawn.view(len(y), -1).split([self.shape[0], 1], dim=1)
        successor = torch.randperm(self.num_classes, generator=generator)
        determined = torch.rand(len(y), generator=generator) < 0.8
        y.copy_(torch.where(determined, successor[x[:, -1]], other[:, 0]))
        return x.contiguous()


WORKLOADS: Mapping[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload(
            "W1", "CNN on 3 x 32 x 32 images, 551,786 parameters, cohort 25, 5 steps of 16",
            (3, 32, 32), 250, 200, 10, 25, 12,
            {"name": "cnn", "hidden": [256, 64]}, {"lr": 0.05, "steps": 5, "batch_size": 16}, centers=0.5,
        ),
        Workload(
            "W2", "logistic regression 784-10, cohort 10, 20 steps of 10",
            (784,), 1000, 60, 10, 10, 60,
            {"name": "logistic"}, {"lr": 0.05, "steps": 20, "batch_size": 10}, scale=0.25,
        ),
        Workload(
            "W3", "MLP 784-64-30-10, cohort 5, 30 steps of 32",
            (784,), 100, 300, 10, 5, 60,
            {"name": "mlp", "hidden": [64, 30]}, {"lr": 0.05, "steps": 30, "batch_size": 32},
        ),
        Workload(
            "W4", "character LSTM 2 x 100 on 80 characters, cohort 10, 10 steps of 10",
            (80,), 100, 100, 80, 10, 8,
            {"name": "char_lstm", "hidden": 100}, {"lr": 0.5, "steps": 10, "batch_size": 10}, centers=None,
        ),
        Workload(
            "W5", "FedAU, MLP 64-64-10, each of 250 clients with probability 0.1, 5 to 100 examples, 5 steps of 16",
            (64,), 250, 100, 10, 25, 300,
            {"name": "mlp", "hidden": [64]}, {"lr": 0.05, "steps": 5, "batch_size": 16}, centers=0.5,
            least_examples=5, by_chance=True, algorithm="fedau",
        ),
    )
}  # fmt: skip
"""The workloads by name. W1 to W4 have fixed cohorts of equal clients, W5 has cohorts and clients of any size."""
