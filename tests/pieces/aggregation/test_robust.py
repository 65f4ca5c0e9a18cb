"""Robust aggregations: results of byzfl, robustness, and refusals."""

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pieces.aggregation.byzfl import F, vectors
from tests.tiny import federation, report

from turnout import (
    ConfigurationError,
    average_participating,
    compose,
    fedasync,
    fedau,
    fednu,
    fedvarp,
    folb,
    folb_two_set,
    qffl,
    scaffold,
)
from turnout.base.server_step import server_step
from turnout.pieces.aggregation import (
    Bucketing,
    CenteredClipping,
    GeometricMedian,
    Krum,
    Median,
    MinimumDiameter,
    MultiKrum,
    NearestNeighbors,
    TrimmedMean,
)
from turnout.pieces.aggregation.combination import closest, scores

THEIRS = json.loads((Path(__file__).parent / "byzfl.json").read_text())
SHARE = F / 11
OURS = {
    "median": Median(),
    "trimmed_mean": TrimmedMean(SHARE),
    "krum": Krum(SHARE),
    "multi_krum": MultiKrum(SHARE, selected=7),
    "geometric_median": GeometricMedian(iterations=3, smoothing=0.1),
    "centered_clipping": CenteredClipping(radius=2.0, iterations=3),
    "minimum_diameter": MinimumDiameter(SHARE),
    "nnm, trimmed_mean": TrimmedMean(SHARE, NearestNeighbors()),
    "nnm, krum": Krum(SHARE, NearestNeighbors()),
    "nnm, geometric_median": GeometricMedian(SHARE, NearestNeighbors(), iterations=3, smoothing=0.1),
    "nnm, centered_clipping": CenteredClipping(SHARE, NearestNeighbors(), radius=2.0, iterations=3),
}
ALL = [
    Median(),
    TrimmedMean(0.3),
    Krum(0.3),
    MultiKrum(0.3),
    GeometricMedian(0.3),
    CenteredClipping(0.3),
    MinimumDiameter(0.3),
]
EVERY = [replace(rule, mixing=mixing) for rule in ALL for mixing in (None, NearestNeighbors(), Bucketing())]


def estimate(rule, x, weights=None):
    """The direction that a rule makes of rows, which weigh alike unless it is said."""
    x = torch.as_tensor(x)
    known = federation(len(x), x.shape[1])
    weights = torch.full((len(x),), 1.0 / len(x), dtype=torch.float64) if weights is None else torch.as_tensor(weights)
    return rule.apply(weights, report(range(len(x)), x), rule.init(known), known)[0].numpy()


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", OURS)
def test_results_equal_byzfl(name, seed):
    np.testing.assert_allclose(estimate(OURS[name], vectors(seed)), THEIRS[seed][name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rule", EVERY, ids=str)
def test_weights_scale_updates_and_order_is_irrelevant(rule):
    rng = np.random.default_rng(4)
    x, w = rng.normal(size=(9, 5)), rng.uniform(-0.1, 0.4, size=9)
    found = estimate(rule, x, w)
    np.testing.assert_allclose(found, estimate(rule, 9 * w[:, None] * x), atol=1e-12)
    order = rng.permutation(9)
    if not isinstance(rule.mixing, Bucketing):  # which goes by clients' numbers
        np.testing.assert_allclose(found, estimate(rule, x[order], w[order]), atol=1e-12)


@pytest.mark.parametrize("rule", [rule for rule in EVERY if not isinstance(rule, CenteredClipping)], ids=str)
def test_equal_honest_updates_are_returned_for_any_attack(rule):
    """Two attackers of nine; a bucket of two with an attacker counts as an attacker."""
    rng = np.random.default_rng(5)
    honest = rng.normal(size=4)
    x = np.concatenate([np.tile(honest, (7, 1)), 1e3 * rng.normal(size=(2, 4))])
    np.testing.assert_allclose(estimate(replace(rule, fraction=0.3), x), honest, rtol=0, atol=1e-2)


@pytest.mark.parametrize("rule", EVERY, ids=str)
@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (3e38, torch.float32),
        (1e20, torch.float32),
        (1e155, torch.float64),
        (1e200, torch.float64),
        (1e308, torch.float64),
    ],
)
def test_huge_finite_updates_have_bounded_influence(rule, value, dtype):
    """Two attackers of nine, on one or both sides, in the aggregation and in a server step with FedAU's weights."""
    rng, rule = np.random.default_rng(6), replace(rule, fraction=0.3)
    honest = torch.from_numpy(rng.normal(size=(7, 3))).to(dtype)
    for signs in ([1.0, 1.0], [1.0, -1.0]):
        attack = torch.tensor(signs, dtype=dtype)[:, None] * torch.tensor([value, 0.0, -value / 2], dtype=dtype)
        x = torch.cat([honest, attack])
        found = estimate(rule, x)
        assert np.linalg.norm(found) <= 2 * float(honest.norm(dim=1).max())
        algorithm, known = fedau(also=(rule,)), federation(9, 3, dtype=dtype)
        state = algorithm.init(torch.zeros(3, dtype=dtype), known)
        state, info = server_step(algorithm, state, report(range(9), x), known)
        assert state.params.norm() <= 2 * honest.norm(dim=1).max()
        assert info["num_dropped"] == 0


@pytest.mark.parametrize("rule", EVERY, ids=str)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_small_cohorts_are_aggregated(rule, count):
    x = np.random.default_rng(count).normal(size=(count, 3))
    found = estimate(replace(rule, fraction=0.2), x)
    if count == 1:
        shortened = min(1.0, 1.0 / np.linalg.norm(x[0])) if isinstance(rule, CenteredClipping) else 1.0
        np.testing.assert_allclose(found, shortened * x[0], rtol=1e-6)
    assert np.isfinite(found).all()


@given(st.integers(4, 9), st.integers(0, 3), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_minimum_diameter_is_found_among_all_subsets(n, byzantine, seed):
    x = np.random.default_rng(seed).integers(0, 4, size=(n, 2)).astype(float)
    squares = ((x[:, None] - x) ** 2).sum(axis=2)
    kept = closest(squares, byzantine)
    assert len(set(kept)) == n - byzantine
    least = min(squares[np.ix_(some, some)].max() for some in combinations(range(n), n - byzantine))
    assert squares[np.ix_(kept, kept)].max() == least


def test_buckets_differ_between_rounds_and_contain_every_client_once():
    known = federation(7, 2)
    rows = [Bucketing(3).matrix(report(range(7), version=t), 0, lambda: torch.empty(0), known) for t in range(5)]
    assert all(m.shape == (3, 7) for m in rows)
    for matrix in rows:
        assert ((matrix > 0).sum(dim=0) == 1).all()
        torch.testing.assert_close(matrix.sum(dim=1), torch.ones(3).double())
    assert any(not torch.equal(rows[0], other) for other in rows[1:])


def test_centered_clipping_starts_from_its_last_direction():
    algorithm, known = average_participating(also=(CenteredClipping(radius=0.5),)), federation(4, 3)
    state = algorithm.init(torch.zeros(3).double(), known)
    one = report([0, 1], torch.tensor([[3.0, 0, 0], [3.0, 0, 0]]).double())
    moves = []
    for _ in range(8):
        state, info = server_step(algorithm, state, one, known)
        moves.append(float(info["update_norm"]))
    np.testing.assert_allclose(moves, [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.0, 3.0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Krum(0.5), r"fraction: got 0.5, needed a number >= 0 and < 0.5"),
        (lambda: Median(True), r"fraction: got True"),
        (lambda: MultiKrum(selected=0), r"selected: got 0, needed"),
        (lambda: GeometricMedian(iterations=0), r"iterations: got 0"),
        (lambda: GeometricMedian(smoothing=0.0), r"smoothing: got 0.0"),
        (lambda: CenteredClipping(radius=-1.0), r"radius: got -1.0"),
        (lambda: CenteredClipping(iterations=0), r"iterations: got 0"),
        (lambda: Bucketing(0), r"size: got 0"),
        (lambda: scaffold(also=(Krum(),)), "Krum protects the mean of updates, and the server also sums control variates"),
        (lambda: fednu(also=(Median(),)), "Median requires that most reports are honest, and ByAlignment chooses the cohort"),
        (lambda: folb(also=(Krum(),)), "Alignment weights every client by the mean of all gradients"),
        (lambda: folb_two_set(also=(Krum(),)), "Alignment weights every client"),
        (lambda: qffl(also=(Median(),)), "DivideByCurvature divides by a sum of losses and norms"),
        (lambda: fedvarp(also=(Median(),)), "fedvarp is defined by FedVarp, which Median would replace"),
        (lambda: fedasync(also=(Krum(),)), "fedasync is defined by WeightedModels"),
        (lambda: compose(Krum(), Median()), "Krum and Median are both for the slot 'aggregation'"),
    ],
)  # fmt: skip
def test_invalid_arguments_raise(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_robust_aggregation_replaces_the_weighted_sum():
    algorithm = fedau(also=(Krum(0.1),))
    assert algorithm.aggregation == Krum(0.1)
    assert not algorithm.sums_early


def test_krum_uses_n_minus_f_minus_2_neighbors():
    """Five numbers with one attacker: sums of squared distances to the two nearest, by hand."""
    points = torch.tensor([[0.0], [1.0], [3.0], [7.0], [20.0]], dtype=torch.float64)
    assert scores(points @ points.T, 1).tolist() == [1 + 9, 1 + 4, 4 + 9, 16 + 36, 169 + 289]


def test_median_of_an_even_number_is_the_mean_of_the_middle_two():
    columns = torch.tensor([[1.0, 2.0, 5.0, 90.0], [0.0, 0.0, 1.0, 1.0]], dtype=torch.float64)
    assert Median().combine(columns, 1).tolist() == [3.5, 0.5]
