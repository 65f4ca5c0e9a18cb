"""Low-rank factors whose mean is exact, and others: ``s mean(B) mean(A)`` compared with ``s mean(B_i A_i)``."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from turnout import AdamW, ConfigurationError, Sgd, compose
from turnout.base.client_step import client_step
from turnout.base.server_step import server_step
from turnout.core.types import Federation, Task
from turnout.engine.cohort import Clients
from turnout.engine.objective import Objective
from turnout.pieces.local import Adam, Alternating, GradientNoise, Prox, Scaffold

from ...tiny import classification

DATA = classification(dtype=torch.float64)
IDS = np.array([7, 0, 4])


class Adapted(nn.Module):
    """A frozen layer with an adapter of rank 3, and a head that is trained in every round."""

    def __init__(self, frozen=()):
        super().__init__()
        torch.manual_seed(0)
        self.base, self.head = nn.Linear(16, 12), nn.Linear(12, 4)
        self.base.requires_grad_(False)
        self.lora_A, self.lora_B = nn.Parameter(torch.randn(3, 16)), nn.Parameter(torch.randn(12, 3) / 10)
        for name in frozen:
            getattr(self, name).requires_grad_(False)

    def forward(self, x):
        return self.head(torch.tanh(self.base(x) + 2.0 * x @ self.lora_A.T @ self.lora_B.T))


def products(frozen=(), also: tuple[Any, ...] = (), version=0, engine: Any = "vectorized", local=None):
    """The product of the averaged factors, the average of the products, and by how far every client's head moved."""
    module = Adapted(frozen).double()
    objective = Objective(module, engine=engine)
    clients = Clients(IDS, IDS, DATA.train, objective)
    algorithm = compose(local or Adam(lr=0.05, steps=6, sampling="fresh"), *also)
    known = Federation(8, objective.layout.num_params, dtype=torch.float64)
    state = algorithm.init(objective.initial, known)
    report, _ = client_step(algorithm, Task(objective.initial, version, seed=1), {}, clients)
    after = server_step(algorithm, state, report, known)[0].params

    def product(vector):
        named = {name: p.detach() for name, p in module.named_parameters()} | objective.layout.split(vector)
        return named["lora_B"] @ named["lora_A"]

    each = torch.stack([product(objective.initial + delta) for delta in report.updates.gathered()])
    head = objective.layout.split(report.updates.gathered()[0])["head.weight"].abs().max()
    assert (each[0] - product(objective.initial)).abs().max() > 1e-2
    return product(after), each.mean(dim=0), float(head)


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
@pytest.mark.parametrize("version", [0, 1])
def test_alternating_factors_average_exactly(version, engine):
    of_means, mean, head = products(also=(Alternating(("lora_B", "lora_A")),), version=version, engine=engine)
    torch.testing.assert_close(of_means, mean, rtol=0, atol=1e-10)
    assert head > 1e-2


def test_one_frozen_factor_averages_exactly_and_two_trained_ones_do_not():
    of_means, mean, _ = products(frozen=("lora_A",))
    torch.testing.assert_close(of_means, mean, rtol=0, atol=1e-10)
    of_means, mean, _ = products()
    assert (of_means - mean).abs().max() > 1e-3


def test_combines_with_momentum_and_a_proximal_term():
    local = Sgd(lr=0.1, steps=6, momentum=0.5, weight_decay=0.1, sampling="fresh")
    of_means, mean, _ = products(also=(Prox(0.1), Alternating(("lora_B", "lora_A"))), local=local)
    torch.testing.assert_close(of_means, mean, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Alternating(("*lora_B*",)), "parts: got .* needed two or more patterns"),
        (
            lambda: compose(AdamW(), Alternating()),
            "AdamW's weight decay and moments of earlier rounds .* weight_decay=0",
        ),
        (lambda: compose(Adam(keep_state=True), Alternating()), "moments of earlier rounds move it all the same"),
        (lambda: compose(Alternating(), Scaffold()), "Scaffold behind Alternating would move the part that is frozen"),
        (lambda: compose(Alternating(), GradientNoise(0.1)), "GradientNoise behind Alternating"),
        (lambda: products(also=(Alternating(("lora_B", "x")),)), "parts: 'x' matches none of lora_A, lora_B, head"),
        (lambda: products(also=(Alternating(("lora_*", "lora_A")),)), "parts: 'lora_A' is in two of"),
    ],
)
def test_invalid_arguments_raise(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
