"""Synthetic runs for tests of reports."""

import numpy as np
import pytest

from turnout.record.query import History
from turnout.results.records import RunRecord

ALGORITHMS = {
    "fedau": 0.90,
    "average_participating": 0.82,
    "average_all": 0.79,
    "known_statistics": 0.87,
    "fedvarp": 0.88,
    "mifa": 0.86,
}


def run(algorithm="fedau", seed=0, rounds=60, num_clients=30, every=5, clients=True, rates=True, evaluate=True):
    """One run whose figures follow from its arguments."""
    rng = np.random.default_rng([seed, len(algorithm), rounds])
    shared = np.random.default_rng(seed)
    p = np.clip(shared.beta(0.7, 4.0, num_clients), 0.02, 1.0)
    ceiling = ALGORITHMS.get(algorithm, 0.8)
    history, came = History(), np.zeros(num_clients, dtype=int)
    for r in range(1, rounds + 1):
        present = np.flatnonzero(shared.random(num_clients) < p)
        came[present] += 1
        values = {
            "local_loss": 2.3 * np.exp(-4 * r / rounds) + 0.2,
            "num_dropped": 0,
            "seconds": 0.02,
            "bytes_up": 40_000 * len(present),
            "bytes_down": 40_000 * len(present),
        }
        if evaluate and (r % every == 0 or r == rounds):
            accuracy = ceiling * (1 - np.exp(-6 * r / rounds)) + 0.1 * np.exp(-6 * r / rounds) + rng.normal(0, 0.015)
            values |= {"test_accuracy": accuracy - 0.03, "train_accuracy": accuracy}
            values |= {"test_loss": 2.5 * (1 - accuracy) + 0.05, "train_loss": 2.4 * (1 - accuracy)}
        history.record(round=r, participants=present, **values)
    if clients:
        served = np.clip(rng.normal(ceiling - 0.03 - 0.1 * (p < 0.05), 0.09, num_clients), 0, 1)
        weighs = {"fedau": np.clip(rng.gamma(9.0, 1 / 9.0, num_clients) / p, 1, 50), "known_statistics": 1 / p}
        history.set_clients(
            num_examples=shared.integers(20, 200, num_clients),
            participations=came,
            realized_rate=came / rounds,
            known_rate=p if rates else None,
            weight=weighs.get(algorithm),
            test_accuracy=served,
        )
    config = {
        "algorithm": {"name": algorithm, "local": {"lr": 0.1, "steps": 5}},
        "data": {"name": "digits", "alpha": 0.1},
        "rounds": rounds,
        "seed": seed,
    }
    return RunRecord(algorithm, seed, history, config)


def runs(seeds=3, algorithms=tuple(ALGORITHMS), **options):
    """Runs of several algorithms and seeds."""
    return [run(algorithm, seed, **options) for algorithm in algorithms for seed in range(seeds)]


@pytest.fixture(scope="session")
def make_run():
    """``make_run(algorithm, seed, ...)``: one synthetic run."""
    return run


@pytest.fixture(scope="session")
def make_runs():
    """``make_runs(seeds, algorithms, ...)``: the runs of a synthetic comparison."""
    return runs


@pytest.fixture(scope="session")
def six_by_three():
    """Six algorithms, three seeds each; not to be changed."""
    return runs(3)
