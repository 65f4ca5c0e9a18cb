"""FedBN compared with its authors' loop over `nn.BatchNorm1d` and `torch.optim.SGD`, in float64."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from turnout import Experiment, Sgd, fedbn
from turnout.simulation import Simulation

from .shuffles import client_key, endless
from .test_rules import CLASSES, DATA, SEED, SIZES, N

ROUNDS, K, BATCH = 4, 3, 16


def model():
    torch.manual_seed(4)
    width = DATA.train.x.shape[1]
    return nn.Sequential(
        nn.Linear(width, 6), nn.BatchNorm1d(6, momentum=0.3), nn.ReLU(), nn.Linear(6, CLASSES)
    ).double()


def theirs(momentum, weight_decay):
    """Every client's state dict after the last round; layer 1 is the one that is not averaged."""
    models = [model() for _ in range(N)]
    batches = [endless(int(SIZES[n]), client_key(SEED, n), BATCH, drop_last=True) for n in range(N)]
    for _ in range(ROUNDS):
        for n, net in enumerate(models):
            x, y = DATA.train.client(n)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=momentum, weight_decay=weight_decay)
            net.train()
            for _ in range(K):
                rows = torch.from_numpy(np.asarray(next(batches[n])))
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
                optimizer.step()
        states = [copy.deepcopy(net.state_dict()) for net in models]
        for key in states[0]:
            if not key.startswith("1."):
                mean = torch.stack([state[key] for state in states]).mean(dim=0)
                for net in models:
                    net.state_dict()[key].copy_(mean)
    return [net.eval() for net in models]


@pytest.mark.parametrize("engine", ["vectorised", "one_by_one"])
@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.0, 0.0), (0.5, 0.1)])
def test_fedbn_equals_its_transcription(engine, momentum, weight_decay):
    assert min(SIZES) < BATCH, "some minibatches are padded"
    local = Sgd(lr=0.1, steps=K, batch_size=BATCH, momentum=momentum, weight_decay=weight_decay)
    run = Experiment(DATA, model(), fedbn(local), rounds=ROUNDS, seed=SEED, engine=engine)
    simulation = Simulation(run)
    for _ in range(ROUNDS):
        simulation.round()
    layout = simulation.objective.layout
    assert (layout.num_shared, layout.num_statistics) == (layout.num_params - 24, 12)
    served = simulation.models.serving(np.arange(N))
    for n, net in enumerate(theirs(momentum, weight_decay)):
        found, expected = layout.split(served[n]), net.state_dict()
        for key in found:
            torch.testing.assert_close(found[key], expected[key], rtol=0, atol=1e-9, msg=f"client {n}, {key}")
        x, _ = DATA.train.client(n)
        outputs = simulation.objective.network
        outputs.mode(training=False)
        torch.testing.assert_close(outputs.outputs(served[n], x), net(x), rtol=0, atol=1e-9)
