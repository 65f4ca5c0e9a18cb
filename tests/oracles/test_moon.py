"""MOON compared with NumPy, on a network of two layers with explicit derivatives."""

import numpy as np
import pytest
import torch
from torch import nn

from turnout import AdamW, ConfigurationError, Experiment, Population, Sgd, compose, fedavg, moon, perfedavg
from turnout.pieces.local import Contrastive, Inexactness
from turnout.population.availability import Trace
from turnout.simulation import Simulation

from ..tiny import SIZES, classification, presence
from .shuffles import client_key, endless

N, T, SEED, HIDDEN, CLASSES = len(SIZES), 12, 3, 5, 4
LR, STEPS, BATCH, MU, TAU = 0.2, 3, 16, 2.0, 0.5
DATA = classification(dtype=torch.float64)
LOCAL = Sgd(lr=LR, steps=STEPS, batch_size=BATCH)
SHAPES = ((HIDDEN, 16), (HIDDEN,), (CLASSES, HIDDEN), (CLASSES,))


def network(*layers):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(*(layers or (nn.Linear(16, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES)))).double()


def split(w):
    ends = np.cumsum([int(np.prod(shape)) for shape in SHAPES])
    return [part.reshape(shape) for part, shape in zip(np.split(w, ends[:-1]), SHAPES, strict=True)]


def representation(w, x):
    W, b, _, _ = split(w)
    return np.tanh(x @ W.T + b)


def cosine(z, a):
    """The cosine of each pair of rows, and its derivative by the first."""
    norms = np.linalg.norm(z, axis=1, keepdims=True), np.linalg.norm(a, axis=1, keepdims=True)
    value = (z * a).sum(axis=1, keepdims=True) / (norms[0] * norms[1])
    return value, a / (norms[0] * norms[1]) - value * z / norms[0] ** 2


def gradient(w, received, previous, x, y):
    """Return the gradient of the cross entropy, and of the contrastive term if there is a previous model."""
    _, _, V, c = split(w)
    z = representation(w, x)
    scores = np.exp(z @ V.T + c)
    error = (scores / scores.sum(axis=1, keepdims=True) - np.eye(CLASSES)[y]) / len(x)
    by_z = error @ V
    if previous is not None:
        (near, by_near), (far, by_far) = (cosine(z, representation(model, x)) for model in (received, previous))
        positive, negative = np.exp(near / TAU), np.exp(far / TAU)
        by_z = by_z + MU / len(x) / TAU * negative / (positive + negative) * (by_far - by_near)
    by_sum = by_z * (1 - z**2)
    parts = by_sum.T @ x, by_sum.sum(axis=0), error.T @ z, error.sum(axis=0)
    return np.concatenate([part.ravel() for part in parts])


def run(algorithm, present, engine="vectorized", model=None):
    rows = tuple((int(n), int(t), int(t) + 1) for t, n in np.argwhere(present))
    population = Population(Trace(rows, repeat=False))
    options = {"rounds": len(present), "seed": SEED, "evaluate_every": len(present), "engine": engine}
    return Simulation(Experiment(DATA, model or network(), algorithm, population, **options))


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_moon_equals_its_transcription(engine):
    present = presence(T, N, seed=1)
    simulation = run(moon(LOCAL, mu=MU, temperature=TAU), present, engine)
    held = [tuple(part.numpy() for part in DATA.train.client(n)) for n in range(N)]
    batches = [endless(int(SIZES[n]), client_key(SEED, n), BATCH, drop_last=True) for n in range(N)]
    w = first = simulation.state.params.numpy().copy()
    previous: dict[int, np.ndarray] = {}
    for row in present:
        clients, received = np.flatnonzero(row).tolist(), w
        for n in clients:
            local = received
            for _ in range(STEPS):
                rows = next(batches[n])
                local = local - LR * gradient(local, received, previous.get(n), held[n][0][rows], held[n][1][rows])
            previous[n] = local
        if len(clients):
            sizes = np.array([SIZES[n] for n in clients], dtype=float)
            w = np.average([previous[n] for n in clients], axis=0, weights=sizes)
        simulation.round()
        np.testing.assert_allclose(simulation.state.params, w, rtol=0, atol=1e-10)
    assert np.abs(w - first).max() > 0.1


def test_zero_weight_equals_fedavg_and_positive_weight_differs():
    present = np.ones((4, N), dtype=bool)
    runs = [run(algorithm, present) for algorithm in (moon(LOCAL, mu=0.0), fedavg(LOCAL), moon(LOCAL))]
    for one in runs:
        for _ in present:
            one.round()
    none, plain, some = (one.state.params for one in runs)
    torch.testing.assert_close(none, plain, rtol=0, atol=1e-12)
    assert (some - plain).abs().max() > 1e-3


def test_model_without_hidden_layer_is_refused():
    with pytest.raises(
        ConfigurationError, match=r"has one layer with trainable parameters, .*needed one before the last"
    ):
        run(moon(LOCAL), np.ones((1, N), dtype=bool), model=network(nn.Linear(16, CLASSES)))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Contrastive(mu=-1.0), "mu: got -1.0"),
        (lambda: Contrastive(temperature=0.0), "temperature: got 0.0"),
        (lambda: moon(AdamW(accumulate=2)), "does not use a single one: use Sgd or AdamW with accumulate=1"),
        (lambda: compose(*perfedavg().pieces().values(), also=(Contrastive(),)), "does not use a single one: use Sgd"),
        (
            lambda: moon(also=(Inexactness(),)),
            "measures the result of training, by gradients that lack the term of Contrastive",
        ),
    ],
)
def test_training_without_own_minibatches_is_refused(make, why):
    with pytest.raises(ConfigurationError, match=why):
        make()
