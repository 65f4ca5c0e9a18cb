"""Numbers of clients that train together."""

import torch
from torch import nn

from turnout.engine.objective import Objective
from turnout.simulation.workspace import lanes_per_chunk

X, Y = torch.randn(16, 50), torch.zeros(16, dtype=torch.long)


def test_lanes_fit_the_budget_with_at_least_one():
    objective = Objective(nn.Sequential(nn.Linear(50, 40), nn.ReLU(), nn.Linear(40, 3)))
    one = objective.bytes_per_lane(X, Y)
    assert lanes_per_chunk(objective, X, Y, 10 * one) == 10
    assert lanes_per_chunk(objective, X, Y, 10 * one + one // 2) == 10
    assert lanes_per_chunk(objective, X, Y, one // 2) == 1


def test_one_by_one_training_only_holds_vectors_of_several_clients():
    objective = Objective(nn.Linear(50, 3), engine="one_by_one")
    assert lanes_per_chunk(objective, X, Y, 10 * 6 * 4 * 153) == 10
