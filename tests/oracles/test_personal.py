"""Personalization and SCAFFOLD compared with NumPy in float64: shared part, personal parts, control variates."""

from itertools import cycle
from typing import Any

import numpy as np
import pytest

from turnout import ALGORITHMS, Experiment, Population, Sgd
from turnout.population.availability import Trace
from turnout.simulation import Simulation

from ..tiny import presence
from . import personal
from .rules import softmax_gradient
from .shuffles import client_key, endless
from .test_rules import CLASSES, DATA, SEED, SIZES, N, model

T, K, BATCH = 11, 3, 16
HELD = [tuple(part.numpy() for part in DATA.train.client(n)) for n in range(N)]
SHARED_ALONE, TWICE = ("scaffold",), ("ditto",)

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    **{name: (name, {}, {}) for name in personal.METHODS},
    "fedavg_p, outer steps": ("fedavg_p", {"lr_factor": 0.4, "outer_lr": 1.7, "server_lr": 1.3}, {}),
    "scaffold_p, outer steps": ("scaffold_p", {"lr_factor": 0.4, "outer_lr": 0.6, "server_lr": 1.3}, {}),
    "scaffold_p from zeros": ("scaffold_p", {"initial": "zeros"}, {"initial": "zeros"}),
    "fedalt, another share": ("fedalt", {"share": 0.25}, {"share": 0.25}),
    "ditto, near": ("ditto", {"proximal": 2.0, "server_lr": 1.3}, {"proximal": 2.0}),
    "scaffold, server_lr": ("scaffold", {"server_lr": 0.7}, {}),
    "scaffold, option I": ("scaffold", {"option": "I"}, {"method": personal.OptionOne}),
    "scaffold from gradients": ("scaffold", {"initial": "gradients"}, {"initial": "gradients"}),
}
"""Recipe, its options, and what the transcription has in their place."""


def theirs(name, options, own, present, lr):
    """Return u, all v and c_i, and c, after every round."""
    batches = [endless(int(SIZES[n]), client_key(SEED, n), BATCH, drop_last=True) for n in range(N)]

    def gradient(w, batch):
        x, y = batch
        return softmax_gradient(w, x, y, CLASSES)

    def minibatch(n):
        rows = next(batches[n])
        return HELD[n][0][rows], HELD[n][1][rows]

    problem = personal.problem(N, SIZES, gradient, minibatch, lambda w, n: gradient(w, HELD[n]))
    w = np.concatenate([p.detach().numpy().ravel() for p in model().parameters()])
    u, v = (w, w if name in TWICE else w[:0]) if name in SHARED_ALONE + TWICE else (w[:-CLASSES], w[-CLASSES:])
    method, also = personal.METHODS[name]
    also = also | own
    eta = {"eta_u": options.get("server_lr", 1.0), "eta_v": options.get("outer_lr", 1.0)}
    steps = K, lr, lr * options.get("lr_factor", 1.0)
    run = also.pop("method", method)(problem, u, v, *steps, **eta, **also)
    found = []
    for t in range(T):
        u = run.round(u, [int(n) for n in np.flatnonzero(present[t])])
        found.append((u, np.array(run.v), np.array(getattr(run, "c_i", [])), getattr(run, "c", None)))
    return found


@pytest.mark.parametrize(
    ("case", "engine"), list(zip(CASES, cycle(("vectorized", "one_by_one", "vectorized")), strict=False))
)
def test_recipe_equals_its_transcription(case, engine):
    name, options, own = CASES[case]
    present = presence(T, N, seed=1)
    assert (~present.any(axis=1)).any()
    expected = theirs(name, options, own, present, lr=0.1)

    rows = tuple((int(n), int(t), int(t) + 1) for t, n in zip(*np.nonzero(present), strict=True))
    part = {} if name in SHARED_ALONE + TWICE else {"personal": "bias"}
    algorithm = ALGORITHMS[name](Sgd(lr=0.1, steps=K, batch_size=BATCH), cohort_size=N, **part, **options)
    population = Population(Trace(rows, rounds=T))
    simulation = Simulation(Experiment(DATA, model(), algorithm, population, rounds=T, seed=SEED, engine=engine))
    for u, v, c_i, c in expected:
        simulation.round()
        memory = simulation.memory.gather(np.arange(N))
        np.testing.assert_allclose(simulation.state.params, u, rtol=0, atol=1e-9)
        if v.size:
            np.testing.assert_allclose(memory["personal"], v, rtol=0, atol=1e-9)
        if len(c_i):
            np.testing.assert_allclose(memory["control"], c_i, rtol=0, atol=1e-8)
            np.testing.assert_allclose(simulation.state.slots["controls"]["control"], c, rtol=0, atol=1e-8)
    assert np.abs(expected[-1][0] - expected[0][0]).max() > 0.1  # it went somewhere
