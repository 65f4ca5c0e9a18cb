"""FedAWE end to end against plain NumPy: every client has a model of its own, and goes on from it."""

from itertools import islice

import numpy as np
import pytest

from turnout import ALGORITHMS, Sgd

from ..tiny import presence
from . import rules
from .shuffles import client_key, endless
from .test_rules import CLASSES, DATA, SEED, SIZES, N, T, model, ours

STEPS = 3
LOCAL = Sgd(lr=0.1, steps=STEPS, batch_size=16)


def theirs(present, global_lr):
    """Parameters after every round ``[T, P]``: what each client keeps, and how many rounds it has missed, in lists."""
    w = np.concatenate([p.detach().numpy().ravel() for p in model().parameters()])
    kept, missed, found = [w.copy() for _ in range(N)], [1] * N, []
    batches = [endless(int(SIZES[n]), client_key(SEED, n), LOCAL.batch_size, drop_last=True) for n in range(N)]

    def gradient(w, x, y):
        return rules.softmax_gradient(w, x, y, CLASSES)

    for t in range(T):
        there = np.flatnonzero(present[t])
        sent = []
        for n in there:
            x, y = (part.numpy() for part in DATA.train.client(int(n)))
            minibatches = [(x[rows], y[rows]) for rows in islice(batches[n], STEPS)]
            sent.append(kept[n] + global_lr * missed[n] * rules.local_sgd(kept[n], minibatches, gradient, 0.1))
        if sent:
            w = np.mean(sent, axis=0)
        for n in range(N):
            missed[n] = 1 if present[t][n] else missed[n] + 1
            if present[t][n]:
                kept[n] = w
        found.append(w)
    return np.array(found)


@pytest.mark.parametrize("engine", ["vectorised", "one_by_one"])
def test_fedawe_equals_its_transcription(engine):
    present = presence(T, N, seed=1)
    assert (~present.any(axis=1)).any()
    expected = theirs(present, global_lr=0.7)
    found = ours(ALGORITHMS["fedawe"](LOCAL, global_lr=0.7), present, engine)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
    assert np.abs(expected[-1] - expected[0]).max() > 0.1  # it went somewhere


def test_with_everybody_there_it_is_the_mean_of_updates():
    everyone = np.ones((T, N), dtype=bool)
    mean = ours(ALGORITHMS["average_participating"](LOCAL), everyone, "vectorised")
    np.testing.assert_allclose(ours(ALGORITHMS["fedawe"](LOCAL), everyone, "vectorised"), mean, rtol=0, atol=1e-12)
