"""Counts of operations against those that one works out by hand."""

import numpy as np
import pytest
import torch
from torch import nn

import turnout as to
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.workbench.speed.arithmetic import Flops, of_gradient


def experiment(model, shape, classes=10, integers=False):
    x = torch.zeros(6, *shape, dtype=torch.int64 if integers else torch.float32)
    data = FederatedData("zeros", Shards(x, torch.zeros(6, dtype=torch.int64), np.array([0, 6])), classes)
    return to.Experiment(data=data, model=model)


def test_logistic_regression_has_a_product_forwards_and_one_for_its_weights():
    assert of_gradient(experiment(to.models.Logistic(), (784,))) == Flops(2 * 2 * 784 * 10, 0)


def test_an_mlp_also_has_the_gradients_of_its_hidden_layers():
    weights, behind = 784 * 64 + 64 * 30 + 30 * 10, 64 * 30 + 30 * 10
    assert of_gradient(experiment(to.models.Mlp(hidden=(64, 30)), (784,))) == Flops(4 * weights + 2 * behind, 0)


def test_a_cnn_has_products_and_convolutions():
    counted = of_gradient(experiment(to.models.Cnn(hidden=(), channels=(4, 8)), (3, 16, 16)))
    first, second, last = 256 * 3 * 4 * 9, 64 * 4 * 8 * 9, 8 * 16 * 10
    assert counted == Flops(6 * last, 4 * first + 6 * second)


def test_torchs_recurrent_layers_are_counted():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.output = nn.LSTM(5, 7, batch_first=True), nn.Linear(7, 10)

        def forward(self, x):
            return self.output(self.lstm(x)[0][:, -1])

    steps, gates, last = 9, 28, 70
    counted = of_gradient(experiment(Network(), (steps, 5)))
    # Forwards and for the weights everything, for the states all but the first input's.
    least = 2 * 2 * (steps * gates * (5 + 7) + last) + 2 * (last + (steps - 1) * gates * 7)
    assert least * 0.95 <= counted.matrix <= least * 1.1
    assert counted.convolution == 0


def test_both_implementations_of_a_character_lstm_count_the_same():
    counted = of_gradient(experiment(to.models.CharLstm(hidden=100), (80,), classes=80, integers=True))
    assert counted.total * 100 == pytest.approx(5.9e9, rel=0.02)  # 10 steps of 10 examples


def test_seconds_at_rates():
    assert Flops(6.0, 0.0).seconds(2.0, 0.0) == 3.0
    assert Flops(6.0, 8.0).times(2).seconds(2.0, 4.0) == 10.0
    assert Flops(6.0, 8.0).total == 14.0
