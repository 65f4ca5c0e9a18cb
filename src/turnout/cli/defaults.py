"""Default settings of the command line, depending on the data and the pace.

Defaults that depend on the algorithm are declared with it (`turnout.algorithms.defaults`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from turnout.algorithms.defaults import Defaults
from turnout.cli import user_code
from turnout.cli.layers import merge
from turnout.cli.names import ALGORITHMS
from turnout.cli.options import Table, options_of, without

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
"""Settings for all data."""

BY_PACE: Mapping[str, Table] = {
    name: {"availability": {"name": "everyone"}, "pace": {"name": name}} for name in ("buffered", "buffered_groups")
}
"""Settings for each pace. Availability in rounds also needs ``population.seconds_per_round``."""

SPEED: Table = {
    "kind": "delays",
    "compute": {"kind": "uniform", "low": 0.5, "high": 1.5},
    "per": "task",
    "spread": 1.0,
}
"""The speed of clients in asynchronous runs: the fastest of 100 are about 100 times as fast as the slowest."""

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
    "cifar100": {
        "data": {"num_clients": 250, **_DIRICHLET, "augmentation": "cifar100"},
        "model": {"name": "cnn", "hidden": [512, 256], "dropout": 0.2},
        "evaluation_examples": 10_000,
    },
    "cinic10": {
        "data": {"num_clients": 250, **_DIRICHLET, "augmentation": "cinic10"},
        "model": {"name": "cnn", "hidden": [512, 256], "dropout": 0.2},
        "evaluation_examples": 10_000,
    },
    "svhn": {
        "data": {"num_clients": 250, **_DIRICHLET, "augmentation": "svhn"},
        "model": {"name": "cnn"},
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
        "metrics": ["perplexity"],
    },
    "shakespeare": {
        "data": {"num_clients": 100, **_BY_ID, "stride": 20},
        "model": {"name": "char_lstm"},
        "local": {"lr": 0.8},
        "evaluation_examples": 2_000,
    },
}
"""Settings for each data set: the split, the model, and options that keep training time reasonable."""


_OWN_TESTS: Table = {"data": {"client_test_fraction": 0.2}}
OWN_TESTS: Mapping[str, Table] = {
    "digits": {"data": {"test_fraction": 0.0, "client_test_fraction": 0.2}},
    "mnist": _OWN_TESTS,
    "fashion_mnist": _OWN_TESTS,
    "emnist": _OWN_TESTS,
    "cifar10": _OWN_TESTS,
    "cifar100": _OWN_TESTS,
    "cinic10": _OWN_TESTS,
    "svhn": _OWN_TESTS,
    "table": {"data": {"test_fraction": 0.0, "client_test_fraction": 0.2}},
}
"""Settings for algorithms with a personal part, which only a client's own test examples can evaluate."""

PERSONAL: Mapping[str, Table] = {"split_logistic": {"personal": "personal"}}
"""Options of algorithms with a personal part, for models of which it is not the head."""


def availability(kind: Callable[..., object], options: Table, data: str) -> Table:
    """Return the option that correlates participation with labels, as in FedAU's experiments, for patterns without rates.

    Not where rows of a trace belong to the clients that they name, which no option moves. Not for text, which has no
    labels; the labels of Shakespeare are letters, whose distribution hardly depends on the role.
    """
    texts = ("shakespeare", "instructions")
    named = "drawn" in options_of(kind) and not options.get("drawn")
    applies = (
        "correlated_with_labels" in options_of(kind) and "rates" not in options and data not in texts and not named
    )
    return {"correlated_with_labels": 0.1} if applies else {}


def of_recipe(name: str) -> Defaults:
    """Return the defaults that a recipe declares; empty ones for an unknown name."""
    return Defaults.of(user_code.recipe(name) or ALGORITHMS.get(name))


def of_pace(layers: Sequence[Table], pace: str | None, data: str) -> Table:
    """Return the defaults of the pace that layers name, or that of their algorithm."""

    def last(section: str) -> str:
        return next((table[section]["name"] for table in reversed(layers) if "name" in table.get(section, {})), "")

    suited = of_recipe(last("algorithm"))
    table = BY_PACE.get(last("pace") or pace or suited.pace.get("name", ""), {})
    if not table:
        return {}
    table = merge(table, {"pace": without(suited.pace, ("name",))})
    if lr := suited.lr.get(data):
        table = merge(table, {"local": {"lr": lr}})
    if any(_says_speed(layer.get("population", {})) for layer in layers):
        return table
    return merge(table, {"population": {"speed": SPEED}})


def local(under: Table, layers: Sequence[Table]) -> Table:
    """Return the default options of the solver that layers name, or that of their algorithm.

    Those of the data are step sizes for SGD, and do not apply to other solvers.
    """
    merged = reduce(merge, layers, under)
    suited = of_recipe(merged["algorithm"]["name"]).local
    inner = merged["algorithm"].get("local", {})
    options = {**suited, **merged.get("local", {}), **(inner if isinstance(inner, Mapping) else {})}
    solver = options.get("solver", "sgd")
    return {
        **(under.get("local", {}) if solver == "sgd" else {}),
        **(suited if suited.get("solver", "sgd") == solver else {}),
    }


def _says_speed(population: Table) -> bool:
    """Return whether a layer specifies a model of speed, and not only options of the default one."""
    speed = population.get("speed", {})
    return "kind" in speed if isinstance(speed, Mapping) else True
