"""A figure whose direction is unknown is shown, and nothing is chosen, stopped or highlighted by it."""

from __future__ import annotations

import pytest

import turnout as to
from turnout.core.checks import ConfigurationError
from turnout.record.query import History
from turnout.record.schema import has_direction, less_is_better
from turnout.results.formats import markdown
from turnout.results.measure import Measure
from turnout.results.records import RunRecord
from turnout.results.table import comparison

UNKNOWN = (
    "test_top_3: its name does not say whether less or more is better: end the name of the function in _error or _loss"
)


@pytest.mark.parametrize("name", to.metrics.__all__)
def test_metrics_by_name_have_a_direction(name: str):
    assert has_direction(f"validation_{name}")
    assert less_is_better(f"validation_{name}") is (name in ("mae", "perplexity", "calibration_error"))


def test_recorded_columns_have_a_direction():
    for name in (
        "test_accuracy",
        "test_accuracy_of_0_1",
        "train_rmse",
        "appeal_test",
        "pool",
        "client_test_worst",
        "bytes_up",
    ):
        assert has_direction(name), name
    assert less_is_better("test_hamming_distance")
    assert not less_is_better("test_top_3_accuracy")


def test_nothing_is_chosen_or_stopped_by_an_unknown_direction():
    history = History()
    history.record(round=1, test_top_3=0.5)
    for decide in (
        lambda: to.EarlyStopping(target=0.5, metric="test_top_3").on_round({"test_top_3": 0.5}),
        lambda: Measure("final", "test_top_3").less_is_better,
        lambda: Measure("average", "test_top_3").less_is_better,
        lambda: history.reached("test_top_3", 0.4),
    ):
        with pytest.raises(ConfigurationError, match=UNKNOWN):
            decide()
    assert Measure("spread", "test_top_3").less_is_better


def test_nothing_is_highlighted_by_an_unknown_direction():
    def bold(name: str) -> bool:
        records = []
        for algorithm, lead in (("a", 0.0), ("b", 0.3)):
            for seed in range(5):
                history = History()
                history.record(round=1, **{name: 0.1 + lead + seed**2 / 1000 * (1 + lead)})
                records.append(RunRecord(algorithm, seed, history))
        return "**" in markdown(comparison(records), (name,))

    assert not bold("test_top_3")
    assert bold("test_top_3_score")
