"""Corrections receive the final parameters: FedDyn as a correction, compared with plain torch."""

from dataclasses import dataclass
from itertools import islice

import numpy as np
import pytest
import torch
from tests.oracles.shuffles import client_key, endless
from tests.oracles.test_rules import DATA, SEED, SIZES, N, model
from tests.tiny import classification

from turnout import Experiment, Population, Sgd, compose
from turnout.base import Correction, KeepingCorrection, Outcome
from turnout.pieces.local import UniformWork
from turnout.simulation import Simulation

from ...phases import train

ALPHA, LR, STEPS, BATCH, ROUNDS = 0.3, 0.2, 4, 8, 4


@dataclass(frozen=True)
class Dynamic(KeepingCorrection):
    """``g - dual + alpha (y - start)``; then ``dual <- dual - alpha (y_K - start)``."""

    keeps = ("dual",)
    traced: bool = True

    def begin(self, task, memory, clients, lanes):
        del task, clients
        return (Traced if self.traced else Untraced)(lanes.of(memory["dual"]))

    def correct(self, gradient, params, start):
        del params, start
        return gradient


@dataclass(frozen=True)
class Traced(Correction):
    dual: torch.Tensor

    def correct(self, gradient, params, start):
        return gradient - self.dual[: len(gradient)] + ALPHA * (params - start)

    def outcome(self, delta):
        return Outcome({"dual": -ALPHA * delta})


class Untraced(Traced):
    def __init__(self, dual):
        object.__setattr__(self, "dual", dual)

    __hash__ = None  # type: ignore[assignment]


def by_torch(momentum):
    """Return models after every round, and the dual variables, with full participation and plain averaging."""
    net, duals = model(), [[torch.zeros_like(p) for p in model().parameters()] for _ in range(N)]
    batches = [endless(int(SIZES[n]), client_key(SEED, n), BATCH, drop_last=True) for n in range(N)]
    for _ in range(ROUNDS):
        ends = []
        for n in range(N):
            x, y = DATA.train.client(n)
            own = model()
            own.load_state_dict(net.state_dict())
            optimizer = torch.optim.SGD(own.parameters(), lr=LR, momentum=momentum)
            for rows in islice(batches[n], STEPS):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(own(x[rows]), y[rows])
                for p, start, dual in zip(own.parameters(), net.parameters(), duals[n], strict=True):
                    loss = loss - (dual * p).sum() + ALPHA / 2 * (p - start.detach()).square().sum()
                loss.backward()
                optimizer.step()
            ends.append([p.detach() for p in own.parameters()])
            for dual, p, start in zip(duals[n], own.parameters(), net.parameters(), strict=True):
                dual -= ALPHA * (p.detach() - start.detach())
        with torch.no_grad():
            for p, values in zip(net.parameters(), zip(*ends, strict=True), strict=True):
                p.copy_(torch.stack(values).mean(dim=0))
    return (
        torch.cat([p.detach().ravel() for p in net.parameters()]),
        torch.stack([torch.cat([part.ravel() for part in dual]) for dual in duals]),
    )


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
@pytest.mark.parametrize("traced", [True, False])
def test_feddyn_equals_plain_torch(momentum, engine, traced):
    local = Sgd(lr=LR, steps=STEPS, batch_size=BATCH, momentum=momentum)
    algorithm = compose(local, Dynamic(traced))
    run = Simulation(Experiment(DATA, model(), algorithm, Population(), rounds=ROUNDS, seed=SEED, engine=engine))
    for _ in range(ROUNDS):
        run.round()
    params, duals = by_torch(momentum)
    torch.testing.assert_close(run.state.params, params, rtol=0, atol=1e-12)
    own = run.memory.gather(np.arange(N))["dual"]
    torch.testing.assert_close(own, duals, rtol=0, atol=1e-12)
    torch.testing.assert_close(run.state.slots["controls"]["dual"], own.mean(dim=0), rtol=0, atol=1e-12)
    assert duals.norm() > 0.1


@dataclass(frozen=True)
class Came(Correction):
    """Remembers how far each client came in its last round."""

    def memory(self, num_params, dtype):
        return {"came": ((num_params,), dtype)}

    def correct(self, gradient, params, start):
        del params, start
        return gradient

    def outcome(self, delta):
        return Outcome(remembered={"came": delta.clone()})


def test_memory_uses_final_parameters_for_unequal_numbers_of_steps():
    data = classification(features=4, classes=3, dtype=torch.float64)
    algorithm = compose(Sgd(lr=LR, steps=UniformWork(1, 5), batch_size=BATCH), Came())
    run = Simulation(Experiment(data, model(), algorithm, rounds=1, engine="vectorized"))
    report = train(run, np.arange(N))
    assert len(set(report.num_steps.tolist())) > 1
    torch.testing.assert_close(run.memory.gather(np.arange(N))["came"], report.delta, rtol=0, atol=0)
