"""Weights of classes and of examples: torch's cross-entropy with weights, scikit-learn's sample weights, in both engines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as theirs
from sklearn.utils.class_weight import compute_class_weight
from torch.nn.functional import cross_entropy

import turnout as to
from turnout.cli.settings import Settings
from turnout.core.checks import ConfigurationError, DataError
from turnout.data.shards import Shards
from turnout.simulation.simulation import Simulation

from ..tiny import SIZES, classification

ENGINES = ("vectorized", "one_by_one")
CLASS_WEIGHTS = (0.5, 3.0, 1.0, 7.0)
LR = 0.3


def weighted_data(sizes=SIZES, seed=0) -> to.FederatedData:
    """Doubles, with a weight for each example."""
    data = classification(sizes, seed=seed, dtype=torch.float64)
    draw = np.random.default_rng(3)

    def of(shards: Shards) -> Shards:
        return replace(shards, weights=torch.from_numpy(draw.uniform(0.1, 5.0, len(shards.x))))

    assert data.test is not None
    return replace(data, train=of(data.train), test=of(data.test))


def experiment(data: to.FederatedData, rounds: int = 1, algorithm: Any = None, **options: Any) -> to.Experiment:
    """Full-batch descent, one step a round, unless an algorithm is passed."""
    steps = to.Sgd(lr=LR, steps=1, batch_size=int(data.train.largest))
    return to.Experiment(
        data=data, model=to.models.Logistic(), algorithm=algorithm or to.fedavg(steps), rounds=rounds, **options
    )


def params_of(run: to.Experiment) -> torch.Tensor:
    simulation = Simulation(run)
    for _ in range(run.rounds):
        simulation.round()
    return simulation.state.params


def logits(params: torch.Tensor, x: torch.Tensor, classes: int = 4) -> torch.Tensor:
    """Outputs of logistic regression at a flat vector."""
    weight, bias = params.split([classes * x.shape[1], classes])
    return x @ weight.reshape(classes, -1).T + bias


def descended(run: to.Experiment, loss: Any) -> torch.Tensor:
    """One step of the pooled loss by plain autograd."""
    params = Simulation(run).state.params.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(logits(params, run.data.train.x), run.data.train.y), params)
    return params.detach() - LR * gradient


@pytest.mark.parametrize("engine", ENGINES)
def test_a_round_over_unequal_clients_descends_torchs_weighted_cross_entropy_of_the_pooled_data(engine) -> None:
    data = classification(dtype=torch.float64)
    run = experiment(data, engine=engine, class_weights=CLASS_WEIGHTS)
    weight = torch.tensor(CLASS_WEIGHTS, dtype=torch.float64)
    expected = descended(run, lambda out, y: cross_entropy(out, y, weight=weight))
    torch.testing.assert_close(params_of(run), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_balanced_weights_are_those_of_scikit_learn(engine) -> None:
    data = classification(dtype=torch.float64)
    labels = data.train.y.numpy()
    balanced = torch.from_numpy(compute_class_weight("balanced", classes=np.arange(4), y=labels))
    run = experiment(data, engine=engine, class_weights="balanced")
    expected = descended(run, lambda out, y: cross_entropy(out, y, weight=balanced))
    torch.testing.assert_close(params_of(run), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("class_weights", [None, CLASS_WEIGHTS])
def test_sample_weights_multiply_those_of_classes(engine, class_weights) -> None:
    data = weighted_data()
    run = experiment(data, engine=engine, class_weights=class_weights)
    assert data.train.weights is not None
    v = data.train.weights * (torch.tensor(class_weights or (1.0,) * 4, dtype=torch.float64)[data.train.y])
    expected = descended(run, lambda out, y: (cross_entropy(out, y, reduction="none") * v).sum() / v.sum())
    torch.testing.assert_close(params_of(run), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("algorithm", [to.fedavg, to.scaffold, to.qffl, to.maxfl, to.folb])
def test_both_engines_agree_on_padded_minibatches_and_full_gradients(algorithm) -> None:
    steps = to.Sgd(lr=0.1, steps=3, batch_size=12)
    both = [
        params_of(
            experiment(weighted_data((*SIZES, 7, 11)), 3, algorithm(steps), engine=engine, class_weights="balanced")
        )
        for engine in ENGINES
    ]
    torch.testing.assert_close(*both, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_accumulated_minibatches_are_one_minibatch(engine) -> None:
    data = weighted_data((12, 24, 36))
    once = to.Sgd(lr=0.1, steps=2, batch_size=12)
    parts = to.Sgd(lr=0.1, steps=2, batch_size=4, accumulate=3)
    results = [params_of(experiment(data, 2, to.fedavg(local), engine=engine)) for local in (once, parts)]
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_weight_of_two_equals_holding_an_example_twice(engine) -> None:
    data = classification((6, 9), dtype=torch.float64)
    number = torch.from_numpy(np.random.default_rng(0).integers(1, 4, 15))
    owners = data.train.owners().repeat_interleave(number).numpy()
    twice = Shards(
        data.train.x.repeat_interleave(number, dim=0),
        data.train.y.repeat_interleave(number),
        np.array([0, *np.bincount(owners).cumsum()]),
    )
    one_client = np.array([0, 15]), np.array([0, len(owners)])
    weighted = replace(data, train=Shards(data.train.x, data.train.y, one_client[0], number.double()))
    repeated = replace(data, train=replace(twice, offsets=one_client[1]))
    results = [params_of(experiment(each, 3, engine=engine)) for each in (weighted, repeated)]
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)


def test_evaluation_records_plain_and_weighted_figures_as_scikit_learn_has_them() -> None:
    data = weighted_data()
    run = experiment(data, class_weights=CLASS_WEIGHTS)
    simulation = Simulation(run)
    simulation.round()
    row = simulation.row
    for split in ("train", "test"):
        shards = getattr(data, split)
        shares = logits(simulation.state.params, shards.x).softmax(dim=1).numpy()
        labels, v = shards.y.numpy(), (shards.weights * torch.tensor(CLASS_WEIGHTS)[shards.y]).numpy()
        for prefix, weight in (("", None), ("weighted_", v)):
            loss = theirs.log_loss(labels, shares, labels=range(4), sample_weight=weight)
            accuracy = theirs.accuracy_score(labels, shares.argmax(axis=1), sample_weight=weight)
            assert row[f"{split}_{prefix}loss"] == pytest.approx(loss, abs=1e-12)
            assert row[f"{split}_{prefix}accuracy"] == pytest.approx(accuracy, abs=1e-12)


@pytest.mark.parametrize("algorithm", [to.fedavg, to.fedper])
def test_weighted_figures_of_clients_are_theirs_and_average_to_those_of_rounds(algorithm) -> None:
    data = weighted_data()
    options: dict[str, Any] = {"personal": "*bias", "cohort_size": 4} if algorithm is to.fedper else {}
    result = experiment(data, 2, algorithm(to.Sgd(lr=0.1, steps=2, batch_size=8), **options)).run()
    clients, last = result.clients.to_pydict(), result.rounds.to_pylist()[-1]
    assert data.train.weights is not None
    totals = np.bincount(data.train.owners(), weights=data.train.weights)
    mean = np.average(clients["train_weighted_loss"], weights=totals)
    assert last["train_weighted_loss"] == pytest.approx(mean, abs=1e-12)
    assert last["train_weighted_loss"] != pytest.approx(last["train_loss"], abs=1e-6)


def test_rmse_is_weighted_too() -> None:
    x = np.linspace(0, 1, 20).reshape(-1, 1)
    y, w = x[:, 0] ** 2, np.linspace(0.1, 2, 20)
    source = to.data.from_arrays(x, y, weights=w)
    data = source.split(to.partition.Iid(), 1, test_fraction=0.0)
    run = experiment(data, loss=to.loss.squared_error)
    simulation = Simulation(run)
    simulation.round()
    out = logits(simulation.state.params, data.train.x, classes=1)[:, 0].numpy()
    squared = theirs.mean_squared_error(data.train.y, out, sample_weight=data.train.weights)
    assert simulation.row["train_weighted_rmse"] == pytest.approx(np.sqrt(squared), abs=1e-12)


def test_equal_weights_change_nothing() -> None:
    data = classification(dtype=torch.float64)
    equal = replace(data, train=replace(data.train, weights=torch.full((len(data.train.x),), 7.0)))
    local = to.Sgd(lr=0.1, steps=3, batch_size=12)
    torch.testing.assert_close(
        params_of(experiment(equal, 2, to.fedavg(local))),
        params_of(experiment(data, 2, to.fedavg(local))),
        rtol=0,
        atol=1e-12,
    )


def test_weights_stay_with_their_examples_through_a_split() -> None:
    x = np.arange(60.0).reshape(-1, 1)
    source = to.data.from_arrays(x, np.arange(60) % 2, weights=x[:, 0] + 1)
    data = source.split(
        to.partition.Dirichlet(1.0),
        3,
        client_test_fraction=0.2,
        validation_fraction=0.2,
        unseen_clients=1,
        empty="drop",
    )
    parts = [data.train, data.test, data.validation, data.client_test, data.unseen_train]
    for shards in parts:
        assert shards is not None
        assert shards.weights is not None
        torch.testing.assert_close(shards.weights, shards.x[:, 0].double() + 1)
    pooled = to.data.from_arrays(
        x[:40], np.arange(40) % 2, weights=x[:40, 0] + 1, test_x=x[40:], test_y=[0, 1] * 10, test_weights=x[40:, 0] + 1
    )
    weights = pooled.pooled().weights
    assert weights is not None
    assert weights.tolist() == [*range(1, 61)]


def test_column_of_a_table_gives_example_weights() -> None:
    table = {"a": [1.0, 2.0, 3.0], "y": [0, 1, 0], "w": [1, 2, 4]}
    source = to.data.from_table(table, label="y", weight="w")
    assert source.weights is not None
    assert source.weights.tolist() == [1.0, 2.0, 4.0]
    assert source.x.tolist() == [[1.0], [2.0], [3.0]]
    with pytest.raises(DataError, match="column 'w' has 1 missing values"):
        to.data.from_table({**table, "w": [1.0, None, 2.0]}, label="y", weight="w")
    dropped = to.data.from_table({**table, "w": [1.0, None, 2.0]}, label="y", weight="w", missing="drop")
    assert len(dropped.x) == 2


def test_class_weights_are_set_on_the_command_line() -> None:
    table = {"data": {"name": "digits"}, "class_weights": "balanced"}
    assert Settings.of(table).numbers()["class_weights"] == "balanced"
    assert Settings.of({**table, "class_weights": "1,2.5"}).numbers()["class_weights"] == (1.0, 2.5)
    with pytest.raises(
        ConfigurationError, match="class_weights: got 'heavy', needed 'balanced', a list of numbers, or none"
    ):
        Settings.of({**table, "class_weights": "heavy"})


def test_invalid_class_weights_are_refused() -> None:
    data = classification()
    with pytest.raises(
        ConfigurationError, match=r"class_weights: got .*, needed 'balanced', or a tuple of 4 finite numbers > 0"
    ):
        experiment(data, class_weights=(1.0, 2.0))
    for weights in (1.0, 2.0, 0.0, 1.0), np.ones(4), {0: 1.0}, "equal":
        with pytest.raises(ConfigurationError, match="or a tuple of 4 finite numbers > 0"):
            experiment(data, class_weights=weights)
    numbers = to.data.from_arrays([[0.0], [1.0]], [0.5, 1.5]).split(to.partition.Iid(), 1, test_fraction=0.0)
    with pytest.raises(ConfigurationError, match="class_weights: the targets of these data are no class labels"):
        experiment(numbers, loss=to.loss.squared_error, class_weights="balanced")
    with pytest.raises(DataError, match=r"weights must be finite and > 0, got 0.0 in example 1"):
        to.data.from_arrays([[0.0], [1.0]], [0, 1], weights=[1.0, 0.0])
    with pytest.raises(DataError, match=r"weights must be floating point of shape \[2\]"):
        to.data.from_arrays([[0.0], [1.0]], [0, 1], weights=[1.0])
    with pytest.raises(DataError, match="needed one number > 0 for each example"):
        to.data.from_arrays([[0.0], [1.0]], [0, 1], weights=["a", "b"])
    with pytest.raises(DataError, match="test_weights without weights"):
        to.data.from_arrays([[0.0], [1.0]], [0, 1], test_x=[[1.0]], test_y=[0], test_weights=[1.0])


def test_server_refuses_example_weights() -> None:
    from turnout_serve.server.run.deployable import check

    for run in (experiment(classification(), class_weights="balanced"), experiment(weighted_data())):
        with pytest.raises(ConfigurationError, match="weights: "):
            check(run)


def test_weights_with_an_overflowing_mean_are_refused() -> None:
    """Division by an infinite mean would make all weights 0."""
    data = classification(dtype=torch.float64)
    with pytest.raises(DataError, match=r"weights: the mean over examples.* divide them by the largest"):
        Simulation(experiment(data, class_weights=(1e308,) * 4))
    full = replace(data.train, weights=torch.full((len(data.train.x),), 1e308, dtype=torch.float64))
    with pytest.raises(DataError, match="weights: the mean over examples"):
        Simulation(experiment(replace(data, train=full)))
