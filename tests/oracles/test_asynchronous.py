"""Buffered training compared with an event simulation in NumPy that trains every task immediately."""

import heapq
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

from turnout import ALGORITHMS, Experiment, Population, Sgd, fedvarp, mifa
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.population import Speed, delay
from turnout.population.speed.groups import Group
from turnout.protocol.pace import Buffered
from turnout.simulation import Simulation

from .asynchronous import constant, discounted, exponential, fair, hinge, mixed, polynomial, window
from .cached import METHODS, ace, aced, area, ca2fl, fadas
from .rules import local_sgd, softmax_gradient
from .shuffles import client_key, endless
from .test_rules import CLASSES, DATA, SEED, SIZES, N, P, model

LR, STEPS, BATCH, T = 0.2, 2, 16, 12
SECONDS = (1.0, 1.3, 1.1, 4.7, 0.9, 9.1, 2.6, 1.0)  # clients 0 and 7 always report in the same moment
LOCAL = Sgd(lr=LR, steps=STEPS, batch_size=BATCH)

CASES = {
    "fedstaleweight": ({}, lambda: fair(N)),
    "fedstaleweight, cumulative": ({"average": "cumulative"}, lambda: fair(N, average="cumulative")),
    "fedbuff": ({}, discounted),
    "fedbuff, polynomial": ({"discount": "polynomial"}, lambda: discounted(polynomial(0.5))),
    "fedbuff, reverse": ({"discount": "exponential", "base": 2.0}, lambda: discounted(exponential(2.0), by_sum=True)),
    "fedasync": ({}, lambda: mixed(polynomial(0.5))),
    "fedasync, constant": ({"discount": "constant", "alpha": 0.3}, lambda: mixed(constant)),
    "fedasync, hinge": ({"discount": "hinge"}, lambda: mixed(hinge(10.0, 4))),
    "fedfa": ({"window": 3}, lambda: window(3)),
    "fedfa, which is a client's model": ({"window": 1}, lambda: window(1)),
}


def theirs(step, eta, size, waits="never", *, starts_with_all=False, most=T):
    """Parameters after every step, and when it was. A report that is staler than `most` leaves its client's minibatches."""
    w, version, clock, tasks = np.concatenate([p.detach().numpy().ravel() for p in model().parameters()]), 0, 0.0, 0
    batches = [endless(int(SIZES[n]), client_key(SEED, n), BATCH, drop_last=True) for n in range(N)]
    queue, buffer, waiting, found, times = [], [], [], [], []

    def ask(n, minibatches=None):
        nonlocal tasks
        x, y = (part.numpy() for part in DATA.train.client(n))
        minibatches = minibatches or [(x[rows], y[rows]) for rows in islice(batches[n], STEPS)]
        D = local_sgd(w, minibatches, lambda w, x, y: softmax_gradient(w, x, y, CLASSES), LR)
        heapq.heappush(queue, (clock + SECONDS[n], tasks, n, version, D, w, minibatches))
        tasks += 1

    for n in range(N):
        ask(n)
    while len(found) < T:
        clock, _, n, trained, D, start, unused = heapq.heappop(queue)
        if version - trained > most:
            ask(n, unused)
            continue
        buffer.append((n, version - trained, D, start - w))
        idle, gathers = [n], starts_with_all and version == 0
        if len(buffer) == (N if gathers else size):
            w = w + eta * step(buffer)
            version, buffer = version + 1, []
            idle, waiting = [*waiting, n], []
            found.append(w)
            times.append(clock)
        elif gathers or waits == "always" or (waits == "if_current" and trained == version):
            waiting.append(n)
            idle = []
        for n in idle:
            ask(n)
    return np.array(found), np.array(times)


def ours(algorithm, size, waits: Any = "never", engine: Any = "vectorized", **options: Any):
    speed = Speed(
        per="task",
        groups=tuple(Group(clients=(n,), compute=delay.Constant(seconds)) for n, seconds in enumerate(SECONDS)),
    )
    pace = Buffered(size, waits=waits, **options)
    run = Experiment(DATA, model(), algorithm, Population(speed=speed), pace, rounds=T, seed=SEED, engine=engine)
    simulation, found, times = Simulation(run), [], []
    for _ in range(T):
        simulation.round()
        found.append(simulation.state.params.numpy().copy())
        times.append(simulation.row["simulated_seconds"])
    return np.array(found), np.cumsum(times)


BUFFERS: list[tuple[int, Any]] = [(1, "never"), (3, "if_current"), (5, "always"), (6, "never")]


@pytest.mark.parametrize(
    ("name", "size", "waits"),
    [("fedstaleweight", *buffer) for buffer in BUFFERS]
    + [(name, *buffer) for name in CASES if name != "fedstaleweight" for buffer in (BUFFERS[0], BUFFERS[3])],
)
def test_deferred_training_equals_immediate_training(name, size, waits):
    """Who is in which buffer does not depend on the rule: one rule with every buffer, and every rule with two of them.

    In a buffer of six the same client is there several times, and reports are of different versions.
    """
    options, make = CASES[name]
    algorithm = ALGORITHMS[name.split(",")[0]](LOCAL, **options)
    assert isinstance(algorithm.server, ServerSgd)
    assert isinstance(algorithm.server.lr, float)
    params, times = theirs(make(), algorithm.server.lr, size, waits)
    found, when = ours(algorithm, size, waits, "vectorized")
    np.testing.assert_allclose(when, times, atol=1e-9)
    np.testing.assert_allclose(found, params, rtol=0, atol=1e-9)
    assert np.abs(params[-1] - params[0]).max() > 0.05  # it went somewhere


def test_one_by_one_training_equals_immediate_training():
    params, _ = theirs(fair(N), 1.0, 3, "if_current")
    found, _ = ours(ALGORITHMS["fedstaleweight"](LOCAL), 3, "if_current", "one_by_one")
    np.testing.assert_allclose(found, params, rtol=0, atol=1e-9)


ALL_FIRST: dict[str, Any] = {"size": 1, "starts_with_all": True}
CACHED: dict[str, Any] = {
    "ca2fl": ({"server_lr": 0.8}, {"size": 3, "waits": "always"}, lambda: ca2fl(N, P, eta=0.8)),
    "ca2fl, several of a client": ({}, {"size": 5}, lambda: ca2fl(N, P)),
    "ace": ({"server_lr": 0.5}, ALL_FIRST, lambda: ace(N, P, eta=0.5)),
    "aced": ({"tau": 4}, ALL_FIRST, lambda: aced(N, tau=4)),
    "aced, of whoever reports": ({"tau": 0}, {"size": 5}, lambda: aced(N, tau=0)),
    "aced, which is ace": ({"tau": T}, ALL_FIRST, lambda: ace(N, P)),
    "area": ({}, {"size": 1}, lambda: area(N, P)),
    "area, several of a client": ({}, {"size": 5}, lambda: area(N, P)),
    "fadas": ({"server_lr": 0.05}, {"size": 3}, lambda: fadas(0.05)),
    "fadas, paper": ({"server_lr": 0.3, "delays": "paper"}, {"size": 2}, lambda: fadas(0.3, delays="paper")),
    "fadas, code": (
        {"server_lr": 0.1, "delays": "authors_code", "threshold": 2, "bias_correction": True},
        {"size": 2},
        lambda: fadas(0.1, delays="authors_code", threshold=2, corrected=True),
    ),
}


def test_cases_include_every_rule_with_client_tables():
    assert METHODS.keys() <= CACHED.keys()


@pytest.mark.parametrize("name", CACHED)
def test_tables_equal_the_transcription(name):
    recipe, pace, make = CACHED[name]
    params, times = theirs(make(), 1.0, **pace)
    found, when = ours(ALGORITHMS[name.split(",")[0]](LOCAL, **recipe), **pace)
    np.testing.assert_allclose(when, times, atol=1e-9)
    np.testing.assert_allclose(found, params, rtol=0, atol=1e-10)
    assert np.abs(params[-1] - params[0]).max() > 0.05  # it went somewhere


@pytest.mark.parametrize(
    ("name", "size", "most"),
    [("rennala", 4, 0), ("ringmaster", 1, 2)],  # B = 4 gradients, all at x^k; R = 3
)
def test_rennala_and_ringmaster_are_buffers_that_drop_stale_reports(name, size, most):
    params, times = theirs(discounted(), 1.0, size, most=most)
    found, when = ours(ALGORITHMS[name](LOCAL), size, max_staleness=most)
    np.testing.assert_allclose(when, times, atol=1e-9)
    np.testing.assert_allclose(found, params, rtol=0, atol=1e-10)
    patient, _ = theirs(discounted(), 1.0, size)
    assert np.abs(found - patient).max() > 1e-3  # something was dropped


def test_ca2fl_equals_fedvarp_and_ace_equals_mifa_for_late_reports():
    assert replace(ALGORITHMS["ca2fl"](LOCAL), name="fedvarp") == fedvarp(LOCAL)
    assert replace(ALGORITHMS["ace"](LOCAL), name="mifa") == mifa(LOCAL)
