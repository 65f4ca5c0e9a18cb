"""FOCUS compared with a NumPy transcription of the authors' tracker, and its exact convergence."""

import numpy as np
import pytest
import torch

from turnout import ALGORITHMS, ConfigurationError, Sgd, compose
from turnout.pieces.guard import Clip, TopK
from turnout.pieces.local import GradientTracking, Inexactness
from turnout.pieces.personalization import Personal
from turnout.pieces.selection import WithReplacement
from turnout.pieces.weighting import DivideByParticipants

from ..tiny import presence
from .clients import Clients, simulation
from .test_rules import N

LR, STEPS, T = 0.03, 4, 15
LOCAL = Sgd(lr=LR, steps=STEPS, batch_size=16)


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_focus_equals_its_transcription(engine):
    present, clients = presence(T, N, seed=2), Clients()
    run = simulation(ALGORITHMS["focus"](LOCAL), present, engine)
    x, Y, previous = clients.first, 0.0, [np.zeros_like(clients.first) for _ in range(N)]
    for row in present:
        pushed = []
        for n in np.flatnonzero(row):
            own, y = x, 0.0
            for k in range(STEPS):
                if k > 0:
                    own = own - LR * y
                gradient = clients.gradient(own, clients.minibatch(n))
                y = y + gradient - previous[n]
                previous[n] = gradient
            pushed.append(y)
        Y = Y + sum(pushed)
        x = x - LR * Y
        run.round()
        np.testing.assert_allclose(run.state.params, x, rtol=0, atol=1e-10)
        np.testing.assert_allclose(run.memory.gather(np.arange(N))["tracked"], previous, rtol=0, atol=1e-10)
    assert np.abs(x - clients.first).max() > 0.1


@pytest.mark.parametrize("guards", [(), (Clip(0.2),), (TopK(share=0.3),)])
def test_server_sum_equals_the_clients_trackers_under_guards(guards):
    run = simulation(ALGORITHMS["focus"](LOCAL, also=guards), presence(T, N, seed=3))
    for _ in range(T):
        run.round()
    tracked = run.memory.gather(np.arange(N))["tracked"]
    assert tracked.norm() > 0.1
    torch.testing.assert_close(run.state.slots["aggregation"]["total"], tracked.sum(dim=0), rtol=0, atol=1e-12)


def test_converges_exactly_at_a_constant_step_size():
    """Full gradients and irregular participation: the gradient of the sum of losses vanishes, unlike with plain averages."""
    rng, rounds = np.random.default_rng(4), 350
    present = rng.random((rounds, N)) < np.linspace(0.1, 0.9, N)
    clients, found = Clients(), {}
    for name, lr in (("focus", 0.03), ("average_participating", 0.2)):
        local = Sgd(lr=lr, steps=3, batch_size=64, weight_decay=0.3)
        run = simulation(ALGORITHMS[name](local), present, rounds=rounds, evaluate_every=rounds)
        for _ in range(rounds):
            run.round()
        x = run.state.params.numpy()
        found[name] = np.abs(sum(clients.gradient(x, clients.held[n]) + 0.3 * x for n in range(N))).max()
    assert found["focus"] < 1e-5 < 1e-2 < found["average_participating"]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda: ALGORITHMS["focus"](also=(DivideByParticipants(),)),
            "FOCUS sums the changes of all clients' gradients",
        ),
        (lambda: ALGORITHMS["focus"](also=(WithReplacement(4),)), "draws a client twice, whose gradient changes once"),
        (lambda: ALGORITHMS["focus"](also=(Personal(),)), "Personal needs updates"),
        (lambda: ALGORITHMS["focus"](also=(Inexactness(),)), "Inexactness measures the result of training, and"),
        (lambda: compose(GradientTracking()), r"which WeightedSum would take for updates: add TrackedSum\(\)"),
    ],
)
def test_pieces_that_break_tracking_are_refused(make, why):
    with pytest.raises(ConfigurationError, match=why):
        make()
