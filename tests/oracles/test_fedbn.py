"""FedBN compared with its authors' loop over `nn.BatchNorm1d` and `torch.optim.SGD`, in float64."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from turnout import Experiment, Sgd, average_participating, fedbn, fedper
from turnout.pieces.weighting import DivideByParticipants
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


def theirs(momentum, weight_decay, kept="1."):
    """Every client's model after the last round; tensors of the layer `kept` are not averaged."""
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
            if not key.startswith(kept) and not key.endswith("num_batches_tracked"):
                mean = torch.stack([state[key] for state in states]).mean(dim=0)
                for net in models:
                    net.state_dict()[key].copy_(mean)
    return [net.eval() for net in models]


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
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


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
@pytest.mark.parametrize(("rule", "kept"), [(average_participating, "nothing"), (fedper, "3.")])
def test_averaged_statistics_equal_the_mean_of_state_dicts(engine, rule, kept):
    """FedAvg over whole state dicts, as `nn.BatchNorm1d` has them, and FedPer, whose head stays with clients."""
    local = Sgd(lr=0.1, steps=K, batch_size=BATCH, momentum=0.5, weight_decay=0.1)
    options = {"cohort_size": N} if rule is fedper else {}
    algorithm = replace(rule(local, **options), weighting=(DivideByParticipants(),))
    run = Experiment(DATA, model(), algorithm, rounds=ROUNDS, seed=SEED, engine=engine, statistics="average")
    result = run.run()
    for client, net in enumerate(theirs(0.5, 0.1, kept)):
        ours = result.model if rule is average_participating else result.personal_model(client)
        expected = net.state_dict()
        for name, value in ours.state_dict().items():
            if not name.endswith("num_batches_tracked"):
                torch.testing.assert_close(value, expected[name], rtol=1e-9, atol=1e-11)
        x = DATA.train.client(client)[0]
        torch.testing.assert_close(ours(x), net(x), rtol=1e-9, atol=1e-11)
