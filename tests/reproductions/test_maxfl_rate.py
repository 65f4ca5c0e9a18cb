"""The gradient of MaxFL's objective that theory/maxfl measures, compared with the weights of the rule."""

from __future__ import annotations

import pytest
import torch
from reproductions.theory.maxfl import Objective
from torch import nn

import turnout as to
from turnout.base.trial import report, weigh
from turnout.pieces.weighting.requirement import Appeal


def test_gradient_is_the_mean_of_clients_gradients_by_q() -> None:
    data = to.data.digits().split(to.partition.Dirichlet(0.5), num_clients=7, seed=1, empty="drop")
    model = to.Experiment(data=data, model=to.models.Logistic(), seed=2).build_model()
    objective = Objective(data.train, model)
    gaps, gradients = [], []
    for client in range(7):
        x, y = data.train.client(client)
        loss = nn.functional.cross_entropy(model(x), y)
        gaps.append(float(loss.detach() - objective.required[client]))
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))]))
    q = weigh(Appeal(), report([[0.0]] * 7, appeal_gap=gaps))
    expected = (torch.tensor(q)[:, None] * torch.stack(gradients)).mean(dim=0)
    assert min(gaps) > 0  # own models are better than the initial one
    assert objective.squared_gradient_norm(model) == pytest.approx(float(expected.square().sum()), rel=2e-3)
