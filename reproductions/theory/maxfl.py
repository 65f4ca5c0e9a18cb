"""The gradient of MaxFL's own objective along runs of MaxFL (Cho et al., theorem 3.1).

The theorem bounds ``min_t ||grad G(w_t)||^2`` for ``G(w) = (1/M) sum_k sigmoid(F_k(w) - rho_k)``, with local steps of ``1 /
(sqrt(T) tau)`` and a server's step of ``sqrt(tau m)``; its proof has epsilon = m. The local steps here are larger by the
constant `SCALE`. Runs record gradients of the mean of the F_k only, so that the one of G is computed by autograd from the
model after rounds, over all training examples.

Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

import turnout as to
from turnout.data import Shards

CLIENTS, COHORT, STEPS, BATCH = 50, 10, 5, 8
ROUNDS, EVALUATIONS = (50, 100, 200, 400, 800), 50
OWN_STEPS, OWN_LR = 20, 0.5
SCALE = 8.0


class Objective:
    """MaxFL's objective, with requirements that are losses of clients' own models.

    Args:
        train: training examples of the clients.
        initial: the model from which each client fits its own by `OWN_STEPS` steps of full gradients.
    """

    def __init__(self, train: Shards, initial: nn.Module) -> None:
        self._train, self._owners = train, torch.as_tensor(train.owners())
        self.required = torch.stack([_own_loss(initial, *train.client(k)) for k in range(train.num_clients)])

    def squared_gradient_norm(self, model: nn.Module) -> float:
        """Return ``||grad G||^2`` at a model."""
        losses = nn.functional.cross_entropy(model(self._train.x), self._train.y, reduction="none")
        sums = torch.zeros(self._train.num_clients).index_add(0, self._owners, losses)
        value = torch.sigmoid(sums / torch.as_tensor(self._train.sizes) - self.required).mean()
        gradient = torch.autograd.grad(value, list(model.parameters()))
        return sum(float(part.double().square().sum()) for part in gradient)


class Norms(to.Callback):
    """Collect squared gradient norms of an objective after every `every`-th round."""

    def __init__(self, objective: Objective, every: int) -> None:
        self._objective, self._every, self.values = objective, every, list[float]()

    def on_round(self, row: Mapping[str, Any]) -> None:
        """Measure the model."""
        if row["round"] % self._every == 0:
            self.values.append(self._objective.squared_gradient_norm(self.current_result().model))


def numbers(seed: int) -> dict[str, dict[str, dict[str, float]]]:
    """Return the mean and the smallest squared gradient norm of runs of T rounds, by T."""
    data = to.data.digits().split(to.partition.Dirichlet(0.5), num_clients=CLIENTS, seed=seed, empty="drop")
    zero = to.models.Logistic(zero=True)
    make = partial(to.Experiment, data=data, model=zero, seed=seed)
    objective = Objective(data.train, make().build_model())
    required = to.requirement.GivenRequirement(tuple(objective.required.tolist()))
    found = {}
    for rounds in ROUNDS:
        solver = to.Sgd(lr=SCALE / (math.sqrt(rounds) * STEPS), steps=STEPS, batch_size=BATCH)
        server_lr = math.sqrt(STEPS * COHORT)
        algorithm = to.maxfl(solver, epsilon=COHORT, cohort_size=COHORT, server_lr=server_lr)
        norms = Norms(objective, every=rounds // EVALUATIONS)
        population = to.Population(to.availability.Everyone(), requirement=required)
        make(algorithm=algorithm, population=population, rounds=rounds).run(callbacks=[norms])
        found[f"t_{rounds}"] = {
            "squared gradient norm of MaxFL's objective, mean over rounds": {
                "maxfl": sum(norms.values) / len(norms.values)
            },
            "squared gradient norm of MaxFL's objective, smallest": {"maxfl": min(norms.values)},
        }
    return found


def _own_loss(initial: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the loss of a client's own model on its examples."""
    weights = {name: value.detach().clone().requires_grad_() for name, value in initial.named_parameters()}
    for _ in range(OWN_STEPS):
        loss = nn.functional.cross_entropy(torch.func.functional_call(initial, weights, (x,)), y)
        gradient = torch.autograd.grad(loss, list(weights.values()))
        weights = {
            name: (value - OWN_LR * slope).detach().requires_grad_()
            for (name, value), slope in zip(weights.items(), gradient, strict=True)
        }
    return nn.functional.cross_entropy(torch.func.functional_call(initial, weights, (x,)), y).detach()
