"""Mistakes of people who come from other programs: each error says what was given and what to write."""

# pyright: reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import turnout as to
from turnout.core.other_names import ExplainsAttributes

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 6)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)
SOURCE = to.data.from_arrays(X, Y)
DATA = SOURCE.split(to.partition.Iid(), num_clients=3)
PAIRS = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


def network() -> nn.Module:
    return nn.Linear(6, 2)


def experiment(**options: Any) -> to.Experiment:
    return to.Experiment(**({"data": DATA, "model": network(), "rounds": 1} | options))


def mistake(call: Callable[[], Any]) -> str:
    with pytest.raises((TypeError, ValueError, to.TurnoutError)) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (lambda: to.data.from_table({}, label="y", client_id="c"), "did you mean 'client'?"),
        (lambda: to.data.from_dataset(PAIRS, client_ids=[0]), "did you mean 'client_id'?"),
        (lambda: to.data.from_arrays(X, Y, clients=[0]), "it takes x, y, client_ids"),
        (lambda: SOURCE.split(to.partition.Iid(), num_partitions=4), "did you mean 'num_clients'?"),
        (lambda: SOURCE.split(to.partition.Iid(), num_clients=4, test_size=0.2), "did you mean 'test_fraction'?"),
        (lambda: SOURCE.split(alpha=0.1, num_clients=4), "(partition=to.partition.Dirichlet(alpha=0.1))"),
        (lambda: to.fedprox(proximal_mu=0.1), "did you mean 'mu'?"),
        (lambda: to.compare({}, num_seeds=3, folder="runs"), "did you mean 'seeds'?"),
        (lambda: experiment(optimizer="adam"), "algorithm=to.fedavg(local=to.AdamW(lr=0.001))"),
    ],
)
def test_names_of_other_programs_lead_to_ours(call: Callable[[], Any], remedy: str) -> None:
    assert remedy in mistake(call)


@pytest.mark.parametrize(
    ("call", "given", "remedy"),
    [
        (lambda: to.fedavg(0.1), "fedavg() takes pieces of an algorithm, got 0.1", "write to.Sgd(lr=0.1)"),
        (lambda: to.fedavg(torch.optim.SGD), "got <class 'torch.optim.sgd.SGD'>", "to.Sgd(lr=0.1) or to.AdamW"),
        (lambda: to.fedavg(also=to.guard.Clip(1.0)), "also: got Clip(norm=1.0)", "Write also=(piece,)"),
        (lambda: to.fedavg(also="clip"), "also: got 'clip'", "Write also=(piece,)"),
        (lambda: experiment(model=network), "got <function network", "write network(...), the module itself"),
        (lambda: experiment(model=lambda: network()), "got <function", "write to.models.Mlp()"),
        (lambda: experiment(model="resnet18"), "got 'resnet18'", "write to.models.Mlp()"),
        (lambda: experiment(data=SOURCE), "got Source(", "write source.split(to.partition.Iid(), num_clients=10)"),
        (
            lambda: experiment(data=DataLoader(PAIRS)),
            "DataLoader",
            "write to.data.from_dataset(dataset).split(to.partition.Iid(), num_clients=10), or to.data.from_arrays(x, y)",
        ),
        (lambda: experiment(loss="mse"), "got 'mse'", "write to.loss.cross_entropy or squared_error"),
        (lambda: experiment(loss=nn.CrossEntropyLoss), "CrossEntropyLoss'>", "write CrossEntropyLoss()"),
        (lambda: SOURCE.split("iid"), "partition: got 'iid'", "Write to.partition.ById(), or one of Dirichlet("),
        (
            lambda: SOURCE.split(to.partition.Iid()),
            "num_clients: got None",
            "Only ById() takes its clients from the data",
        ),
        (lambda: to.data.from_dataset(DataLoader(PAIRS)), "DataLoader has no length or", "write loader.dataset"),
        (lambda: to.data.from_dataset((X, Y)), "a ndarray", "write to.data.from_arrays(x, y)"),
        (
            lambda: to.data.from_dataset([{"x": 1.0, "y": 0}]),
            "a dict of x, y",
            "[(row['x'], row['y']) for row in dataset]",
        ),
        (lambda: to.data.from_arrays(X, np.where(Y, "a", "b")), "got <U1", "numpy.unique(y, return_inverse=True)"),
        (
            lambda: experiment(data=to.data.from_arrays(X, np.eye(2)[Y]).split(to.partition.Iid(), num_clients=3)),
            "torch.float64 [48, 2]",
            "y.argmax(1) of one-hot rows",
        ),
        (lambda: to.compare([experiment()], 2, "runs"), "experiments: got [Experiment(", "{'fedavg': lambda seed:"),
        (
            lambda: experiment(
                data=to.data.from_arrays(np.zeros((9, 8, 8, 3)), Y[:9]).split(to.partition.Iid(), num_clients=3),
                model=to.models.Cnn(),
            ).run(),
            "got (8, 8, 3)",
            "Write x.transpose(0, 3, 1, 2) if colors are last",
        ),
    ],
)
def test_errors_say_what_was_given_and_what_to_write(call: Callable[[], Any], given: str, remedy: str) -> None:
    message = mistake(call)
    assert given in message
    assert remedy in message


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (lambda: experiment().run().accuracy, "write result.history.final('test_accuracy')"),  # type: ignore[attr-defined]
        (lambda: experiment().run().save("x"), "write result.export('model.safetensors'), or"),  # type: ignore[attr-defined]
        (lambda: experiment().fit(), "'Experiment' object has no attribute 'fit': write experiment.run()"),  # type: ignore[attr-defined]
        (lambda: experiment().foo, "'Experiment' object has no attribute 'foo'"),  # type: ignore[attr-defined]
        (lambda: to.run, "module 'turnout' has no attribute 'run': write to.Experiment("),  # type: ignore[attr-defined]
        (lambda: to.strategy, "write algorithm=to.fedavg()"),  # type: ignore[attr-defined]
        (
            lambda: experiment().run(5),
            "folder: got 5, needed a path, or None. The experiment has the number of rounds: rounds=5",
        ),  # type: ignore[arg-type]
        (lambda: experiment().run(verbose=1), "did you mean 'progress'?"),  # type: ignore[call-arg]
    ],
)
def test_first_guesses_at_attributes_and_arguments_of_run_say_what_to_write(
    call: Callable[[], Any], remedy: str
) -> None:
    with pytest.raises((AttributeError, TypeError, to.ConfigurationError)) as caught:
        call()
    assert remedy in str(caught.value)


def test_error_within_a_property_is_not_hidden() -> None:
    class Broken(ExplainsAttributes):
        @property
        def value(self) -> int:
            return self.missing  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="has no attribute 'missing'"):
        print(Broken().value)
