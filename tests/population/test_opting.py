"""Opting in and out: all clients at first, then the content ones."""

import numpy as np
import pytest

from turnout import ConfigurationError
from turnout.population.behavior.leaving import Opting, Pool


def says(*content):
    """Return successive answers of clients."""
    answers = iter(content)
    return lambda: np.array(next(answers), dtype=bool)


def test_mandatory_rounds_skip_the_requirement():
    pool = Pool(Opting(mandatory_rounds=2), 3)
    for round in (0, 1):
        assert pool.members(round, says()).tolist() == [True] * 3
    assert pool.members(2, says([0, 1, 0])).tolist() == [False, True, False]
    assert Pool(Opting(mandatory_rounds=0), 3).members(0, says([0, 0, 1])).tolist() == [False, False, True]


def test_each_client_is_asked_once_per_round():
    pool, ask = Pool(Opting(0), 2), says([1, 0], [0, 1])
    assert pool.members(4, ask) is pool.members(4, ask)
    assert pool.members(5, ask).tolist() == [False, True]


def test_clients_return_only_if_allowed():
    answers = ([1, 0, 1], [1, 1, 0], [1, 1, 1])
    back, gone = Pool(Opting(0), 3), Pool(Opting(0, comes_back=False), 3)
    ask, ask_too = says(*answers), says(*answers)
    assert [back.members(t, ask).tolist() for t in range(3)] == [[bool(c) for c in a] for a in answers]
    stayed = [gone.members(t, ask_too).tolist() for t in range(3)]
    assert stayed == [[True, False, True], [True, False, False], [True, False, False]]


def test_loyal_clients_stay_without_contentment():
    pool = Pool(Opting(0, comes_back=False), 3, loyal=np.array([True, False, False]))
    ask = says([0, 1, 0], [0, 0, 1])
    assert pool.members(0, ask).tolist() == [True, True, False]
    assert pool.members(1, ask).tolist() == [True, False, False]


def test_clients_that_left_stay_away_after_a_restart():
    first, second = (Pool(Opting(0, comes_back=False), 3) for _ in range(2))
    first.members(0, says([1, 0, 1]))
    second.restore(first.state())
    assert second.members(1, says([1, 1, 1])).tolist() == [True, False, True]
    assert Pool(Opting(0), 3).state() == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mandatory_rounds": -1}, "mandatory_rounds: got -1, needed a whole number >= 0"),
        ({"split": "valid"}, r"unknown value of split 'valid'"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Opting(**options)
