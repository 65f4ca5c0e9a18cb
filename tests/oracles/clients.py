"""Clients of `test_rules`, one by one in NumPy: their examples, minibatches and gradients."""

import numpy as np

from turnout import Experiment, Population
from turnout.population.availability import Trace
from turnout.simulation import Simulation

from .rules import softmax_gradient
from .shuffles import client_key, endless
from .test_rules import CLASSES, DATA, SEED, SIZES, N, T, model


class Clients:
    """``minibatch(n)`` is client n's next one, ``gradient(w, batch)`` and ``loss(w, batch)`` are at a vector w."""

    def __init__(self, batch_size=16):
        self.held = [tuple(part.numpy() for part in DATA.train.client(n)) for n in range(N)]
        self.batches = [endless(int(SIZES[n]), client_key(SEED, n), batch_size, drop_last=True) for n in range(N)]
        self.first = np.concatenate([p.detach().numpy().ravel() for p in model().parameters()])

    def minibatch(self, n):
        rows = next(self.batches[n])
        return self.held[n][0][rows], self.held[n][1][rows]

    def gradient(self, w, batch):
        x, y = batch
        return softmax_gradient(w, x, y, CLASSES)

    def losses(self, w, batch):
        """The loss of every example."""
        x, y = batch
        z = x @ w[:-CLASSES].reshape(CLASSES, -1).T + w[-CLASSES:]
        z = z - z.max(axis=1, keepdims=True)
        return np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y]


def simulation(algorithm, present, engine="vectorized", **options):
    """Return a run with the availability `present`, bool ``[T, N]``."""
    rows = tuple((int(n), int(t), int(t) + 1) for t, n in zip(*np.nonzero(present), strict=True))
    options = {"rounds": T, "seed": SEED, "evaluate_every": T, "engine": engine, **options}
    return Simulation(Experiment(DATA, model(), algorithm, Population(Trace(rows, rounds=len(present))), **options))
