"""Requirements of clients, by their own models or by given numbers."""

import numpy as np
import pytest

from turnout import ConfigurationError, DataError, Sgd
from turnout.population.requirement import GivenRequirement, WarmUp

SOLO = {
    "train_loss": np.array([0.5, 0.1]),
    "train_accuracy": np.array([0.8, 0.9]),
    "test_loss": np.array([0.6, 0.4]),
    "test_accuracy": np.array([0.7, 0.6]),
}


def test_requirement_by_own_model_is_its_result_on_each_split():
    bound = WarmUp().bind(2, SOLO)
    assert bound.of("train") is SOLO["train_loss"]
    assert bound.of("test") is SOLO["test_loss"]
    assert bound.solo_accuracy is SOLO["test_accuracy"]
    accuracy = WarmUp(measure="accuracy").bind(2, SOLO)
    assert accuracy.of("train") is SOLO["train_accuracy"]
    assert accuracy.of("test") is SOLO["test_accuracy"]


def test_clients_without_tests_have_no_test_requirement():
    bound = WarmUp().bind(2, {name: SOLO[name] for name in ("train_loss", "train_accuracy")})
    assert bound.of("test") is None
    assert bound.solo_accuracy is None


def test_gap_is_the_shortfall_for_either_direction_of_a_measure():
    loss, accuracy = np.array([0.4, 0.4]), np.array([0.85, 0.85])
    by_loss, by_accuracy = WarmUp().bind(2, SOLO), WarmUp(measure="accuracy").bind(2, SOLO)
    np.testing.assert_allclose(by_loss.gap(loss, accuracy, by_loss.train), [-0.1, 0.3])
    np.testing.assert_allclose(by_accuracy.gap(loss, accuracy, by_accuracy.train), [-0.05, 0.05])


def test_own_model_uses_the_algorithms_local_rule_without_memory():
    local = Sgd(lr=0.3, steps=None, epochs=2, batch_size=8, weight_decay=0.1)
    assert WarmUp().solo(local) == Sgd(lr=0.3, steps=100, batch_size=8, weight_decay=0.1, sampling="fresh")
    own = WarmUp(steps=7, lr=0.01, batch_size=64).solo(local)
    assert own == Sgd(lr=0.01, steps=7, batch_size=64, weight_decay=0.1, sampling="fresh")
    assert WarmUp().solo(Sgd(sampling="replacement")) == Sgd(steps=100, sampling="replacement")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, r"steps: got 0, needed a whole number >= 1"),
        ({"measure": "los"}, r"unknown value of measure 'los'"),
        ({"lr": -1.0}, r"lr: got -1\.0, needed a finite number > 0"),
        ({"batch_size": 0}, r"batch_size: got 0, needed a whole number >= 1"),
    ],
)
def test_invalid_warm_ups_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        WarmUp(**options)


def test_given_numbers_apply_to_both_splits():
    bound = GivenRequirement((0.5, 2)).bind(2, None)
    assert bound is not None
    assert bound.train.tolist() == [0.5, 2.0]
    assert bound.test is bound.train
    assert bound.solo_accuracy is None
    assert GivenRequirement((0.5, 2)).solo(Sgd()) is None


def test_unseen_clients_have_only_explicit_requirements():
    given = GivenRequirement((0.5, 2), unseen=(0.1, 0.2, 0.3))
    assert GivenRequirement((0.5, 2)).bind(3, None, unseen=True) is None
    bound = given.bind(3, None, unseen=True)
    assert bound is not None
    assert bound.train.tolist() == [0.1, 0.2, 0.3]
    with pytest.raises(ConfigurationError, match="3 requirements were given for 4 unseen clients"):
        given.bind(4, None, unseen=True)


def test_file_may_list_clients_in_any_order(tmp_path):
    path = tmp_path / "rho.csv"
    path.write_text("client,requirement\n2,0.3\n0,0.1\n1,0.25\n")
    bound = GivenRequirement(str(path), measure="accuracy").bind(3, None)
    assert bound is not None
    assert bound.train.tolist() == [0.1, 0.25, 0.3]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("0,0.1\n2,0.1", "client 1 has 0 rows; needed one for each of the clients 0 to 2, and no others"),
        ("0,0.1\n1,0.1\n2,1\n1,3", "client 1 has 2 rows"),
        ("0,0.1\n1,0.1\n2,1\n7,3", "client 7 has 1 rows"),
        ("0,0.1\n1,-2\n2,1", "row 2: got -2.* as 'requirement', needed a finite number >= 0"),
    ],
)
def test_invalid_files_raise(tmp_path, rows, message):
    path = tmp_path / "rho.csv"
    path.write_text("client,requirement\n" + rows)
    with pytest.raises(DataError, match=message):
        GivenRequirement(str(path)).bind(3, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"table": (0.1, -1.0)}, r"requirement of client 1: got -1\.0, needed a finite number >= 0"),
        ({"table": (0.1, float("inf"))}, r"requirement of client 1: got inf, needed a finite number >= 0"),
        ({"table": (1.1,), "measure": "accuracy"}, r"client 0: got 1\.1, needed a number from 0 to 1"),
        ({"table": (True,)}, r"requirement of client 0: got True"),
        ({"table": None}, r"table: got None, needed a path to \.csv or \.parquet, or a number for each client"),
        ({"table": "rho.txt"}, r"requirements rho\.txt: needed a file that ends in \.csv or \.parquet"),
        ({"table": (0.1,), "unseen": 3}, r"unseen: got 3, needed a path"),
        ({"table": (0.1,), "measure": "acc"}, r"unknown value of measure 'acc'"),
    ],
)
def test_invalid_numbers_raise(given, message):
    with pytest.raises(ConfigurationError, match=message):
        GivenRequirement(**given)


def test_number_of_requirements_must_match_clients():
    with pytest.raises(ConfigurationError, match="2 requirements were given for 3 clients"):
        GivenRequirement((0.1, 0.2)).bind(3, None)
