"""The baselines: each client alone, and the examples of all clients in one place."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import turnout as to
from turnout.core.checks import ConfigurationError
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.pieces.aggregation import Median
from turnout.pieces.guard import Clip
from turnout.pieces.personalization import Ditto, Personal
from turnout.pieces.selection.one_place import OnePlace
from turnout.population import Speed
from turnout.population.availability import Bernoulli
from turnout.protocol.fits import check_machines

from ..tiny import classification

SGD = to.Sgd(lr=0.1, steps=3, batch_size=4)


def held(data: FederatedData, rows: slice) -> FederatedData:
    """Return a federation of one client, with these examples."""
    return FederatedData("one", Shards.pooled(data.train.x[rows], data.train.y[rows]), data.num_classes)


def run(data: FederatedData, algorithm: to.Algorithm, **options: Any) -> to.Result:
    return to.Experiment(data=data, model=to.models.Logistic(), algorithm=algorithm, rounds=6, seed=3, **options).run()


def test_centralized_equals_a_federation_of_one_client_with_all_examples_bit_for_bit() -> None:
    data = classification(features=5, classes=3)
    pooled = run(data, to.centralized(SGD)).state_dict()
    alone = run(held(data, slice(None)), to.fedavg(SGD)).state_dict()
    assert pooled.keys() == alone.keys()
    assert all(torch.equal(pooled[name], alone[name]) for name in pooled)


def test_centralized_passes_over_all_examples_in_an_epoch() -> None:
    data = classification(features=5, classes=3)
    epochs = replace(SGD, steps=None, epochs=1)
    pooled, alone = run(data, to.centralized(epochs)), run(held(data, slice(None)), to.fedavg(epochs))
    assert all(torch.equal(value, alone.state_dict()[name]) for name, value in pooled.state_dict().items())


def test_centralized_does_not_depend_on_the_population_or_the_pace() -> None:
    data = classification(features=5, classes=3)
    absent = to.Population(availability=Bernoulli(mean=0.1), speed=Speed(compute=to.delay.Uniform(1, 2)))
    for options in ({"population": absent}, {"pace": to.pace.Buffered(buffer_size=2)}):
        absent_or_not = run(data, to.centralized(SGD), **options)
        assert torch.equal(
            torch.cat([value.flatten() for value in absent_or_not.state_dict().values()]),
            torch.cat([value.flatten() for value in run(data, to.centralized(SGD)).state_dict().values()]),
        )


def test_clients_of_centralized_are_evaluated_on_their_own_examples() -> None:
    data = classification(features=5, classes=3)
    result = run(data, to.centralized(SGD))
    accuracies = [
        (result.model(x).argmax(1) == y).double().mean().item()
        for x, y in map(data.train.client, range(data.num_clients))
    ]
    np.testing.assert_allclose(result.history.client_column("train_accuracy"), accuracies)
    assert result.clients["num_examples"].to_pylist() == data.train.sizes.tolist()


def test_local_trains_each_client_as_if_it_were_alone() -> None:
    data = classification(features=5, classes=3)
    result = run(data, to.algorithms.local(SGD))
    alone = run(held(data, slice(0, int(data.train.sizes[0]))), to.fedavg(SGD)).state_dict()
    own = result.state_dict(0)
    assert all(torch.allclose(own[name], alone[name], atol=1e-6) for name in alone)


def test_local_takes_steps_only_in_rounds_of_participation() -> None:
    data = classification(features=5, classes=3)
    absent = to.Population(availability=Bernoulli(rates=(1.0, *[1e-9] * (data.num_clients - 1))))
    result = run(data, to.algorithms.local(SGD), population=absent)
    initial = to.models.Logistic().build(data.input_shape, data.num_outputs, 3).state_dict()
    assert not torch.equal(result.state_dict(0)["output.weight"], initial["output.weight"])
    assert torch.equal(result.state_dict(1)["output.weight"], initial["output.weight"])


@pytest.mark.parametrize("piece", [Clip(1.0), Median(), Personal("head"), Ditto(), to.local.Scaffold()])
def test_pieces_that_act_on_single_clients_are_refused_in_one_place(piece: to.pieces.Guard) -> None:
    name = type(piece).__name__
    with pytest.raises(ConfigurationError, match=f"no clients on which {name} could act: leave it out"):
        to.compose(SGD, OnePlace(), piece)


def test_real_machines_refuse_one_place() -> None:
    with pytest.raises(
        ConfigurationError, match=r"OnePlace: it trains on the examples of all clients in one place.*: simulate it"
    ):
        check_machines(to.centralized())


def test_names_of_the_baselines() -> None:
    assert {"local", "centralized"} <= set(to.ALGORITHMS)
    assert to.ALGORITHMS["local"] is to.algorithms.local
    assert to.centralized().name == "centralized"
    assert to.algorithms.local().name == "local"


def test_selection_and_cohort_size_have_no_effect_in_one_place() -> None:
    algorithm = to.centralized(SGD, cohort_size=10, also=(to.selection.Uniform(5),))
    assert algorithm.selection == OnePlace()


@pytest.mark.parametrize("algorithm", [to.centralized(SGD), to.algorithms.local(SGD, cohort_size=3)])
def test_resumed_baselines_equal_uninterrupted_ones_whatever_the_engine(
    algorithm: to.Algorithm, tmp_path: Path
) -> None:
    data = classification(features=5, classes=3)
    experiment = to.Experiment(data=data, model=to.models.Logistic(), algorithm=algorithm, rounds=5, seed=3)
    whole = experiment.run()
    with pytest.raises(to.Interrupted):
        experiment.run(tmp_path / "run", checkpoint_every=1, callbacks=[to.AfterRound(stop_after_two)])
    resumed = experiment.run(tmp_path / "run", resume=True)
    other = replace(experiment, engine="one_by_one").run()
    assert resumed.rounds.drop_columns("seconds").equals(whole.rounds.drop_columns("seconds"))
    assert str(resumed.clients.to_pylist()) == str(whole.clients.to_pylist())  # as text, in which NaN equals NaN
    for client in (None,) if algorithm.personal is None else (0, 4):
        for name, value in whole.state_dict(client).items():
            assert torch.equal(resumed.state_dict(client)[name], value)
            assert torch.allclose(other.state_dict(client)[name], value, atol=1e-5)


def stop_after_two(row: Mapping[str, Any]) -> None:
    if row["round"] == 2:
        raise to.Interrupted("stopped")
