"""Validation examples: held out from training, recorded, and used by everything that chooses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import turnout as to
from turnout.core.checks import ConfigurationError
from turnout.results.measure import Target, accuracy_target
from turnout.results.records import RunRecord

N = 12


def source(rows: int = 300) -> to.data.Source:
    """Return examples that are identified by their first feature."""
    x = np.arange(rows * 4, dtype=np.float64).reshape(rows, 4) / rows
    return to.data.from_arrays(x, np.arange(rows) % 3, name="rows")


def split(validation_fraction: float = 0.2, **options: object) -> to.data.FederatedData:
    return source().split(to.partition.Iid(), N, validation_fraction=validation_fraction, **options)  # type: ignore[arg-type]


def rows(shards: to.data.Shards | None) -> set[float]:
    assert shards is not None
    return set(shards.x[:, 0].tolist())


def test_every_example_is_in_one_split_with_the_requested_fraction() -> None:
    data = split(client_test_fraction=0.2, unseen_clients=2)
    parts = [data.train, data.validation, data.client_test, data.test, data.unseen_train, data.unseen_test]
    assert sum(len(part.x) for part in parts if part is not None) == 300
    assert len(set.union(*map(rows, parts))) == 300
    assert data.validation is not None
    held = data.train.sizes + data.validation.sizes
    assert np.array_equal(data.validation.sizes, np.rint(0.2 * held))


def test_validation_examples_are_taken_from_training() -> None:
    without, data = split(0.0, client_test_fraction=0.2), split(0.2, client_test_fraction=0.2)
    assert without.validation is None
    assert "validation_fraction" not in without.recipe
    assert data.recipe["validation_fraction"] == 0.2
    for name in ("test", "client_test"):
        assert rows(getattr(without, name)) == rows(getattr(data, name))
    assert rows(data.train) | rows(data.validation) == rows(without.train)


def test_client_keeps_at_least_one_training_example() -> None:
    data = source(60).split(to.partition.Iid(), 40, validation_fraction=0.9)
    assert data.train.sizes.min() == 1


def test_fractions_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"validation_fraction: got 1.0, needed a number >= 0 and < 1"):
        split(1.0)


def experiment(data: to.data.FederatedData, **options: object) -> to.Experiment:
    settings = {"rounds": 6, "evaluate_every": 2, "model": to.models.Logistic(), **options}
    return to.Experiment(data=data, **settings)  # type: ignore[arg-type]


def test_validation_is_recorded_and_changes_no_training() -> None:
    data = split(client_test_fraction=0.2)
    result = experiment(data).run()
    last = result.summary()["validation_accuracy"]
    assert data.validation is not None
    with torch.no_grad():
        right = (result.model(data.validation.x).argmax(dim=1) == data.validation.y).double()
    assert result.rounds["validation_accuracy"][-1].as_py() == pytest.approx(float(right.mean()), abs=1e-12)
    assert 0.0 <= last <= 1.0
    by_client = result.clients["validation_accuracy"].to_numpy()
    for k in range(N):
        own = right[data.validation.offsets[k] : data.validation.offsets[k + 1]]
        assert by_client[k] == pytest.approx(float(own.mean()), abs=1e-12)
    again = experiment(replace(data, validation=None)).run()
    weights = zip(again.model.parameters(), result.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in weights)
    assert "validation_accuracy" not in again.rounds.column_names


def test_personal_models_use_their_clients_validation_examples() -> None:
    data = split(client_test_fraction=0.2)
    result = experiment(data, algorithm=to.ditto()).run()
    assert not np.isnan(result.clients["validation_accuracy"].to_numpy()).any()


class Recorded(to.Callback):
    """The rows of a run."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def on_round(self, row: object) -> None:
        self.rows.append(dict(row))  # type: ignore[call-overload]


def test_early_stopping_uses_validation_if_present() -> None:
    for validation, test, ends in ((0.9, 0.1, True), (0.1, 0.9, False), (None, 0.9, True)):
        stopping = to.EarlyStopping(target=0.5)
        row = {"test_accuracy": test} | ({} if validation is None else {"validation_accuracy": validation})
        assert stopping.on_round(row) is ends
    with pytest.raises(ConfigurationError, match="no 'test_accuracy' in an evaluation, which has validation_rmse"):
        to.EarlyStopping(target=0.5).on_round({"validation_rmse": 0.1})


def record(data: to.data.FederatedData) -> RunRecord:
    result = experiment(data).run()
    return RunRecord("fedavg", 0, result.history, {"rounds": 6})


def test_targets_use_validation_if_any_run_has_it() -> None:
    assert accuracy_target([record(split())], 0.5) == Target("validation_accuracy", 0.5)
    assert accuracy_target([record(split(0.0))], 0.5) == Target("test_accuracy", 0.5)


def test_sweep_selects_by_validation(tmp_path: Path) -> None:
    def make(seed: int, lr: float) -> to.Experiment:
        return experiment(split(), algorithm=to.fedavg(to.Sgd(lr=lr)), seed=seed)

    def untold(seed: int, lr: float) -> to.Experiment:
        return experiment(split(0.0), algorithm=to.fedavg(to.Sgd(lr=lr)), seed=seed)

    assert to.sweep(make, {"lr": [0.1, 0.2]}, 1, tmp_path / "a", jobs=1).measure.metric == "validation_accuracy"
    assert to.sweep(untold, {"lr": [0.1, 0.2]}, 1, tmp_path / "b", jobs=1).measure.metric == "test_accuracy"


def whole(validation_clients: int = 3, test_clients: int = 2, **options: object) -> to.data.FederatedData:
    return split(0.0, validation_clients=validation_clients, test_clients=test_clients, **options)


def test_validation_and_test_clients_do_not_train() -> None:
    data = whole(unseen_clients=1)
    assert data.num_clients == N
    assert data.validation is None
    parts = [data.train, data.unseen_validation, data.test, data.unseen_train]
    assert sum(len(part.x) for part in parts if part is not None) == 300
    assert len(set.union(*map(rows, parts))) == 300
    # Of equal size, as all 18 clients are by this partition, so that the clients are whole.
    share = len(data.train.x) // N
    assert data.unseen_validation is not None
    assert data.test is not None
    assert abs(len(data.unseen_validation.x) - 3 * share) <= 3
    assert abs(len(data.test.x) - 2 * share) <= 2
    assert data.recipe["validation_clients"] == 3
    assert data.recipe["test_clients"] == 2


def test_natural_clients_are_in_one_part() -> None:
    ids = np.repeat(np.arange(20), 15)
    x = np.stack([ids, np.arange(300)], axis=1).astype(np.float64)
    natural = to.data.from_arrays(x, np.arange(300) % 3, client_ids=ids)
    data = natural.split(validation_clients=4, test_clients=5, unseen_clients=1)
    parts = [rows(data.train), rows(data.unseen_validation), rows(data.test), rows(data.unseen_train)]
    assert [len(part) for part in parts] == [10, 4, 5, 1]
    assert len(set.union(*parts)) == 20


def test_held_out_clients_do_not_affect_other_choices() -> None:
    before, after = split(0.0, unseen_clients=2, test_fraction=0.0), whole(0, 0, unseen_clients=2, test_fraction=0.0)
    assert torch.equal(before.train.x, after.train.x)
    assert "validation_clients" not in before.recipe


def test_label_flips_cover_validation_clients() -> None:
    plain, flipped = whole(4, 0), whole(4, 0, flip_labels=0.5)
    assert plain.unseen_validation is not None
    assert flipped.unseen_validation is not None
    changed = plain.unseen_validation.y != flipped.unseen_validation.y
    twos = plain.unseen_validation.y != 1  # 1 is its own mirror of three classes
    assert float(changed[twos].double().mean()) == pytest.approx(0.5, abs=0.1)


def test_choices_use_validation_clients_and_never_the_test(tmp_path: Path) -> None:
    data = whole()
    result = experiment(data).run()
    assert data.unseen_validation is not None
    with torch.no_grad():
        right = (result.model(data.unseen_validation.x).argmax(dim=1) == data.unseen_validation.y).double()
    assert result.rounds["validation_accuracy"][-1].as_py() == pytest.approx(float(right.mean()), abs=1e-12)
    assert "validation_accuracy" not in result.clients.column_names
    assert accuracy_target([record(data)], 0.5) == Target("validation_accuracy", 0.5)

    def make(seed: int, lr: float) -> to.Experiment:
        return experiment(data, algorithm=to.fedavg(to.Sgd(lr=lr)), seed=seed)

    assert to.sweep(make, {"lr": [0.1, 0.2]}, 1, tmp_path / "a", jobs=1).measure.metric == "validation_accuracy"


def test_early_stopping_ignores_the_test() -> None:
    """Replacing the labels of the test changes neither the decision nor the rounds."""
    data = whole()
    assert data.test is not None
    other = replace(data, test=replace(data.test, y=(data.test.y + 1) % 3))
    lengths = []
    for each in (data, other):
        result = experiment(each, rounds=30, evaluate_every=1).run(callbacks=[to.EarlyStopping(patience=2)])
        lengths.append(len(result.rounds))
    assert lengths[0] == lengths[1] < 30


def test_invalid_client_fractions_are_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"unseen_clients \+ test_clients: got 20, needed fewer than the 20 clients"
    ):
        to.data.from_arrays(np.zeros((20, 1)), np.zeros(20, dtype=int), client_ids=np.arange(20)).split(
            unseen_clients=10, test_clients=10
        )
    with pytest.raises(ConfigurationError, match=r"validation_clients: got 3 beside validation_fraction=0.2"):
        split(0.2, validation_clients=3)
    with pytest.raises(ConfigurationError, match=r"test_clients: got 2 beside test_fraction=0.5"):
        whole(test_fraction=0.5)
    with pytest.raises(ConfigurationError, match="validation_clients: got -1, needed"):
        whole(-1)
    official = to.data.from_arrays(np.zeros((9, 1)), [0, 1, 2] * 3, test_x=np.zeros((3, 1)), test_y=[0, 1, 2])
    with pytest.raises(ConfigurationError, match="test_clients: got 2, and arrays has an official test split"):
        official.split(to.partition.Iid(), 2, test_clients=2)
    with pytest.raises(
        ConfigurationError,
        match=r"test_fraction: got 0.2, needed None, because arrays has .* write client_test_fraction; to do without",
    ):
        official.split(to.partition.Iid(), 2, test_fraction=0.2)
    assert official.split(to.partition.Iid(), 2, test_clients=2, official_test="pool").test is not None
