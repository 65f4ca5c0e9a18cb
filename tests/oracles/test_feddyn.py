"""FedDyn compared with a NumPy transcription of Algorithm 1, and its invariant under guards."""

import numpy as np
import pytest
import torch

from turnout import ALGORITHMS, ConfigurationError, Sgd, compose
from turnout.core.types import Federation
from turnout.pieces.aggregation import FedDyn
from turnout.pieces.guard import Clip, TopK
from turnout.pieces.local import DynamicRegularizer
from turnout.pieces.selection import WithReplacement
from turnout.pieces.weighting import DivideByClients

from ..tiny import presence
from .clients import Clients, simulation
from .test_rules import N

ALPHA, LR, STEPS = 0.4, 0.2, 3
LOCAL = Sgd(lr=LR, steps=STEPS, batch_size=16)


def theirs(present):
    """Yield the server's model, h and every client's dual after each round."""
    clients = Clients()
    w, h, dual = clients.first, np.zeros_like(clients.first), np.zeros((N, len(clients.first)))
    for row in present:
        ends = {}
        for n in np.flatnonzero(row):
            y = w
            for _ in range(STEPS):
                y = y - LR * (clients.gradient(y, clients.minibatch(n)) - dual[n] + ALPHA * (y - w))
            ends[n] = y
        if ends:
            for n, y in ends.items():
                dual[n] = dual[n] - ALPHA * (y - w)
            h = h - ALPHA / N * sum(y - w for y in ends.values())
            w = sum(ends.values()) / len(ends) - h / ALPHA
        yield w, h, dual


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_feddyn_equals_its_transcription(engine):
    present = presence(30, N, seed=2)
    run = simulation(ALGORITHMS["feddyn"](LOCAL, alpha=ALPHA), present, engine)
    first = run.state.params.clone()
    for w, h, dual in theirs(present):
        run.round()
        np.testing.assert_allclose(run.state.params, w, rtol=0, atol=1e-10)
        np.testing.assert_allclose(run.state.slots["aggregation"]["shift"] * -ALPHA, h, rtol=0, atol=1e-10)
        np.testing.assert_allclose(run.memory.gather(np.arange(N))["dual"], dual, rtol=0, atol=1e-10)
    assert (run.state.params - first).norm() > 1


@pytest.mark.parametrize("guards", [(), (Clip(0.2),), (Clip(0.5), TopK(share=0.3))])
def test_server_h_is_the_mean_of_duals_under_guards(guards):
    run = simulation(ALGORITHMS["feddyn"](LOCAL, alpha=ALPHA, also=guards), presence(30, N, seed=3))
    for _ in range(30):
        run.round()
    dual = run.memory.gather(np.arange(N))["dual"]
    assert dual.norm() > 0.1
    torch.testing.assert_close(run.state.slots["aggregation"]["shift"] * -ALPHA, dual.mean(dim=0), rtol=0, atol=1e-12)


def test_new_clients_count_in_the_mean():
    before, after = (Federation(n, 2, dtype=torch.float64) for n in (2, 8))
    state = FedDyn().grow({"shift": torch.tensor([4.0, 8.0])}, before, after, 3)
    assert state["shift"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: DynamicRegularizer(0.0), "alpha: got 0.0"),
        (
            lambda: ALGORITHMS["feddyn"](also=(DivideByClients(),)),
            "FedDyn's h is the plain mean of all clients' dual variables",
        ),
        (
            lambda: ALGORITHMS["feddyn"](also=(WithReplacement(4),)),
            "draws a client twice, whose dual variable changes once",
        ),
        (lambda: compose(FedDyn()), r"sums the dual variables of DynamicRegularizer"),
    ],
)
def test_pieces_that_break_the_mean_of_duals_are_refused(make, why):
    with pytest.raises(ConfigurationError, match=why):
        make()
