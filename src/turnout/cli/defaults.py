"""What the command line takes where nothing is written: an experiment that suits the data.

What suits a recipe is declared beside it (`turnout.algorithms.defaults`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from turnout.cli.options import Table, options_of

_DIRICHLET = {"partition": {"name": "dirichlet", "alpha": 0.1}, "empty": "drop"}
_BY_ID = {"partition": {"name": "by_id"}}
_SYNTHETIC: Table = {
    "data": {**_BY_ID, "test_fraction": 0.0, "client_test_fraction": 0.1},
    "model": {"name": "logistic"},
    "local": {"lr": 0.01},
}
_TWO_PARTS: Table = {"data": {**_BY_ID, "client_test_fraction": 0.2}, "model": {"name": "split_logistic"}}

ANY: Table = {
    "data": {"name": "digits"},
    "algorithm": {"name": "fedau"},
    "availability": {"name": "markov"},
    "pace": {"name": "rounds"},
}
"""For all data."""

BY_PACE: Mapping[str, Table] = {
    name: {"availability": {"name": "everyone"}, "pace": {"name": name}} for name in ("buffered", "buffered_groups")
}
"""For each pace. Availability that counts rounds needs ``population.seconds_per_round`` too."""

SPEED: Table = {
    "kind": "delays",
    "compute": {"kind": "uniform", "low": 0.5, "high": 1.5},
    "per": "task",
    "spread": 1.0,
}
"""Of clients who report whenever they are done: the fastest of 100 are about 100 times as fast as the slowest."""

BY_DATA: Mapping[str, Table] = {
    "declared": {"model": {"name": "mlp"}},
    "digits": {"data": {"num_clients": 100, **_DIRICHLET}, "model": {"name": "mlp"}},
    "mnist": {"data": {"num_clients": 250, **_DIRICHLET}, "model": {"name": "cnn"}},
    "fashion_mnist": {"data": {"num_clients": 250, **_DIRICHLET}, "model": {"name": "cnn"}},
    "emnist": {"data": {"num_clients": 500, **_DIRICHLET}, "model": {"name": "cnn"}, "evaluation_examples": 10_000},
    "mnist_by_writer": {"data": _BY_ID, "model": {"name": "cnn"}},
    "digits_binary": _TWO_PARTS,
    "mnist_binary": _TWO_PARTS,
    "cifar10": {
        "data": {"num_clients": 250, **_DIRICHLET, "augmentation": "cifar"},
        "model": {"name": "cnn", "hidden": [256, 64]},
        "evaluation_examples": 10_000,
    },
    "femnist": {"data": _BY_ID, "model": {"name": "cnn"}, "evaluation_examples": 10_000},
    "sent140": {"data": _BY_ID, "model": {"name": "text_lstm"}, "local": {"lr": 0.3}},
    "synthetic": _SYNTHETIC,
    "synthetic_iid": _SYNTHETIC,
    "table": {"data": _BY_ID, "model": {"name": "mlp"}},
    "instructions": {
        "data": {**_BY_ID, "test_fraction": 0.0, "client_test_fraction": 0.2},
        "model": {"name": "huggingface"},
        "local": {"solver": "adamw", "lr": 1e-3},
    },
    "shakespeare": {
        "data": {"num_clients": 100, **_BY_ID, "stride": 20},
        "model": {"name": "char_lstm"},
        "local": {"lr": 0.8},
        "evaluation_examples": 2_000,
    },
}
"""For each data set: who holds what, the model, and what else it needs to be trained in reasonable time."""


_OWN_TESTS: Table = {"data": {"client_test_fraction": 0.2}}
OWN_TESTS: Mapping[str, Table] = {
    "digits": {"data": {"test_fraction": 0.0, "client_test_fraction": 0.2}},
    "mnist": _OWN_TESTS,
    "fashion_mnist": _OWN_TESTS,
    "emnist": _OWN_TESTS,
    "cifar10": _OWN_TESTS,
    "table": {"data": {"test_fraction": 0.0, "client_test_fraction": 0.2}},
}
"""Under all else where an algorithm has a personal part: only a client's own test examples can judge what is its own."""

PERSONAL: Mapping[str, Table] = {"split_logistic": {"personal": "personal"}}
"""Options of algorithms with a personal part, for models of which it is not the head."""


def availability(kind: Callable[..., object], given: Table, data: str) -> Table:
    """Participation that depends on labels, FedAU's setting, for every pattern that has rates and is not given them.

    Not for text, which has no labels. Those of Shakespeare are letters, which all roles use, so that rates would differ by
    chance of the seed alone, all together.
    """
    texts = ("shakespeare", "instructions")
    applies = "correlated_with_labels" in options_of(kind) and "rates" not in given and data not in texts
    return {"correlated_with_labels": 0.1} if applies else {}
