"""Checks of arguments, and their errors."""

import math

import numpy as np
import pytest
from tests.tiny import classification

import turnout as to
from turnout.core.checks import (
    CheckpointError,
    ConfigurationError,
    DataError,
    TurnoutError,
    count,
    known_name,
    nearest,
    not_negative,
    positive,
    probability,
    refuse,
    shown,
)
from turnout.core.random import stream


def test_errors_derive_from_one_class_and_from_builtins():
    for error, kind in ((ConfigurationError, ValueError), (DataError, ValueError), (CheckpointError, RuntimeError)):
        assert issubclass(error, TurnoutError)
        assert issubclass(error, kind)


def test_refusal_has_value_requirement_and_correction():
    assert str(refuse("cutoff", given=0, needed="a whole number >= 1")) == "cutoff: got 0, needed a whole number >= 1"
    assert str(refuse("a", given="x", needed="y", instead="Write y")) == "a: got 'x', needed y. Write y"


def test_unknown_name_suggests_the_nearest():
    assert known_name("algorithm", "fedau", ["fedavg", "fedau"]) == "fedau"
    with pytest.raises(
        ConfigurationError, match=r"unknown algorithm 'fedua': did you mean 'fedau'\? \(known: fedau, mifa\)"
    ):
        known_name("algorithm", "fedua", ["mifa", "fedau"])
    assert nearest("zzz", ["b", "a"]) == "known: a, b"
    assert nearest("fedua", ["fedau", "fednu", "fedavg"]).startswith("did you mean 'fedau'?"), "exchanged letters"
    assert nearest("batchsize", ["batch_size", "steps"]).startswith("did you mean 'batch_size'?")
    assert nearest("zzz", []) == "known: "


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "1", None, True])
def test_positive_accepts_and_refuses(bad):
    positive("lr", 0.1)
    with pytest.raises(ConfigurationError, match=r"lr: got .*, needed a finite number > 0"):
        positive("lr", bad)


@pytest.mark.parametrize("bad", [-1e-9, math.nan, math.inf, "1", None, True])
def test_not_negative_accepts_and_refuses(bad):
    not_negative("mu", 0)
    with pytest.raises(ConfigurationError, match=r"mu: got .*, needed a finite number >= 0"):
        not_negative("mu", bad)


@pytest.mark.parametrize("bad", [0, -1, 1.0, "3", None, True, math.nan])
def test_count_accepts_and_refuses(bad):
    count("rounds", 1)
    count("rounds", np.int64(5))  # type: ignore[arg-type]
    count("seed", 0, least=0)
    with pytest.raises(ConfigurationError, match=r"rounds: got .*, needed a whole number >= 1. Say so"):
        count("rounds", bad, instead="Say so")


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan, "0.5", None, True])
def test_probability_accepts_and_refuses(bad):
    for good in (0, 0.5, 1):
        probability("p", good)
    with pytest.raises(ConfigurationError, match=r"p: got .*, needed a probability, 0 <= value <= 1"):
        probability("p", bad)


def test_integers_must_fit_into_int64():
    count("cutoff", 2**63 - 1)
    with pytest.raises(ConfigurationError, match="cutoff: got 100000000000000000000, needed a whole number of at most"):
        count("cutoff", 10**20)


def test_seeds_have_distinct_random_keys():
    """Keys have 64 bits: 2^64 would equal the seed 0, and two seeds of a comparison would be one run."""
    assert len({stream("minibatches", seed) for seed in (0, 1, 2**63, 2**64 - 1)}) == 4
    assert stream("minibatches", 2**64) == stream("minibatches", 0)
    for refuses in (
        lambda seed: to.Experiment(classification(), to.models.Logistic(), seed=seed),
        lambda seed: to.data.digits().split(to.partition.Iid(), num_clients=2, seed=seed),
        lambda seed: to.models.Logistic().build((2,), 2, seed),
        lambda seed: to.compare({"a": lambda _: to.Experiment(classification(), to.models.Logistic())}, [seed], "runs"),
    ):
        with pytest.raises(
            ConfigurationError, match=f"seed: got {2**64}, needed a whole number of at most {2**64 - 1}"
        ):
            refuses(2**64)


@pytest.mark.parametrize("value", [10**400, -(10**400), float("inf"), float("nan"), True, "1"])
def test_numbers_beyond_float_range_are_not_finite(value):
    for check in (positive, not_negative):
        with pytest.raises(ConfigurationError, match="needed a finite number"):
            check("lr", value)


def test_counts_may_have_an_upper_limit():
    count("steps", 10, most=10)
    with pytest.raises(ConfigurationError, match="steps: got 11, needed a whole number of at most 10"):
        count("steps", 11, most=10)


def test_values_in_messages_are_truncated():
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert shown(deep) == "a list that is too large to show"
    assert shown(10**5000) == "a number of about 5000 digits"
    assert len(shown("x" * 5000)) == 300
