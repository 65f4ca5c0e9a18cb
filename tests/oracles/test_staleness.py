"""Weights of stale reports compared with NumPy, over random buffers with repeated clients."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from turnout import ALGORITHMS
from turnout.base.server_step import server_step
from turnout.pieces.server_optimizer.sgd import ServerSgd

from ..tiny import federation, report
from .asynchronous import METHODS, buffers, constant, discounted, exponential, fair, hinge, mixed, polynomial, window

N, P, STEPS = 6, 3, 40

CASES = {
    **{
        f"fedstaleweight {rule} {average}": (
            {"rule": rule, "average": average, "window": 4, "rate": 0.3},
            lambda rule=rule, average=average: fair(N, rule, average, window=4, rate=0.3),
        )
        for rule in ("paper", "algorithm_1", "authors_code")
        for average in ("window", "cumulative", "exponential", "authors_window")
    },
    "fedstaleweight": ({}, lambda: fair(N)),
    "fedbuff": ({}, discounted),
    "fedbuff polynomial": ({"discount": "polynomial"}, lambda: discounted(polynomial(0.5))),
    "fedbuff hinge": (
        {"discount": "hinge", "slope": 2.0, "grace": 3},
        lambda: discounted(hinge(2.0, 3)),
    ),
    "fedbuff exponential": ({"discount": "exponential"}, lambda: discounted(exponential(0.5), by_sum=True)),
    "fedbuff reverse": ({"discount": "exponential", "base": 2.0}, lambda: discounted(exponential(2.0), by_sum=True)),
    "fedasync": ({}, lambda: mixed(polynomial(0.5))),
    "fedasync constant": ({"discount": "constant"}, lambda: mixed(constant)),
    "fedasync hinge": ({"discount": "hinge"}, lambda: mixed(hinge(10.0, 4))),
    "fedfa": ({"window": 3}, lambda: window(3)),
}


def test_cases_include_every_recipe():
    assert METHODS.keys() <= CASES.keys()


def steps(algorithm, size, seed, shuffled=False):
    """Where the server gets, ``[STEPS, P]``."""
    known, rng = federation(N, P), np.random.default_rng(seed)
    state, found = algorithm.init(torch.zeros(P, dtype=torch.float64), known), []
    for clients, taus, delta, lag in buffers(N, P, STEPS, size, seed):
        sent = report(clients, torch.from_numpy(delta), version=0)
        sent = replace(sent, version=state.version - taus, model_offset=torch.from_numpy(lag))
        if shuffled:
            sent = sent.take(rng.permutation(size))
        state, _ = server_step(algorithm, state, sent, known)
        found.append(state.params.numpy().copy())
    return np.array(found)


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("name", CASES)
def test_steps_equal_their_transcription(name, size):
    options, make = CASES[name]
    algorithm = ALGORITHMS[name.split()[0]](**options)
    assert isinstance(algorithm.server, ServerSgd)
    step, x, expected = make(), np.zeros(P), []
    for clients, taus, delta, lag in buffers(N, P, STEPS, size, seed=size):
        x = x + algorithm.server.lr * step(list(zip(clients.tolist(), taus.tolist(), delta, lag, strict=True)))
        expected.append(x)
    np.testing.assert_allclose(steps(algorithm, size, size), expected, rtol=1e-10, atol=1e-10)
    assert np.abs(expected[-1]).max() > 0.1


@pytest.mark.parametrize("name", CASES)
def test_order_of_arrival_is_irrelevant(name):
    options, _ = CASES[name]
    algorithm = ALGORITHMS[name.split()[0]](**options)
    np.testing.assert_allclose(steps(algorithm, 7, 1), steps(algorithm, 7, 1, shuffled=True), rtol=1e-9, atol=1e-9)
