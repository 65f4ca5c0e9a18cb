"""Where methods end up on quadratics whose clients are unequally fast: ``F_n(x) = ||x - c_n||^2 / 2``.

Client n takes SECONDS[n] for a task and sends ``gamma (c_n - x)`` for the x that it was given. What sums reports as they come
has the clients weighed by their speed; what counts each client once ends at the mean of the c_n.
"""

import heapq
from dataclasses import replace

import numpy as np
import pytest
import torch

from turnout import ace, aced, area, ca2fl, fadas, fedasync, fedbuff
from turnout.base.server_step import server_step

from ..tiny import federation, report

SECONDS = np.array([1.0, 1.7, 4.1, 9.3])
TARGETS = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0], [4.0, -4.0]], dtype=torch.float64)
UNIFORM = TARGETS.mean(dim=0)
BY_SPEED = torch.from_numpy((1 / SECONDS) / (1 / SECONDS).sum()) @ TARGETS
N, P = TARGETS.shape


def end(algorithm, size, steps=700):
    """The mean of x over the last steps. AREA's step is divided by N, so its clients may go further."""
    gamma, last = 0.9 if algorithm.name == "area" else 0.05, steps // 5
    known, queue, buffer, total = federation(N, P), [], [], torch.zeros(P, dtype=torch.float64)
    state = algorithm.init(torch.zeros(P, dtype=torch.float64), known)
    for n in range(N):
        heapq.heappush(queue, (SECONDS[n], n, state))
    while state.version < steps:
        clock, n, started = heapq.heappop(queue)
        buffer.append((n, started))
        if len(buffer) == size:
            clients = [n for n, _ in buffer]
            starts = torch.stack([one.params for _, one in buffer])
            sent = replace(
                report(clients, gamma * (TARGETS[clients] - starts)),
                version=np.array([one.version for _, one in buffer]),
                model_offset=starts - state.params,
            )
            state, buffer = server_step(algorithm, state, sent, known)[0], []
            total += state.params if state.version > steps - last else 0.0
        heapq.heappush(queue, (clock + SECONDS[n], n, state))
    return total / last


@pytest.mark.parametrize(
    ("algorithm", "size"),
    [
        (ca2fl(server_lr=0.5), 2),
        (ca2fl(server_lr=0.5), 1),
        (ace(), 1),
        (aced(tau=30), 1),
        (area(), 1),
        (area(), 3),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_optimum_weighs_clients_equally_whatever_their_speed(algorithm, size):
    assert (end(algorithm, size) - UNIFORM).norm() < 1e-6


@pytest.mark.parametrize(
    ("algorithm", "size"),
    [
        (fedbuff(), 2),
        (fedbuff(), 1),
        (fedasync(alpha=0.5, discount="constant"), 1),
        (aced(tau=1), 1),
        (fadas(server_lr=0.01), 2),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_optimum_is_biased_to_fast_clients(algorithm, size):
    found = end(algorithm, size)
    assert (found - UNIFORM).norm() > 0.5
    assert algorithm.name != "fedbuff" or (found - BY_SPEED).norm() < 0.25
