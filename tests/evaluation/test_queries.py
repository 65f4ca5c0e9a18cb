"""Sums over clients equal statistics of the pooled examples."""

import numpy as np
import pytest
import torch

from turnout.core.checks import ConfigurationError
from turnout.evaluation.queries import LEVELS, Question

WIDTHS = {"features": 3, "targets": 1, "classes": 5}


def examples(n, seed):
    generator = torch.Generator().manual_seed(seed)
    return 100.0 + torch.randn(n, 3, generator=generator, dtype=torch.float64)


PARTS = [examples(n, n) for n in (1, 7, 5000)]
ALL = torch.cat(PARTS).numpy()


def answered(question, parts):
    """Return results from sums over clients, and check the declared shapes."""
    sums = [question.sums(part, 5) for part in parts]
    shapes = question.shapes(WIDTHS)
    for one in sums:
        assert {name: np.shape(value) for name, value in one.items()} == shapes
    return question.figures({name: np.sum([one[name] for one in sums], axis=0) for name in shapes})


@pytest.mark.parametrize("column", [None, 1])
@pytest.mark.parametrize("center", [0.0, 100.0])
def test_means_and_variances_equal_pooled_ones(column, center):
    rows = ALL if column is None else ALL[:, [column]]
    figures = answered(Question("variance", column=column, center=center), PARTS)
    assert figures["num_examples"] == len(ALL)
    np.testing.assert_allclose(figures["mean"], rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(figures["variance"], rows.var(axis=0), rtol=1e-12 if center else 1e-9)
    assert answered(Question("mean", column=column), PARTS)["mean"] == pytest.approx(figures["mean"], rel=1e-12)


def test_histogram_counts_values_outside_its_bins():
    edges = (99.0, 100.0, 101.0)
    figures = answered(Question("histogram", edges=edges), PARTS)
    inside, _ = np.histogram(ALL[:, 2], edges)
    expected = [(ALL[:, 2] < 99).sum(), *inside, (ALL[:, 2] >= 101).sum()]
    assert figures["counts"][2] == expected


def test_quantiles_are_exact_to_the_width_of_a_bin():
    edges = tuple(np.linspace(94.0, 106.0, 121).tolist())
    figures = answered(Question("quantiles", edges=edges), PARTS)
    for level in LEVELS:
        np.testing.assert_allclose(figures["quantiles"][f"{level:g}"], np.quantile(ALL, level, axis=0), atol=0.1)


def test_quantiles_outside_the_bins_are_their_edges():
    figures = answered(Question("quantiles", edges=(100.0, 100.1)), PARTS)
    assert figures["quantiles"]["0.05"] == [100.0] * 3
    assert figures["quantiles"]["0.95"] == [100.1] * 3


def test_labels_and_examples_are_counted():
    labels = [torch.tensor([0, 4, 4]), torch.tensor([2])]
    assert answered(Question("label_histogram"), labels) == {"num_examples": 4, "counts": [1, 0, 1, 0, 2]}
    assert answered(Question("count"), labels) == {"num_examples": 4}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kind": "median"}, "unknown value of kind 'median'"),
        ({"kind": "mean", "edges": (1.0, 2.0)}, "edges: mean has no bins: leave them out"),
        ({"kind": "quantiles"}, "edges: got .* needed two finite numbers or more that ascend"),
        ({"kind": "histogram", "edges": (2.0, 1.0)}, "that ascend"),
        ({"kind": "histogram", "edges": (0.0, float("inf"))}, "that ascend"),
        ({"kind": "mean", "of": "rm -rf"}, "of: got 'rm -rf', needed features, targets or the name of a function"),
        ({"kind": "mean", "column": -1}, "column"),
        ({"kind": "variance", "center": float("nan")}, "center: got nan"),
    ],
)
def test_invalid_question_is_refused(options, said):
    with pytest.raises(ConfigurationError, match=said):
        Question(**options)


def test_unknown_columns_and_labels_are_refused():
    with pytest.raises(ConfigurationError, match="column: got 3, needed a column of features, 0 to 2"):
        Question("mean", column=3).shapes(WIDTHS)
    with pytest.raises(ConfigurationError, match="label_histogram: the targets are no class labels"):
        Question("label_histogram").shapes(WIDTHS | {"classes": 0})
