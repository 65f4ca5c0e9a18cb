"""Build the small experiments, on random data, of ``turnout conform`` and ``turnout protocol vectors``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import turnout as to
from turnout.cli.settings import Settings
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.experiment import Experiment
from turnout_serve.cli.deployed import announced

_SETTINGS = {
    "algorithm": "fedavg",
    "local": {"lr": 0.1, "steps": 5, "batch_size": 4},
    "model": {"name": "mlp", "hidden": [6]},
    "data": {"name": "digits", "num_clients": 1},
    "seed": 7,
}
"""Settings of a trial, whose data are random."""


def _numbers(sizes: Sequence[int], shape: tuple[int, ...]) -> FederatedData:
    """Return random float64 examples of three classes."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(sum(sizes), *shape)), rng.integers(0, 3, sum(sizes))
    shards = Shards(torch.from_numpy(x), torch.from_numpy(y), np.array([0, *np.cumsum(sizes)]))
    return FederatedData("numbers", shards, 3)


def trial_of() -> tuple[Experiment, dict[str, Any]]:
    """Return the experiment of a trial, and its settings as a server announces them."""
    from turnout_serve.conform.trial import ROUNDS

    settings = Settings.of({**_SETTINGS, "rounds": ROUNDS, "evaluate_share": 1.0})
    return settings.experiment(_numbers([18], (5,))), announced(settings)


def models_of() -> dict[str, Experiment]:
    """Return runs whose updates are test vectors: all kinds of models, sampling and local steps."""
    return {
        "logistic": Experiment(
            _numbers([14], (5,)), to.models.Logistic(), to.fedavg(to.Sgd(lr=0.1, batch_size=4)), rounds=6, seed=1
        ),
        "mlp": Experiment(
            _numbers([14], (5,)),
            to.models.Mlp(hidden=(4, 3)),
            to.fedavg(to.Sgd(lr=0.1, steps=None, epochs=2, batch_size=4, momentum=0.9, sampling="fresh")),
            seed=(1 << 64) - 1,
        ),
        "cnn": Experiment(
            _numbers([14], (1, 4, 4)),
            to.models.Cnn(hidden=(3,), channels=(2,)),
            to.fedavg(to.Sgd(lr=0.1, batch_size=4, weight_decay=0.01, sampling="replacement")),
            seed=3,
        ),
    }


def secure_of() -> Experiment:
    """Return a run of one round with secure aggregation."""
    algorithm = to.fedavg(
        to.Sgd(lr=0.1, batch_size=4), also=(to.aggregation.SecureSum(largest=64.0, fraction_bits=16),)
    )
    return Experiment(_numbers([8, 9, 7, 6], (5,)), to.models.Logistic(), algorithm, rounds=1)


def surveys_of() -> Experiment:
    """Return a run with one client, which has test examples."""
    data = replace(_numbers([14], (5,)), client_test=_numbers([6], (5,)).train)
    return Experiment(data, to.models.Logistic(), to.fedavg(to.Sgd(lr=0.1, batch_size=4)), seed=1)
