"""Federations small enough for a test: data, reports, and what a server knows of its clients."""

import inspect

import numpy as np
import torch
from torch import nn

from turnout import ALGORITHMS
from turnout.core.types import Federation, Report
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.pieces.aggregation.low_rank import LowRank

SIZES = (40, 5, 16, 33, 48, 20, 9, 64)


def classification(sizes=SIZES, features=16, classes=4, seed=0, dtype=torch.float32):
    """Learnable labels, a different mixture of inputs at each client, and as many test examples as training ones."""
    rng = np.random.default_rng([7, seed])
    truth = rng.normal(size=(features, classes))

    def draw(n, shift):
        x = rng.normal(size=(n, features)) + shift
        return x, (x @ truth + 0.5 * rng.normal(size=(n, classes))).argmax(axis=1)

    parts = [draw(size, 0.5 * rng.normal(size=features)) for size in sizes]
    x = torch.from_numpy(np.concatenate([p[0] for p in parts])).to(dtype)
    y = torch.from_numpy(np.concatenate([p[1] for p in parts]))
    test_x, test_y = draw(len(x), 0.0)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    test = Shards.pooled(torch.from_numpy(test_x).to(dtype), torch.from_numpy(test_y))
    return FederatedData("tiny", Shards(x, y, offsets), classes, test=test)


class LoraLinear(nn.Module):
    """A frozen layer with a low-rank update, ``W x + s B A x``."""

    def __init__(self, inputs, outputs, rank, scaling=0.5):
        super().__init__()
        self.base, self.scaling = nn.Linear(inputs, outputs).requires_grad_(False), scaling
        self.lora_A = nn.Parameter(torch.randn(rank, inputs) / inputs**0.5)
        self.lora_B = nn.Parameter(torch.randn(outputs, rank) / 4)

    def forward(self, x):
        return self.base(x) + self.scaling * (x @ self.lora_A.T) @ self.lora_B.T

    def weight(self, named, layer):
        """The matrix that the layer multiplies by, from named tensors."""
        offset = named.get(f"{layer}.base_offset", torch.zeros(()))
        return self.base.weight + offset + self.scaling * named[f"{layer}.lora_B"] @ named[f"{layer}.lora_A"]


def adapted(features=16, classes=16, rank=3, hidden=12):
    """Two layers with adapters, between which something is trained as a whole."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = (
            LoraLinear(features, hidden, rank),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            LoraLinear(hidden, classes, rank),
        )
        return nn.Sequential(*layers)


def recipe(name, *arguments, cohort_size=3):
    """The algorithm `name`, with cohorts that the few clients here suffice for."""
    make = ALGORITHMS[name]
    default = inspect.signature(make).parameters.get("cohort_size")
    few = {"cohort_size": cohort_size} if default is not None and default.default is not None else {}
    return make(*arguments, **few)


LOW_RANK = {name for name, make in ALGORITHMS.items() if isinstance(make().aggregation, LowRank)}
"""Algorithms for models with adapters."""


def federation(num_clients=8, num_params=5, rates=None, dtype=torch.float64):
    """What a server knows of `num_clients` clients."""
    return Federation(num_clients, num_params, None if rates is None else np.asarray(rates, dtype=float), dtype=dtype)


def report(clients, delta=None, *, num_params=5, sizes=None, version=0, seen=None, dtype=torch.float64):
    """A report of `clients`; updates that are not given are ones."""
    ids = np.asarray(clients, dtype=np.int64)
    if delta is None:
        delta = torch.ones(len(ids), num_params, dtype=dtype)
    sizes = np.full(len(ids), 10) if sizes is None else np.asarray(sizes, dtype=np.int64)
    return Report(ids, np.full(len(ids), version), sizes, np.full(len(ids), 5), delta, seen=seen or {})


def presence(rounds, num_clients, seed):
    """Who is there, bool ``[rounds, num_clients]``: independent, bursty, cyclic, never, always and once, in turn."""
    rng = np.random.default_rng([13, seed])
    there = np.zeros((rounds, num_clients), dtype=bool)
    for n in range(num_clients):
        kind = (n + seed) % 8
        if kind < 3:
            there[:, n] = rng.random(rounds) < rng.choice([0.03, 0.2, 0.5, 0.9])
        elif kind < 5:  # stays and stays away for a while
            flips = rng.random(rounds) < rng.choice([0.05, 0.2])
            there[:, n] = (np.cumsum(flips) + rng.integers(2)) % 2 == 1
        elif kind == 5:
            there[:, n] = np.arange(rounds) % rng.integers(2, 15) == 0
        elif kind == 6:
            there[:, n] = rng.random() < 0.5
        else:
            there[rng.integers(rounds), n] = True
    there[rng.random(rounds) < 0.1] = False  # empty rounds
    return there


class Branch(nn.Module):
    """A branch that depends on the data, which vmap cannot batch."""

    def __init__(self):
        super().__init__()
        self.output = nn.Linear(16, 4)

    def forward(self, x):
        outputs = self.output(x)
        return outputs if outputs.sum() > 0 else 2 * outputs
