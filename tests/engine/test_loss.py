"""Losses."""

import pytest
import torch
from torch import nn

from turnout import ConfigurationError
from turnout.engine.loss import OfExamples, cross_entropy, squared_error
from turnout.engine.reading import score

OUTPUTS, LABELS = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 3, 1, 2, 2, 0])


@pytest.mark.parametrize(
    ("module", "targets"),
    [
        (nn.CrossEntropyLoss(), LABELS),
        (nn.CrossEntropyLoss(label_smoothing=0.1), LABELS),
        (nn.MultiMarginLoss(), LABELS),
        (nn.MSELoss(), OUTPUTS.flip(0)),
        (nn.L1Loss(), OUTPUTS.flip(0)),
        (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 3.0, 4.0])), (OUTPUTS.flip(0) > 0).float()),
        (nn.PoissonNLLLoss(), OUTPUTS.exp()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_mean_of_per_example_losses_equals_the_module(module, targets):
    losses = OfExamples(module)(OUTPUTS, targets)
    assert losses.shape == (6,)
    torch.testing.assert_close(losses.mean(), module(OUTPUTS, targets))
    assert module.reduction == "mean"  # the user's is left as it is


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.MSELoss(reduction="sum"), r"MSELoss gives the sum over a minibatch: write MSELoss\(reduction='none'\)"),
        (nn.CrossEntropyLoss(weight=torch.ones(4)), r"divides by the weights of a minibatch, .* reduction='none'"),
        (nn.AdaptiveLogSoftmaxWithLoss(4, 5, [2]), "has parameters, which are not trained"),
    ],
)
def test_modules_that_are_no_mean_over_examples_are_refused(module, message):
    with pytest.raises(ConfigurationError, match=message):
        OfExamples(module)


def test_unreduced_class_weights_are_accepted():
    weights = torch.tensor([1.0, 2.0, 0.5, 0.0])
    losses = OfExamples(nn.CrossEntropyLoss(weight=weights, reduction="none"))(OUTPUTS, LABELS)
    torch.testing.assert_close(losses, weights[LABELS] * cross_entropy(OUTPUTS, LABELS))


def test_scores_of_labels_and_numeric_targets():
    assert score(OUTPUTS, OUTPUTS.argmax(dim=1)).tolist() == [1.0] * 6
    assert score(torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 5.0])).tolist() == [1.0, 4.0]
    assert score(torch.zeros(2, 3), torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.0, 0.0]])).tolist() == [3.0, 0.0]
    assert score(torch.zeros(1, 2, 3), torch.tensor([[0, 2]])).tolist() == [0.5]  # a label for each of two places
    for outputs in ((OUTPUTS, None), torch.zeros(6, 2)):
        assert score(outputs, torch.zeros(6)).isnan().all()


def test_squared_errors_are_averaged_over_targets():
    assert squared_error(torch.tensor([[1.0, 3.0]]), torch.zeros(1, 2)).tolist() == [5.0]
