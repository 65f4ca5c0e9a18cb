"""Paired differences between algorithms."""

import math

import numpy as np
import pytest
from scipy import stats

from turnout.record.query import History
from turnout.results.column import Gap
from turnout.results.formats import csv, markdown
from turnout.results.records import RunRecord
from turnout.results.statistics import gap, holm, p_value
from turnout.results.table import comparison


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 10, 29])
def test_p_values_equal_students_distribution(degrees):
    for t in (0.0, 0.3, 1.0, 2.776, 9.0, 60.0):
        assert p_value(t, degrees) == pytest.approx(2 * stats.t.sf(t, degrees), abs=1e-12)
    assert p_value(math.inf, degrees) == pytest.approx(0.0, abs=1e-12)


def test_only_common_seeds_are_compared():
    rng = np.random.default_rng(0)
    one, other = rng.normal(0.9, 0.02, 6), rng.normal(0.88, 0.02, 6)
    found = gap(dict(enumerate(one)), dict(enumerate(other)) | {9: 0.1})
    assert found is not None
    assert found.p == pytest.approx(stats.ttest_rel(one, other).pvalue)
    assert found.mean == pytest.approx((one - other).mean())
    assert gap({0: 0.5, 1: 0.6}, {1: 0.6, 2: 0.7}) is None


@pytest.mark.parametrize("number", [2, 3, 5, 8])
def test_equal_differences_have_the_p_value_of_a_sign_test(number):
    """Accuracies on few examples are often equal, so that a standard deviation of zero is no certainty."""
    found = gap({seed: 0.6 + seed / 20 for seed in range(number)}, {seed: 0.5 + seed / 20 for seed in range(number)})
    assert found is not None
    assert found.p == pytest.approx(stats.binomtest(number, number).pvalue)
    assert (round(found.mean, 12), found.margin, found.points) == (0.1, None, "+10.0")


def test_equal_differences_of_three_seeds_are_no_lead():
    records = [
        record(name, s, test_accuracy=0.5 + lead + s / 10) for name, lead in (("a", 0.0), ("b", 0.1)) for s in range(3)
    ]
    assert "| b | 70.0 ± 10.0 | +10.0 (p 0.25) |" in markdown(comparison(records))
    assert "| b | 70.0 [45.2, 94.8] | +10.0 (p 0.25) |" in markdown(comparison(records), interval=True)


def test_differences_of_rounding_are_none():
    found = gap(dict.fromkeys(range(3), 0.1 + 0.2), dict.fromkeys(range(3), 0.3))
    assert found is not None
    assert (found.mean, math.isnan(found.p)) == (0.0, True)
    diverged = gap({0: math.inf, 1: 1.0}, {0: 1.0, 1: 2.0})
    assert diverged is not None
    assert (diverged.mean, math.isnan(diverged.p)) == (math.inf, True)


def record(algorithm, seed, **values):
    history = History()
    history.record(round=1, **values)
    return RunRecord(algorithm, seed, history)


def test_consistent_lead_is_significant_despite_variation_between_seeds():
    mine, other = (0.80, 0.85, 0.90, 0.95), (0.79, 0.838, 0.892, 0.938)
    records = [record("a", s, test_accuracy=x) for s, x in enumerate(mine)]
    records += [record("b", s, test_accuracy=x) for s, x in enumerate(other)]
    rows = comparison(records)
    assert "| a | **87.5 ± 6.5** | – |" in markdown(rows)
    assert "| b | 86.5 ± 6.4 | -1.1 (p 0.002) |" in markdown(rows)
    assert "| a | **87.5 ± 6.5** | **+1.1 (p 0.002)** |" in markdown(comparison([*records[4:], *records[:4]]))
    expected = stats.ttest_rel(other, mine)
    found = rows[1].figures["gap_of_test_accuracy_to_a"]
    assert isinstance(found, Gap)
    assert found.p == pytest.approx(expected.pvalue)
    header, _, line = csv(rows).splitlines()
    read = dict(zip(header.split(","), line.split(","), strict=True))
    assert float(read["gap_of_test_accuracy_to_a_mean"]) == pytest.approx(-0.0105)
    assert float(read["gap_of_test_accuracy_to_a_p"]) == pytest.approx(expected.pvalue)


def test_label_groups_have_differences():
    values = {"a": (0.5, 0.6), "b": (0.4, 0.3)}
    records = [record(name, s, test_accuracy_of_8_9=x) for name, seeds in values.items() for s, x in enumerate(seeds)]
    rows = comparison(records)
    assert rows[1].figures["gap_of_test_accuracy_of_8_9_to_a"].mean == pytest.approx(-0.2)


def test_untestable_difference_is_no_lead():
    same = comparison([record(name, s, test_accuracy=0.5) for name in "ab" for s in range(3)])
    assert "| b | 50.0 ± 0.0 | +0.0 |" in markdown(same)
    nan = comparison(
        [record("a", s, test_accuracy=0.5) for s in range(2)]
        + [record("b", 0, test_accuracy=0.5), record("b", 1, test_accuracy=math.nan)]
    )
    assert "| b | nan | +nan |" in markdown(nan)
    assert "less" not in markdown(comparison([record(name, 0, test_accuracy=0.5) for name in "ab"]))


def test_memory_is_shown_if_algorithms_differ():
    def shown(a, b):
        return "memory" in markdown(comparison([record("a", 0, server_bytes=a), record("b", 0, server_bytes=b)]))

    assert shown(4_000, 400_000)
    assert not shown(4_000, 4_000)


def test_holms_adjustment_is_that_of_statsmodels():
    """Expected: ``statsmodels.stats.multitest.multipletests([0.01, 0.04, 0.03, 0.005, 0.9], method="holm")[1]``."""
    assert holm([0.01, 0.04, 0.03, 0.005, 0.9]) == pytest.approx([0.04, 0.09, 0.09, 0.025, 0.9])
    assert holm([math.nan, 0.02, 0.03])[1:] == pytest.approx([0.04, 0.04])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
