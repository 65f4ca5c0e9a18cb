"""Selection by inner products of gradients."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny import report

from turnout import ConfigurationError
from turnout.core.candidates import Candidates
from turnout.pieces.local import GradientNorm, Inexactness, StartGradient
from turnout.pieces.selection import ByAlignment, ByAlignmentAndInexactness, ByGradientNorm

KINDS = (ByAlignment, ByGradientNorm, ByAlignmentAndInexactness)
GRADIENTS = np.array([[3.0, 0.0], [-1.0, 2.0], [0.0, 0.0], [2.0, -2.0], [0.0, 6.0], [0.5, 0.5]])
GAMMA = np.array([0.0, 0.5, 1.0, 0.25, 1.5, 0.8])


def measured(gradient, gamma: Sequence[float] | np.ndarray = GAMMA, clients=None):
    """Return the measurements of all available clients."""
    gradient = torch.as_tensor(gradient)
    n = len(gradient)
    seen = {
        "start_gradient": gradient,
        "start_gradient_norm": torch.linalg.vector_norm(gradient.double(), dim=1),
        "inexactness": torch.from_numpy(np.resize(gamma, n)),
    }
    return report(range(n) if clients is None else clients, torch.zeros(n, 0), seen=seen)


def select(selection, reports, round=0, seed=0, num_clients=100):
    return selection.select(
        Candidates(lambda clients: np.ones(len(clients), dtype=bool), num_clients, round, seed, reports)
    )


def expected(kind, psi=0.0):
    """P_k written out."""
    f = GRADIENTS.mean(axis=0)
    scores = {
        ByAlignment: np.abs(GRADIENTS @ f),
        ByGradientNorm: np.sqrt((GRADIENTS**2).sum(axis=1)),
        ByAlignmentAndInexactness: np.abs(GRADIENTS @ f - psi * GAMMA * (f @ f)),
    }[kind]
    return scores / scores.sum()


@pytest.mark.parametrize(
    ("selection", "probability"),
    [
        (ByAlignment(100_000), expected(ByAlignment)),
        (ByGradientNorm(100_000), expected(ByGradientNorm)),
        (ByAlignmentAndInexactness(0.7, 100_000), expected(ByAlignmentAndInexactness, 0.7)),
        (ByAlignmentAndInexactness(0.0, 100_000), expected(ByAlignment)),
    ],
    ids=["eq. 7", "norms", "eq. 16", "psi = 0"],
)
def test_draw_frequencies_equal_probabilities(selection, probability):
    clients = np.array([4, 7, 11, 30, 31, 99])
    cohort = select(selection, measured(GRADIENTS, clients=clients))
    assert len(cohort) == 100_000
    assert (np.diff(cohort) >= 0).all()
    assert np.isin(cohort, clients).all()
    seen, likely = np.bincount(np.searchsorted(clients, cohort), minlength=6), 100_000 * probability
    assert (seen[probability == 0] == 0).all()
    some = probability > 0
    square, freedom = ((seen - likely)[some] ** 2 / likely[some]).sum(), some.sum() - 1
    assert abs(square - freedom) < 4.5 * np.sqrt(2 * freedom)
    assert np.unique(np.round(probability, 3)).size > 3  # it is far from uniform


@pytest.mark.parametrize("kind", KINDS)
def test_draws_are_independent_within_and_across_rounds(kind):
    """Chi-square test of pairs, over rounds of two draws each."""
    rounds, probability = 1500, np.array([0.5, 0.3, 0.2])
    reports = measured([[0.5], [0.3], [0.2]], gamma=[0.0])
    seen = {}
    for t in range(rounds):
        pair = tuple(select(kind(cohort_size=2), reports, t).tolist())
        seen[pair] = seen.get(pair, 0) + 1
    likely = {
        (i, j): probability[i] * probability[j] * (1 if i == j else 2) for i in range(3) for j in range(3) if i <= j
    }
    square = sum((seen[pair] - rounds * p) ** 2 / (rounds * p) for pair, p in likely.items())
    assert abs(square - 5) < 4.5 * np.sqrt(10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gradient", [np.zeros((4, 3)), [[1.0, 2.0], [-1.0, -2.0]]], ids=["zero", "opposite"])
def test_zero_scores_give_a_uniform_draw(kind, gradient):
    if kind is ByGradientNorm:
        gradient = np.zeros_like(gradient)
    cohort = select(kind(cohort_size=8000), measured(gradient))
    seen = np.bincount(cohort, minlength=len(gradient))
    assert (np.abs(seen - 8000 / len(gradient)) < 4.5 * np.sqrt(8000 / len(gradient))).all()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 1e-320, 1e-200, 1e-30, 1.0, 1e30, 1e150]), min_size=1, max_size=12),
    st.integers(0, 1000),
)
def test_client_with_zero_score_is_never_drawn(sizes, round):
    norms = torch.tensor(sizes, dtype=torch.float64)
    reports = report(range(len(sizes)), torch.zeros(len(sizes), 0), seen={"start_gradient_norm": norms})
    cohort = select(ByGradientNorm(200), reports, round)
    assert len(cohort) == 200
    if any(sizes):
        assert all(sizes[k] > 0 for k in cohort)


def test_overflowing_scores_count_as_zero():
    """A float64 model with finite gradients and infinite inner products."""
    for gradient, drawn in (
        ([[1e200, 0.0], [1e-50, 3.0], [0.0, -1.0]], {1}),  # of finite ones, 1e150, and 1e-200 that nothing is left of
        ([[1e200, 0.0], [-1e199, 0.0], [1e200, 5.0]], {0, 1, 2}),
    ):
        rows = torch.tensor(gradient, dtype=torch.float64)
        seen = {"start_gradient": rows, "inexactness": torch.zeros(3)}
        reports = report(range(3), torch.zeros(3, 0), seen=seen)
        assert reports.finite().all()
        assert set(select(ByAlignment(100), reports).tolist()) == drawn
        assert len(select(ByAlignmentAndInexactness(0.5, 100), reports)) == 100


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_reports_are_omitted(kind, bad):
    spoiled = GRADIENTS.copy()
    spoiled[3, 1] = bad
    kept = [0, 1, 2, 4, 5]
    found = select(kind(cohort_size=50), measured(spoiled))
    good = measured(GRADIENTS[kept], gamma=GAMMA[kept], clients=kept)
    assert 3 not in found
    assert found.tolist() == select(kind(cohort_size=50), good).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_no_available_or_no_valid_client(kind):
    for reports in (measured(GRADIENTS[:0]), measured(np.full((3, 2), np.nan))):
        cohort = select(kind(cohort_size=5), reports)
        assert cohort.dtype == np.int64
        assert len(cohort) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_all_available_clients_are_measured(kind):
    here = np.array([1, 0, 0, 1, 1], dtype=bool)
    asked = kind().measuring(Candidates(lambda clients: here[clients], 5, 0, 0))
    assert asked.tolist() == [0, 3, 4]


def test_only_required_measurements_are_requested():
    assert ByAlignment.measurements == (StartGradient(),)
    assert ByGradientNorm.measurements == (GradientNorm(),)
    assert ByAlignmentAndInexactness.measurements == (StartGradient(), Inexactness())


def test_small_float32_gradients_do_not_underflow():
    reports = measured(torch.tensor([[3e-30], [1e-30]]), gamma=[0.0])
    for kind in KINDS:
        share = (select(kind(cohort_size=4000), reports) == 0).mean()
        assert share == pytest.approx(0.75, abs=0.04)


def test_draw_depends_only_on_round_and_seed():
    reports = measured(GRADIENTS)
    one = select(ByAlignment(20), reports, 3, 4).tolist()
    assert one == select(ByAlignment(20), replace(reports, delta=torch.ones(6, 0)), 3, 4).tolist()
    assert len({tuple(select(ByAlignment(20), reports, t, s).tolist()) for t in range(5) for s in range(5)}) == 25


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ByAlignment(0), "cohort_size: got 0, needed a whole number >= 1"),
        (
            lambda: ByGradientNorm(2.5),
            "cohort_size: got 2.5, needed a whole number >= 1, a share of the clients, 0 < share <= 1",
        ),  # type: ignore[arg-type]
        (lambda: ByAlignmentAndInexactness(cohort_size=True), "cohort_size: got True"),
        (lambda: ByAlignmentAndInexactness(psi=-1.0), "psi: got -1.0, needed a finite number >= 0"),
        (lambda: ByAlignmentAndInexactness(psi=float("nan")), "psi: got nan"),
    ],
)
def test_invalid_arguments_raise(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
