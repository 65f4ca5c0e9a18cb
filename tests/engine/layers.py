"""Models with layers of every kind, and minibatches of three clients for them."""

import torch
from torch import nn

from turnout.models import CharLstm


def convolution():
    layers = nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.3), nn.Flatten(), nn.Linear(12, 5)
    return nn.Sequential(*layers), torch.randn(3, 4, 1, 6, 6)


def normalized():
    return nn.Sequential(nn.Linear(8, 6), nn.GroupNorm(2, 6), nn.LayerNorm(6), nn.Linear(6, 5)), torch.randn(3, 4, 8)


def recurrent():
    return CharLstm().build((5,), 5), torch.randint(5, (3, 4, 5))
