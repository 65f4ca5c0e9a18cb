"""GM-Appeal and related figures."""

import numpy as np
import pytest

from turnout import AppealMetrics, ConfigurationError
from turnout.evaluation.appeal import appeal_figures, content
from turnout.population import BoundRequirement

SCORES = {
    "train_loss": np.array([0.1, 0.5, 0.3, np.nan]),
    "train_accuracy": np.array([0.9, 0.5, 0.7, 0.1]),
    "test_loss": np.array([0.2, 0.4, np.nan, 0.6]),
    "test_accuracy": np.array([0.8, 0.6, np.nan, 0.4]),
}
TESTED = np.array([True, True, False, True])
SOLO = np.array([0.5, 0.9, np.nan, 0.7])


def requirement(measure="loss", solo: np.ndarray | None = SOLO, test=True):
    train, tests = np.array([0.2, 0.5, 0.4, 9.0]), np.array([0.1, 0.5, np.nan, 0.7])
    return BoundRequirement(measure, train, tests if test else None, solo)


def test_loss_requirement_is_met_strictly_below():
    assert content(SCORES, requirement(), "train").tolist() == [True, False, True, False]  # NaN meets nothing
    assert content(SCORES, requirement(), "test").tolist() == [False, True, False, True]


def test_accuracy_requirement_is_met_strictly_above():
    assert content(SCORES, requirement("accuracy"), "train").tolist() == [True, False, True, False]
    assert content(SCORES, requirement("accuracy"), "test").tolist() == [True, True, False, False]


def test_figures_cover_clients_with_tests():
    figures = appeal_figures(SCORES, requirement(), TESTED, "unseen_")
    assert figures == {
        "unseen_appeal_train": pytest.approx(2 / 4),
        "unseen_appeal_test": pytest.approx(2 / 3),
        "unseen_client_accuracy": pytest.approx((0.8 + 0.6 + 0.4) / 3),
        "unseen_preferred_accuracy": pytest.approx((0.5 + 0.6 + 0.4) / 3),  # the first takes its own model
    }


def test_figures_without_tests_or_own_models_are_omitted():
    assert appeal_figures(SCORES, requirement(test=False), np.zeros(4, dtype=bool)).keys() == {"appeal_train"}
    assert "preferred_accuracy" not in appeal_figures(SCORES, requirement(solo=None), TESTED)


def test_preferred_model_is_never_worse_by_the_required_measure():
    """The required accuracy is that of the own model, so a client that prefers the shared one has a better model."""
    rng = np.random.default_rng(0)
    solo, accuracy = rng.random(50), rng.random(50)
    bound = BoundRequirement("accuracy", solo, solo, solo)
    scores = {f"{s}_{m}": accuracy for s in ("train", "test") for m in ("loss", "accuracy")}
    figures = appeal_figures(scores, bound, np.ones(50, dtype=bool))
    assert figures["preferred_accuracy"] == pytest.approx(np.maximum(solo, accuracy).mean())
    assert figures["preferred_accuracy"] > max(solo.mean(), accuracy.mean())


def test_invalid_options_raise():
    with pytest.raises(ConfigurationError, match="tuning_steps: got -1, needed a whole number >= 0"):
        AppealMetrics(-1)
