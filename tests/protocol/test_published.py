"""Tables of private runs contain only public values and those that epsilon covers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import classification

import turnout as to
from turnout import ConfigurationError
from turnout.comparison.folders import load_record
from turnout.data.shards import Shards
from turnout.pieces.aggregation import PrivateSum
from turnout.protocol import published
from turnout.protocol.published import Published
from turnout.reporting.drawings import holdings
from turnout.reporting.page import settings as settings_of
from turnout.simulation import Simulation

GUIDE = (Path(__file__).parents[2] / "docs/guides/privacy.md").read_text()
PRIVATE = to.average_participating(
    to.Sgd(steps=2), also=(PrivateSum(noise_multiplier=2.0, cohort=3), to.selection.Uniform(3))
)
BY_DATA = to.compose(
    to.weighting.ExamplesUpTo(30),
    to.weighting.DivideByParticipants(),
    PrivateSum(noise_multiplier=2.0, cohort=8),
    to.Sgd(steps=2),
)
SAMPLED = to.average_all(
    to.Sgd(steps=2), also=(PrivateSum(noise_multiplier=2.0, sampling_rate=0.4), to.selection.Poisson(0.4))
)
SPOILT = 2


def neighbor(data):
    """The same federation, in which one client has features that train to NaN and labels that are all the same."""
    x, y = data.train.x.clone(), data.train.y.clone()
    mine = slice(*data.train.offsets[SPOILT : SPOILT + 2])
    x[mine], y[mine] = 1e30, 0
    return replace(data, train=Shards(x, y, data.train.offsets))


def run(algorithm, data=None, **options):
    """A run of four rounds; its history, and the rows that callbacks, trackers and progress bars get."""
    rows = []

    class Rows(to.Callback):
        def on_round(self, row):
            rows.append(row)

    experiment = to.Experiment(
        data or classification(), to.models.Logistic(), algorithm, rounds=4, evaluate_every=2, **options
    )
    return experiment.run(callbacks=[Rows()]), rows


def known(table):
    """The columns that hold anything."""
    return {name for name in table.column_names if table[name].null_count < len(table)}


@pytest.mark.parametrize("algorithm", [PRIVATE, BY_DATA, SAMPLED], ids=["timing", "own data", "sampled"])
def test_client_with_nan_changes_only_figures_of_noised_models(algorithm):
    """The attack: compare all figures of the tables of two neighboring federations."""
    (one, rows), (other, other_rows) = (
        run(algorithm, data, record_weights=True) for data in (classification(), neighbor(classification()))
    )
    of_models = {"update_norm", "seconds", *(name for name in one.rounds.column_names if name.startswith("test_"))}
    assert known(one.rounds) == known(other.rounds)
    for name in known(one.rounds) - of_models:
        assert one.rounds[name].to_pylist() == other.rounds[name].to_pylist(), name
    for name in ("clients", "participation"):  # as text, in which NaN equals NaN
        assert str(getattr(one, name).to_pylist()) == str(getattr(other, name).to_pylist())
    for row, other_row in zip(rows, other_rows, strict=True):
        assert row.keys() == other_row.keys() <= known(one.rounds)
    assert all(value.isfinite().all() for value in other.state_dict().values())


def test_omitted_columns_follow_from_sampling_and_weights():
    timing, own, sampled = (run(algorithm, record_weights=True)[0] for algorithm in (PRIVATE, BY_DATA, SAMPLED))
    for result in (timing, own, sampled):
        assert not known(result.rounds) & {"local_loss", "num_dropped", "train_loss", "train_accuracy"}
        assert not known(result.clients) & {"num_examples", "train_loss", "test_loss", "fairness"}
        assert {"epsilon", "test_loss", "update_norm"} <= known(result.rounds)
    weights = {"weight_min", "weight_mean", "weight_max", "weight_sum"}
    assert known(timing.rounds) >= {"num_participants", "bytes_up", *weights}
    assert known(own.rounds) >= {"num_participants", "bytes_up"}
    assert not known(own.rounds) & weights
    assert not known(sampled.rounds) & {"num_participants", "bytes_up", "bytes_down", "seconds", *weights}
    assert known(timing.clients) >= {"participations", "realized_rate", "weight"}
    assert not known(sampled.clients) & {"participations", "realized_rate", "mean_interval", "weight"}
    assert [len(result.participation) > 0 for result in (timing, own, sampled)] == [True, True, False]
    assert "weight" in known(timing.participation)
    assert "weight" not in known(own.participation)
    assert "num_participants" not in sampled.summary()


def test_runs_without_privacy_record_everything():
    for algorithm in (to.fedavg(), to.fedau(also=(PrivateSum(noise_multiplier=0.0),))):
        everything = Published(algorithm)
        assert everything.row({"local_loss": 1.0, "mine": 2}) == {"local_loss": 1.0, "mine": 2}
        assert everything.clients({"num_examples": [1]}) == {"num_examples": [1]}


def test_unknown_columns_are_omitted():
    assert Published(PRIVATE).row({"mine": 1.0, "epsilon": 2.0}) == {"epsilon": 2.0}


def test_guide_names_all_published_columns():
    names = (value for name, value in vars(published).items() if name.startswith(("_OF", "_CLIENTS")))
    for column in set().union(*names) - {"round", "client", "name", "byzantine"}:
        assert f"`{column}`" in GUIDE, column


def test_private_run_does_not_stop_because_of_clients_data():
    """All reports are invalid; the run continues with noise, as with clients without data."""
    data = classification()
    data = replace(data, train=Shards(data.train.x * 1e30, data.train.y, data.train.offsets))
    simulation = Simulation(to.Experiment(data, to.models.Logistic(), PRIVATE, rounds=8, evaluate_every=8))
    for _ in range(7):
        simulation.round()
    assert np.isfinite(simulation.row["update_norm"])


def test_settings_of_a_private_run_reveal_no_data(tmp_path):
    """The attack: compare trackers, reports and model cards of federations that differ in one client."""
    settings, pages = [], []

    class Settings(to.Callback):
        def on_start(self, config, folder):
            del folder
            settings.append(json.dumps(config))

    for data in (classification(), neighbor(classification(sizes=(40, 5, 1, 33, 48, 20, 9, 64)))):
        data = replace(data, client_test=data.train)
        experiment = to.Experiment(data, to.models.Logistic(), PRIVATE, rounds=1)
        folder = tmp_path / str(len(data.train.x))
        experiment.run(folder, callbacks=[Settings()]).export(folder / "model.safetensors", card=True)
        record, card = load_record(folder), (folder / "model-card.md").read_text()
        assert holdings([record], data) is None
        assert str(len(data.train.x)) not in card
        pages.append((settings_of([record]), card.partition("## Settings")[2]))
    assert settings[0] == settings[1]
    assert pages[0] == pages[1]
    other = to.Experiment(classification(), to.models.Logistic(), to.fedavg(), rounds=1)
    other.run(callbacks=[Settings()])
    assert json.loads(settings[2])["data"]["num_examples"] == len(classification().train.x)


def test_opting_by_the_model_is_refused():
    population = to.Population(requirement=to.requirement.WarmUp(2), opting=to.behavior.Opting())
    with pytest.raises(
        ConfigurationError, match="opting: whether a client opts in depends on the model's loss on its data"
    ):
        to.Experiment(classification(), to.models.Logistic(), PRIVATE, population, rounds=2)


@pytest.mark.parametrize(
    ("pace", "dropout"),
    [
        (to.pace.Buffered(buffer_size=2), None),
        (to.pace.Rounds(deadline=20.0), None),
        (to.pace.Rounds(), to.behavior.Dropout(0.1)),
    ],
    ids=["buffered", "deadline", "dropout"],
)
def test_epochs_are_refused_where_participation_depends_on_durations(pace: to.pace.Pace, dropout: Any) -> None:
    """The attack: the examples of one client decide in which steps it and all others take part, which is published."""
    population = to.Population(speed=to.speed.Speed(compute=to.delay.Constant(1.0)), dropout=dropout)
    local, also = to.Sgd(steps=None, epochs=1), (PrivateSum(noise_multiplier=2.0, cohort=2),)
    options: dict[str, Any] = {"population": population, "pace": pace, "rounds": 2}
    with pytest.raises(ConfigurationError, match="epochs: a client with more examples works longer"):
        to.Experiment(classification(), to.models.Logistic(), to.fedbuff(local, also=also), **options)
    to.Experiment(classification(), to.models.Logistic(), to.fedbuff(to.Sgd(steps=2), also=also), **options)
    to.Experiment(classification(), to.models.Logistic(), to.fedbuff(local), **options)


def test_durations_do_not_reveal_numbers_of_examples():
    """The attack: federations that differ in the number of examples of one client, with epochs or steps."""
    slow = to.Population(speed=to.speed.Speed(compute=to.delay.Constant(1.0)))
    more = classification(sizes=(40, 5, 1600, 33, 48, 20, 9, 64))
    for local, told in ((to.Sgd(steps=2), True), (to.Sgd(steps=None, epochs=1), False)):
        algorithm = to.average_all(local, also=(PrivateSum(noise_multiplier=2.0),))
        one, other = (run(algorithm, data, population=slow)[0].rounds for data in (classification(), more))
        assert ("simulated_seconds" in known(one)) == told
        assert ("seconds" in known(one)) == told
        if told:
            assert one["simulated_seconds"].to_pylist() == other["simulated_seconds"].to_pylist()


def test_figures_of_personal_models_are_omitted():
    """The attack: personal models have no noise, and their scores reveal data of their clients."""
    algorithm = to.ditto(to.Sgd(steps=2), cohort_size=3, also=(PrivateSum(noise_multiplier=2.0, cohort=3),))
    data = [classification(), neighbor(classification())]
    (one, rows), (other, _) = (run(algorithm, replace(it, test=None, client_test=data[0].train)) for it in data)
    assert {"epsilon", "update_norm"} <= known(one.rounds)
    for name in known(one.rounds) - {"seconds"}:
        assert one.rounds[name].to_pylist() == other.rounds[name].to_pylist() or name == "update_norm", name
    assert not any(name.startswith("test_") for row in rows for name in row)
    assert "test_accuracy" not in known(one.clients)


def test_weights_by_examples_of_all_clients_are_refused():
    """The attack: with balanced weights, other labels of one client change the updates of all others."""
    data = classification()
    options: dict[str, Any] = {"model": to.models.Logistic(), "algorithm": PRIVATE, "rounds": 2}
    for weights in ("balanced", (1.0, 2.0, 3.0, 4.0)):
        with pytest.raises(ConfigurationError, match="class_weights: they are divided by their mean over the examples"):
            to.Experiment(data, class_weights=weights, **options)
    train = replace(data.train, weights=torch.ones(len(data.train.x), dtype=torch.float64))
    with pytest.raises(ConfigurationError, match="weights of examples: they are divided by their mean"):
        to.Experiment(replace(data, train=train), **options)
    options["algorithm"] = to.fedavg()
    to.Experiment(data, class_weights="balanced", **options)
