"""Buffered training end to end against an event simulation in plain NumPy that trains every task when it is given."""

import heapq
from itertools import islice

import numpy as np
import pytest

from turnout import ALGORITHMS, Experiment, Population, ServerSgd, Sgd
from turnout.pace import Buffered
from turnout.population import Speed, delay
from turnout.population.groups import Group
from turnout.simulation import Simulation

from .asynchronous import constant, discounted, exponential, fair, hinge, mixed, polynomial
from .rules import local_sgd, softmax_gradient
from .shuffles import client_key, endless
from .test_rules import CLASSES, DATA, SEED, SIZES, N, model

LR, STEPS, BATCH, T = 0.2, 3, 16, 16
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
}


def theirs(step, eta, size, waits):
    """Parameters after every step, and when it was."""
    w, version, clock, tasks = np.concatenate([p.detach().numpy().ravel() for p in model().parameters()]), 0, 0.0, 0
    batches = [endless(int(SIZES[n]), client_key(SEED, n), BATCH, drop_last=True) for n in range(N)]
    queue, buffer, waiting, found, times = [], [], [], [], []

    def ask(n):
        nonlocal tasks
        x, y = (part.numpy() for part in DATA.train.client(n))
        minibatches = [(x[rows], y[rows]) for rows in islice(batches[n], STEPS)]
        D = local_sgd(w, minibatches, lambda w, x, y: softmax_gradient(w, x, y, CLASSES), LR)
        heapq.heappush(queue, (clock + SECONDS[n], tasks, n, version, D, w))
        tasks += 1

    for n in range(N):
        ask(n)
    while len(found) < T:
        clock, _, n, trained, D, start = heapq.heappop(queue)
        buffer.append((n, version - trained, D, start - w))
        idle = [n]
        if len(buffer) == size:
            w = w + eta * step(buffer)
            version, buffer = version + 1, []
            idle, waiting = [*waiting, n], []
            found.append(w)
            times.append(clock)
        elif waits == "always" or (waits == "if_current" and trained == version):
            waiting.append(n)
            idle = []
        for n in idle:
            ask(n)
    return np.array(found), np.array(times)


def ours(algorithm, size, waits, engine):
    speed = Speed(
        per="task",
        groups=tuple(Group(clients=(n,), compute=delay.Constant(seconds)) for n, seconds in enumerate(SECONDS)),
    )
    pace = Buffered(size, waits=waits)
    run = Experiment(DATA, model(), algorithm, Population(speed=speed), pace, rounds=T, seed=SEED, engine=engine)
    simulation, found, times = Simulation(run), [], []
    for _ in range(T):
        simulation.round()
        found.append(simulation.state.params.numpy().copy())
        times.append(simulation.row["simulated_seconds"])
    return np.array(found), np.cumsum(times)


@pytest.mark.parametrize(("size", "waits"), [(1, "never"), (3, "if_current"), (5, "always"), (6, "never")])
@pytest.mark.parametrize("name", CASES)
def test_buffered_training_equals_training_at_once(name, size, waits):
    options, make = CASES[name]
    algorithm = ALGORITHMS[name.split(",")[0]](LOCAL, **options)
    assert isinstance(algorithm.server, ServerSgd)
    assert isinstance(algorithm.server.lr, float)
    params, times = theirs(make(), algorithm.server.lr, size, waits)
    found, when = ours(algorithm, size, waits, "vectorised")
    np.testing.assert_allclose(when, times, atol=1e-9)
    np.testing.assert_allclose(found, params, rtol=0, atol=1e-9)
    assert np.abs(params[-1] - params[0]).max() > 0.05  # it went somewhere


def test_one_by_one():
    params, _ = theirs(fair(N), 1.0, 3, "if_current")
    found, _ = ours(ALGORITHMS["fedstaleweight"](LOCAL), 3, "if_current", "one_by_one")
    np.testing.assert_allclose(found, params, rtol=0, atol=1e-9)
