"""Statistics of participation records."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.core.checks import DataError
from turnout.population import Markov, participation_table


def test_statistics_equal_a_hand_computed_example():
    rounds = [np.array([0, 2]), np.array([], dtype=np.int64), np.array([2]), np.array([2, 0]), np.array([2, 1])]
    table = participation_table(rounds, num_clients=4, num_rounds=5)
    np.testing.assert_array_equal(table["client"], [0, 1, 2, 3])
    np.testing.assert_array_equal(table["participations"], [2, 1, 4, 0])
    np.testing.assert_allclose(table["rate"], [0.4, 0.2, 0.8, 0])
    np.testing.assert_allclose(table["mean_interval"], [3, np.nan, 4 / 3, np.nan])
    np.testing.assert_array_equal(table["first"], [0, 4, 0, -1])
    np.testing.assert_array_equal(table["last"], [3, 4, 4, -1])


@settings(max_examples=50, deadline=None)
@given(cohorts=st.lists(st.lists(st.integers(0, 6), max_size=9), min_size=1, max_size=12))
def test_lists_and_offsets_agree_and_duplicates_count_once(cohorts):
    rounds = [np.array(cohort, dtype=np.int64) for cohort in cohorts]
    ids, offsets = np.concatenate(rounds), np.concatenate([[0], np.cumsum([len(c) for c in cohorts])])
    table = participation_table(rounds, 7, len(rounds))
    for name, column in participation_table((ids, offsets), 7, len(rounds)).items():
        np.testing.assert_array_equal(column, table[name])
    for client in range(7):
        when = [t for t, cohort in enumerate(cohorts) if client in cohort]
        assert table["participations"][client] == len(when)
        assert (table["first"][client], table["last"][client]) == ((when[0], when[-1]) if when else (-1, -1))
        if len(when) > 1:
            assert table["mean_interval"][client] == pytest.approx(np.mean(np.diff(when)))
        else:
            assert np.isnan(table["mean_interval"][client])


def test_rates_of_a_simulated_population_are_recovered():
    bound = Markov(mean=0.2).bind(200, None, 0)
    rounds = [np.flatnonzero(bound.available(np.arange(200), t)) for t in range(1000)]
    table = participation_table(rounds, 200, 1000)
    assert table["rate"].mean() == pytest.approx(0.2, abs=0.01)
    assert np.nanmean(table["mean_interval"]) == pytest.approx(5, rel=0.1)


def test_record_of_wrong_length_is_refused():
    with pytest.raises(ValueError, match="num_rounds: got 3, needed 1, the number of rounds in the record"):
        participation_table([np.array([0])], 2, 3)


def test_unknown_client_is_refused():
    with pytest.raises(DataError, match="clients from 0 to 2 took part, but there are 2, from 0 on"):
        participation_table([np.array([0, 2])], 2, 1)


def test_record_without_participation_counts_nobody():
    """The column of clients of a table without rows has numbers of another type."""
    table = participation_table((np.zeros(0), np.zeros(4, np.int64)), 2, 3)
    assert table["participations"].tolist() == [0, 0]
    assert table["rate"].tolist() == [0.0, 0.0]
