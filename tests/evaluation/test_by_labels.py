"""Accuracies by groups of labels."""

import numpy as np
import pytest

from turnout import ConfigurationError, Experiment, fedavg, models
from turnout.evaluation.evaluate import Scores, by_labels
from turnout.pieces.personalization import Personal

from ..tiny import classification

DATA = classification()


def test_group_accuracy_covers_its_examples():
    scores = Scores(np.zeros(5), np.array([1.0, 0.0, 1.0, 1.0, 0.0]), np.array([0, 5]))
    found = by_labels(scores, np.array([0, 0, 2, 1, 1]), ((0, 2), (1,), (7,)))
    assert found == {"accuracy_of_0_2": pytest.approx(2 / 3), "accuracy_of_1": 0.5}


def test_weighted_mean_over_groups_is_the_accuracy():
    history = Experiment(DATA, models.Logistic(), fedavg(), rounds=3, label_groups=((0, 1), (2, 3))).run().history
    assert DATA.test is not None
    sizes = [np.isin(DATA.test.y.numpy(), group).mean() for group in ((0, 1), (2, 3))]
    groups = [history.final(f"test_accuracy_of_{name}") for name in ("0_1", "2_3")]
    assert np.dot(sizes, groups) == pytest.approx(history.final("test_accuracy"))


def test_personal_models_without_client_tests_have_no_group_accuracy():
    with pytest.raises(ConfigurationError, match="label_groups: with a personal part there is no one model"):
        Experiment(DATA, models.Mlp(), fedavg(also=(Personal(),)), label_groups=((0,),))
