"""Poisson sampling."""

import numpy as np

from turnout.core.candidates import Candidates
from turnout.pieces.selection import Poisson


def cohort(there, round, rate=0.4):
    return Poisson(rate).select(Candidates(lambda clients: there[clients], len(there), round, seed=0))


def test_unavailable_client_does_not_affect_other_draws():
    everyone, some = np.ones(200, dtype=bool), np.arange(200) % 3 > 0
    for round in range(20):
        assert cohort(some, round).tolist() == [n for n in cohort(everyone, round).tolist() if some[n]]


def test_every_client_is_drawn_at_the_rate():
    times = np.bincount(np.concatenate([cohort(np.ones(50, dtype=bool), t) for t in range(600)]), minlength=50)
    assert np.abs(times - 240).max() < 4.5 * np.sqrt(600 * 0.4 * 0.6)
