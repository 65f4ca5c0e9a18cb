"""Evaluation of models."""

import numpy as np
import pytest
import torch
from torch import nn

from turnout.data.shards import Shards
from turnout.engine.objective import Objective
from turnout.evaluation.evaluate import evaluate, thinned


def scores_of(offsets, n=1203, examples_per_call=500):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.9))
    x, y = torch.randn(n, 4), torch.randint(3, (n,))
    objective = Objective(module)
    objective.examples_per_call = examples_per_call
    with torch.no_grad():
        outputs = module.eval()(x)
    loss = nn.functional.cross_entropy(outputs, y, reduction="none").double().numpy()
    correct = (outputs.argmax(dim=1) == y).double().numpy()
    return evaluate(objective, objective.initial, Shards(x, y, np.array(offsets))), loss, correct


def test_every_example_is_scored_once_without_dropout():
    scores, loss, correct = scores_of([0, 700, 1203])  # in several batches, the last one short
    np.testing.assert_allclose(scores.loss, loss, rtol=1e-6)
    np.testing.assert_array_equal(scores.score, correct)
    assert scores.mean() == {"loss": pytest.approx(loss.mean(), rel=1e-6), "accuracy": correct.mean()}


@pytest.mark.parametrize("number", [1, 700, 1203, 5000])
def test_scores_do_not_depend_on_the_number_of_examples_per_call(number):
    scores, loss, correct = scores_of([0, 700, 1203], examples_per_call=number)
    np.testing.assert_allclose(scores.loss, loss, rtol=1e-6)
    np.testing.assert_array_equal(scores.score, correct)


def test_results_by_client():
    scores, loss, correct = scores_of([0, 10, 10, 1203])
    by_loss, by_accuracy = scores.by_client().values()
    np.testing.assert_allclose(by_loss, [loss[:10].mean(), np.nan, loss[10:].mean()], rtol=1e-6)
    np.testing.assert_allclose(by_accuracy, [correct[:10].mean(), np.nan, correct[10:].mean()])


def test_subset_is_evenly_spaced_or_complete():
    shards = Shards(torch.arange(100.0)[:, None], torch.arange(100), np.array([0, 30, 100]))
    few = thinned(shards, 4)
    assert few.y.tolist() == [0, 33, 66, 99]
    assert few.x[:, 0].tolist() == [0.0, 33.0, 66.0, 99.0]
    assert list(few.offsets) == [0, 1, 4]
    assert thinned(shards, 100).y.tolist() == list(range(100))
    assert thinned(shards, 1).y.tolist() == [0]
