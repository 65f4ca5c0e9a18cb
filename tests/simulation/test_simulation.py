"""Synchronous simulation."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from turnout import (
    CheckpointError,
    ConfigurationError,
    Experiment,
    Population,
    Sgd,
    average_participating,
    fedau,
    fedavg,
    fedbuff,
    load,
    mifa,
    models,
)
from turnout.base import KnownInAdvance
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.pieces.local import TimeBudget
from turnout.population import Speed, delay
from turnout.population.availability import Bernoulli, Everyone, Trace
from turnout.protocol.pace import Buffered, Rounds
from turnout.record.rows import weights_of
from turnout.simulation import Simulation, running

from ..phases import next_cohort, train
from ..tiny import report

P = 16 * 4 + 4  # multinomial logistic regression


def simulation_of(data, algorithm=None, **options):
    options = {"model": models.Logistic(), "population": Population(Bernoulli(mean=0.5)), "rounds": 6, **options}
    return Simulation(Experiment(data, algorithm=algorithm or fedau(cutoff=3), **options))


def test_round_selects_trains_and_steps(tiny):
    simulation = simulation_of(tiny, average_participating(), population=Population(Trace(((1, 0, 1), (4, 0, 1)))))
    start = simulation.state.params.clone()
    assert list(next_cohort(simulation)) == [1, 4]
    report = train(simulation_of(tiny, average_participating()), np.array([1, 4]))
    simulation.round()
    torch.testing.assert_close(simulation.state.params, start + report.updates.gathered().mean(dim=0))
    assert simulation.state.version == 1
    assert simulation.history.participation["client"].to_pylist() == [1, 4]


def test_rounds_are_recorded(tiny):
    simulation = simulation_of(tiny, evaluate_every=4)
    for _ in range(6):
        simulation.round()
    rounds = simulation.history.rounds.to_pydict()
    assert rounds["round"] == [1, 2, 3, 4, 5, 6]
    assert [value is not None for value in rounds["test_accuracy"]] == [False, False, False, True, False, True]
    assert all(seconds > 0 for seconds in rounds["seconds"])
    for n, low, mean, high, total in zip(
        *(rounds[k] for k in ("num_participants", "weight_min", "weight_mean", "weight_max", "weight_sum")), strict=True
    ):
        assert 0 < low <= mean <= high
        assert n * mean == pytest.approx(total)
    assert rounds["weight_mean"][0] == 1 / 8  # fedau starts with omega = 1


def test_bytes_equal_those_of_messages(tiny):
    """Down: parameters and version. Up: parameters, the loss, and three integers. Also the server's tables."""
    simulation = simulation_of(tiny, mifa(), population=Population(Everyone()))
    simulation.round()
    row = simulation.history.rounds.to_pylist()[-1]
    assert row["bytes_down"] == 8 * (4 * P + 8)
    assert row["bytes_up"] == 8 * (4 * P + 4 + 24)
    assert row["server_bytes"] == 4 * P + 8 * 4 * P + 8 * P  # the model, the table, its mean in float64
    small = simulation_of(tiny, fedau(), population=Population(Everyone()))
    small.round()
    assert small.history.rounds.to_pylist()[-1]["server_bytes"] == 4 * P + 3 * 8 * 8


def test_empty_round_is_recorded_without_change(tiny):
    simulation = simulation_of(tiny, fedavg(), population=Population(Trace(((0, 3, 4),))))
    start = simulation.state.params.clone()
    simulation.round()
    row = simulation.history.rounds.to_pylist()[-1]
    assert torch.equal(simulation.state.params, start)
    assert row["bytes_up"] == row["bytes_down"] == 0
    assert simulation.history.rounds["num_participants"].to_pylist() == [0]
    assert simulation.history.rounds["local_loss"].to_pylist() == [None]
    assert simulation.history.rounds["weight_mean"].to_pylist() == [None]


def test_clients_without_a_step_have_no_loss(tiny):
    def recorded(seconds_per_step):
        local = Sgd(lr=0.1, steps=TimeBudget(1.0), batch_size=4)
        speed = Speed(compute=delay.Constant(seconds_per_step), spread=1.0)
        one, other = (
            simulation_of(tiny, fedavg(local=local), population=Population(Everyone(), speed=speed)) for _ in range(2)
        )
        one.round()
        return one.history.rounds["local_loss"].to_pylist()[0], train(other, np.arange(8))

    loss, reports = recorded(1.0)
    trained = torch.from_numpy(reports.num_steps > 0)
    assert 0 < trained.sum() < 8
    assert loss == pytest.approx(float(reports.seen["loss"][trained].mean()))
    assert recorded(1000.0)[0] is None


def test_weights_of_a_step_by_client():
    """The sum for two reports of a client, and zero for dropped reports and rounds."""
    delta = torch.ones(5, 2)
    delta[[1, 4]] = torch.nan
    reports = report([3, 3, 5, 5, 7], delta, num_params=2)
    weights = weights_of(reports, {"num_dropped": 2, "weights": torch.tensor([0.25, 0.5, 0.25])}, np.array([3, 5, 7]))
    np.testing.assert_array_equal(weights, [0.25, 0.75, np.nan])
    lost = weights_of(reports, {"num_dropped": 5, "weights": torch.ones(3)}, np.array([3, 5, 7]))
    assert np.isnan(lost).all()


@pytest.mark.parametrize(
    "pace", [Rounds(), Buffered(buffer_size=3, concurrency=5, waits="never")], ids=["rounds", "buffered"]
)
def test_weights_of_clients_are_recorded_on_request(tiny, tmp_path, pace):
    population = Population(speed=Speed(compute=delay.Uniform(1, 2), spread=1.0))
    made = Experiment(tiny, models.Logistic(), fedbuff(), population, pace, rounds=6, record_weights=True)
    whole = made.run(tmp_path / "whole").participation
    assert whole.column_names == ["round", "client", "weight"]
    sums = whole.group_by("round").aggregate([("weight", "sum")]).sort_by("round")["weight_sum"].to_numpy()
    np.testing.assert_allclose(sums, made.run().rounds["weight_sum"].to_numpy())
    replace(made, rounds=3).run(tmp_path / "parts")
    assert made.run(tmp_path / "parts", resume=True).participation.equals(whole)
    assert load(tmp_path / "parts").participation.equals(whole)
    assert replace(made, record_weights=False).run().participation.equals(whole.drop_columns("weight"))


def test_record_weights_is_a_boolean(tiny):
    with pytest.raises(ConfigurationError, match="record_weights: got 1, needed True or False"):
        simulation_of(tiny, record_weights=1)


def test_evaluation_uses_all_examples_without_dropout(tiny):
    simulation = simulation_of(tiny, model=models.Mlp(hidden=(8,), dropout=0.5))
    scores = simulation.evaluate()
    module = simulation.experiment.build_model().eval()
    for name, shards in (("train", tiny.train), ("test", tiny.test)):
        with torch.no_grad():
            outputs = module(shards.x)
        assert scores[f"{name}_loss"] == pytest.approx(float(nn.functional.cross_entropy(outputs, shards.y)), rel=1e-5)
        assert scores[f"{name}_accuracy"] == pytest.approx(float((outputs.argmax(dim=1) == shards.y).float().mean()))


def test_evaluation_on_a_subset(tiny):
    few = simulation_of(tiny, evaluation_examples=10).evaluate()
    assert (10 * few["train_accuracy"]) % 1 == pytest.approx(0, abs=1e-9)
    assert simulation_of(tiny, evaluation_examples=10_000).evaluate() == simulation_of(tiny).evaluate()


def test_table_of_clients_has_its_columns(tiny):
    own_test = replace(tiny, test=None, client_test=tiny.train, client_names=tuple("abcdefgh"))
    simulation = simulation_of(own_test, evaluate_every=6)
    for _ in range(6):
        simulation.round()
    simulation.finish()
    clients = simulation.history.clients.to_pydict()
    came = np.bincount(simulation.history.participation["client"].to_numpy(), minlength=8)
    assert clients["name"] == list("abcdefgh")
    assert clients["num_examples"] == tiny.train.sizes.tolist()
    assert clients["participations"] == came.tolist()
    np.testing.assert_allclose(clients["realized_rate"], came / 6)
    assert clients["known_rate"] == [0.5] * 8
    piece = simulation.experiment.algorithm.weighting[0]
    assert isinstance(piece, KnownInAdvance)
    expected = piece.client_weights(6, simulation.state.slots["weighting.0"], simulation.server.federation)
    assert expected is not None
    assert clients["weight"] == list(expected)
    assert clients["test_loss"] == clients["train_loss"]
    overall = simulation.evaluate()
    sizes = tiny.train.sizes / tiny.train.sizes.sum()
    assert np.dot(clients["train_accuracy"], sizes) == pytest.approx(overall["train_accuracy"])
    assert np.dot(clients["train_loss"], sizes) == pytest.approx(overall["train_loss"])


def test_weights_that_depend_on_reports_are_omitted(tiny):
    simulation = simulation_of(tiny, fedavg(), rounds=1)
    simulation.round()
    simulation.finish()
    assert simulation.history.clients["weight"].null_count == 8


def test_float64_models_train_in_float64(tiny):
    double = replace(tiny, train=replace(tiny.train, x=tiny.train.x.double()), test=None)
    simulation = simulation_of(double, model=nn.Linear(16, 4).double())
    simulation.round()
    assert simulation.state.params.dtype == torch.float64


def test_incompatible_model_is_refused_at_the_start(tiny):
    with pytest.raises(ConfigurationError, match=r"the model does not fit the data: inputs \(16, 16\)"):
        simulation_of(tiny, model=nn.Linear(15, 4))


def test_model_with_too_few_outputs_is_refused_at_the_start():
    x, y = torch.randn(200, 3), torch.zeros(200, dtype=torch.int64)
    y[150] = 4
    data = FederatedData("late", Shards(x, y, np.array([0, 100, 200])), num_classes=5)
    with pytest.raises(ConfigurationError, match=r"the model does not fit the data: it has 4 outputs for 5 classes"):
        simulation_of(data, model=nn.Linear(3, 4))


def test_client_too_large_to_shuffle_is_refused_with_a_remedy():
    shards = Shards(torch.zeros(2**22, 1), torch.zeros(2**22, dtype=torch.int64), np.array([0, 2**22]))
    data = FederatedData("large", shards, num_classes=2)
    simulation = simulation_of(
        data, average_participating(Sgd(sampling="replacement")), population=Population(Everyone())
    )
    assert len(train(simulation, np.array([0]))) == 1
    with pytest.raises(ConfigurationError, match="sampling='replacement'"):
        train(simulation_of(data, population=Population(Everyone())), np.array([0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm": fedau(cutoff=4)}, "algorithm.weighting.0.cutoff: 3 and 4"),
        ({"algorithm": fedau(Sgd(lr=0.2), cutoff=3)}, "algorithm.local.lr: 0.1 and 0.2"),
        ({"model": models.Mlp(hidden=(3,))}, "model.*model.kind: 'Logistic' and 'Mlp'"),
        ({"seed": 1}, "seed: 0 and 1"),
        ({"population": Population(Bernoulli(mean=0.4))}, "population.availability.mean: 0.5 and 0.4"),
        ({"engine": "one_by_one"}, "engine: 'auto' and 'one_by_one'"),
    ],
)
def test_checkpoint_of_another_experiment_is_refused_with_the_difference(tiny, tmp_path, change, message):
    running.save_simulation(simulation_of(tiny), tmp_path)
    algorithm = change.pop("algorithm", None)
    with pytest.raises(CheckpointError, match=rf"is of another experiment \(there, and here\): {message}"):
        running.restore(simulation_of(tiny, algorithm, **change), tmp_path)


def test_checkpoint_of_other_data_or_model_is_refused(tiny, tmp_path):
    running.save_simulation(simulation_of(tiny), tmp_path / "one")
    swapped = replace(tiny, train=replace(tiny.train, y=tiny.train.y.flip(0)))
    with pytest.raises(CheckpointError, match=r"data\.crc32: \d+ and \d+"):
        running.restore(simulation_of(swapped), tmp_path / "one")
    scaled = replace(tiny, train=replace(tiny.train, x=tiny.train.x * 1.01))
    with pytest.raises(CheckpointError, match=r"data\.inputs: .* and "):
        running.restore(simulation_of(scaled), tmp_path / "one")
    rounded = replace(tiny, train=replace(tiny.train, x=tiny.train.x * (1 + 1e-7)))  # as another machine may have it
    running.restore(simulation_of(rounded), tmp_path / "one")
    running.save_simulation(simulation_of(tiny, model=nn.Linear(16, 4)), tmp_path / "two")
    with pytest.raises(CheckpointError, match=r"model\.crc32: \d+ and \d+"):
        running.restore(simulation_of(tiny, model=nn.Linear(16, 4)), tmp_path / "two")
    with pytest.raises(CheckpointError, match=r"model\.parameters\.bias: \[4\] and None"):
        running.restore(simulation_of(tiny, model=nn.Linear(16, 4, bias=False)), tmp_path / "two")
