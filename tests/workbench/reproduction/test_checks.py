"""Claims: true, false or unknown for every seed, by hand-made figures."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.checks import ConfigurationError
from turnout.results.measure import Measure
from turnout.workbench.reproduction.checks import CHECKS, check_of

ROUNDS, ACCURACY, LOSS = Measure("rounds"), Measure("final", "test_accuracy"), Measure("final", "test_loss")
INF = math.inf


def seeds(**values):
    """Figures of one panel, seed after seed."""
    return {name: dict(enumerate(numbers)) for name, numbers in values.items()}


def truths(table: dict[str, Any], measure: Measure, *panels):
    return check_of(table).truths(panels, measure)


def test_order_is_checked_per_seed():
    panel = seeds(a=[1, 5, 3, INF, INF], b=[2, 4, 3, 9, INF])
    assert truths({"order": ["a", "b"]}, ROUNDS, panel) == [True, False, False, False, None]
    assert truths({"order": ["b", "a"]}, ROUNDS, panel) == [False, True, False, True, None]


def test_more_is_better_for_accuracies_and_less_for_losses():
    panel = seeds(a=[0.9], b=[0.8])
    assert truths({"order": ["a", "b"]}, ACCURACY, panel) == [True]
    assert truths({"order": ["a", "b"]}, LOSS, panel) == [False]


def test_all_of_a_group_are_better_than_all_of_the_next():
    panel = seeds(a=[1, 1, 9, 1], b=[2, 5, 1, INF], c=[3, 4, 8, INF], d=[6, 6, 7, 7])
    order = {"order": [["a", "b"], ["c"], "d"]}
    assert truths(order, ROUNDS, panel) == [True, False, False, False]
    assert truths({"order": ["a", ["b", "c"]]}, ROUNDS, panel) == [True, True, False, True]


def test_missing_figures_make_a_claim_unknown_unless_another_pair_is_false():
    panel = seeds(a=[INF, INF], b=[INF, INF], c=[INF, 3])
    assert truths({"order": ["a", "b", "c"]}, ROUNDS, panel) == [None, False]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20))
def test_order_and_its_reverse_never_both_hold(pairs):
    panel = seeds(a=[one for one, _ in pairs], b=[other for _, other in pairs])
    for forth, back in zip(
        truths({"order": ["a", "b"]}, ACCURACY, panel), truths({"order": ["b", "a"]}, ACCURACY, panel), strict=True
    ):
        assert not (forth and back)


def test_ratio():
    panel = seeds(a=[5, 6, INF, 5, INF, 3], b=[10, 10, 10, INF, INF, 0])
    ratio = {"of": "a", "to": "b"}
    assert truths({"ratio": {**ratio, "most": 0.5}}, ROUNDS, panel) == [True, False, False, True, None, None]
    assert truths({"ratio": {**ratio, "least": 0.6}}, ROUNDS, panel) == [False, True, True, False, None, None]
    assert truths({"ratio": {**ratio, "least": 0.5, "most": 0.55}}, ROUNDS, panel)[:2] == [True, False]


def test_bound():
    panel = seeds(a=[0.6, 0.7, -INF])
    assert truths({"bound": {"of": "a", "least": 0.7}}, ACCURACY, panel) == [False, True, False]
    assert truths({"bound": {"of": "a", "most": 0.65}}, ACCURACY, panel) == [True, False, True]


def test_improves_compares_every_panel_with_the_one_before():
    panels = seeds(a=[9, 9, INF, INF]), seeds(a=[5, 9, 3, INF]), seeds(a=[4, 4, 2, INF])
    assert truths({"improves": "a"}, ROUNDS, *panels) == [True, False, True, None]
    assert truths({"improves": "a"}, ACCURACY, *panels)[0] is False


def test_gains_are_ratios_of_what_is_spent_and_differences_of_the_rest():
    small, large = seeds(a=[10, 10, 10], b=[20, 30, 20]), seeds(a=[100, 100, 100], b=[250, 250, INF])
    gains = {"gains": {"of": "a", "over": "b"}}
    assert truths(gains, ROUNDS, small, large) == [True, False, None]
    better, worse = seeds(a=[0.9], b=[0.8]), seeds(a=[0.9], b=[0.5])
    assert truths(gains, ACCURACY, better, worse) == [True]
    assert truths(gains, LOSS, better, worse) == [False]


def test_seeds_that_lack_a_figure_are_left_out():
    panel = {"a": {0: 1.0, 2: 1.0, 5: 1.0}, "b": {2: 2.0, 5: 0.5}}
    assert truths({"order": ["a", "b"]}, ROUNDS, panel) == [True, False]
    assert truths({"order": ["a", "c"]}, ROUNDS, panel) == []


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "a claim needs exactly one of order, ratio, bound, improves, gains, slope; got none"),
        ({"order": ["a", "b"], "improves": "a"}, "exactly one of .*; got order and improves"),
        ({"order": ["a"]}, r"order: got \['a'\], needed a list of names or lists of names"),
        ({"order": "ab"}, "order: got 'ab', needed a list"),
        ({"order": ["a", ["b", "a"]]}, "order: got .*, needed a list"),
        ({"order": ["a", 3]}, "order: got .*, needed a list"),
        (
            {"ratio": {"of": "a", "most": 1}},
            r"ratio: got .*, needed {of = \"NAME\", to = \"NAME\", most = 0.5}, or least",
        ),
        ({"ratio": {"of": "a", "to": "b"}}, "ratio: got .*, needed"),
        ({"ratio": {"of": "a", "to": "b", "most": 1, "mostly": 2}}, "ratio: got .*, needed"),
        ({"bound": 3}, r"bound: got 3, needed {of = \"NAME\", most = 0.5}, or least, or both"),
        ({"improves": ["a"]}, r"improves: got \['a'\], needed the name of an algorithm"),
        ({"gains": {"of": "a"}}, r"gains: got .*, needed {of = \"NAME\", over = \"NAME\"}"),
    ],
)
def test_invalid_checks_are_refused(table, message):
    with pytest.raises(ConfigurationError, match=message):
        check_of(table)


def test_checks_declare_whether_they_compare_panels():
    assert {name for name, check in CHECKS.items() if check.across} == {"improves", "gains", "slope"}


def test_slope_is_the_exponent_over_the_panels():
    over = [50, 100, 200]
    panels = [seeds(a=[3 * x**-0.5, 2 * x**-1.0, INF]) for x in over]
    table = {"slope": {"of": "a", "over": over, "most": -0.6}}
    assert truths(table, LOSS, *panels) == [False, True, None]
    assert check_of(table).detail(panels) == "exponents -0.50, -1.00, nan"
    with pytest.raises(ConfigurationError, match="got 2 panels for 3 numbers"):
        truths(table, LOSS, *panels[:2])


@pytest.mark.parametrize(
    "slope",
    [
        {"of": "a", "most": 1},
        {"of": "a", "over": [1, 1], "most": 1},
        {"of": "a", "over": [0, 1], "most": 1},
        {"of": "a", "over": [1, 2]},
        3,
    ],
)
def test_slope_without_positions_or_limits_is_refused(slope):
    with pytest.raises(ConfigurationError, match=r"slope: got .* needed"):
        check_of({"slope": slope})
