"""FedAWE compared with a NumPy transcription in which every client has its own model."""

from itertools import islice

import numpy as np
import pytest

from turnout import ALGORITHMS, ConfigurationError, Sgd
from turnout.core.schedule import InverseRoot

from ..tiny import presence
from . import rules
from .shuffles import client_key, endless
from .test_rules import CLASSES, DATA, SEED, SIZES, N, T, model, ours

STEPS = 3
LOCAL = Sgd(lr=0.1, steps=STEPS, batch_size=16)


def clip(vector, norm):
    return vector if np.linalg.norm(vector) <= norm else vector * norm / np.linalg.norm(vector)


def theirs(present, global_lr, lr=lambda _: 0.1, max_norm=np.inf):
    """Return parameters after every round, ``[T, P]``, with lists of stored models and missed rounds.

    Models and innovations are averaged separately, as in the authors' code, which clips the latter.
    """
    w = np.concatenate([p.detach().numpy().ravel() for p in model().parameters()])
    kept, missed, found = [w.copy() for _ in range(N)], [1] * N, []
    batches = [endless(int(SIZES[n]), client_key(SEED, n), LOCAL.batch_size, drop_last=True) for n in range(N)]

    def gradient(w, x, y):
        return rules.softmax_gradient(w, x, y, CLASSES)

    for t in range(T):
        there = np.flatnonzero(present[t])
        models, innovations = [], []
        for n in there:
            x, y = (part.numpy() for part in DATA.train.client(int(n)))
            minibatches = [(x[rows], y[rows]) for rows in islice(batches[n], STEPS)]
            models.append(kept[n])
            innovations.append(missed[n] * rules.local_sgd(kept[n], minibatches, gradient, lr(t)))
        if models:
            w = np.mean(models, axis=0) + global_lr * clip(np.mean(innovations, axis=0), max_norm)
        for n in range(N):
            missed[n] = 1 if present[t][n] else missed[n] + 1
            if present[t][n]:
                kept[n] = w
        found.append(w)
    return np.array(found)


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_fedawe_equals_its_transcription(engine):
    present = presence(T, N, seed=1)
    assert (~present.any(axis=1)).any()
    expected = theirs(present, global_lr=0.7)
    found = ours(ALGORITHMS["fedawe"](LOCAL, global_lr=0.7), present, engine)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
    assert np.abs(expected[-1] - expected[0]).max() > 0.1  # it went somewhere


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_equals_the_authors_code_with_clipping_and_schedule(engine):
    present, local = presence(T, N, seed=2), Sgd(lr=InverseRoot(0.3, every=10), steps=STEPS, batch_size=16)

    def lr(t):
        return 0.3 / np.sqrt(t / 10 + 1)

    expected = theirs(present, 0.7, lr, max_norm=0.5)
    np.testing.assert_allclose(
        ours(ALGORITHMS["fedawe"](local, global_lr=0.7, max_norm=0.5), present, engine), expected, rtol=0, atol=1e-10
    )
    for other in (theirs(present, 0.7, lr), theirs(present, 0.7, max_norm=0.5)):  # both options matter
        assert np.abs(expected[-1] - other[-1]).max() > 0.01


@pytest.mark.parametrize("norm", [0, -1.0, float("inf")])
def test_invalid_norm_is_refused(norm):
    with pytest.raises(ConfigurationError, match=r"max_norm: got .*, needed a finite number > 0"):
        ALGORITHMS["fedawe"](max_norm=norm)


def test_full_participation_gives_the_mean_of_updates():
    everyone = np.ones((T, N), dtype=bool)
    mean = ours(ALGORITHMS["average_participating"](LOCAL), everyone, "vectorized")
    np.testing.assert_allclose(ours(ALGORITHMS["fedawe"](LOCAL), everyone, "vectorized"), mean, rtol=0, atol=1e-12)
