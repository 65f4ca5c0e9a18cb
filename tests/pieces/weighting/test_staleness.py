"""Weights of stale reports."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import federation, report

from turnout import ConfigurationError, compose, fedasync
from turnout.base.server_step import server_step
from turnout.pieces.weighting import ByStaleness, DivideBySum, ExpectedStaleness, Participation


def buffer(clients, taus, version):
    """Reports of `clients`, stale by `taus` at this version."""
    sent = report(clients)
    object.__setattr__(sent, "version", version - np.asarray(taus))
    return sent


def weights(piece, *buffers, num_clients=8):
    """The weights of the last buffer."""
    known, state, found = federation(num_clients), piece.init(federation(num_clients)), None
    for version, (clients, taus) in enumerate(buffers, 100):
        sent = buffer(clients, taus, version)
        found, state = piece.apply(torch.ones(len(sent), dtype=torch.float64), sent, version, state, known)
    assert found is not None
    return found.numpy()


def test_first_reports_follow_equation_8():
    np.testing.assert_allclose(weights(ExpectedStaleness(), ([3, 5], [4, 0])), [9 / 8, 1 / 8])


def test_window_forgets_the_oldest_first():
    buffers = [([2], [tau]) for tau in (50, 1, 2, 3, 4, 5)]
    np.testing.assert_allclose(weights(ExpectedStaleness(), *buffers) * 8, [3.0 + 1])
    np.testing.assert_allclose(weights(ExpectedStaleness(average="cumulative"), *buffers) * 8, [65 / 6 + 1])
    np.testing.assert_allclose(weights(ExpectedStaleness(average="authors_window"), *buffers) * 8, [(50 + 11) / 5 + 1])


def test_both_reports_of_a_client_are_recorded_with_equal_weight():
    found = weights(ExpectedStaleness(), ([1, 1, 4], [6, 2, 0]))
    np.testing.assert_allclose(found * 8, [4 * 3 + 1, 4 * 3 + 1, 1])


@given(st.lists(st.integers(0, 7), min_size=1, max_size=12))
def test_zero_staleness_gives_equal_weights(clients):
    found = weights(ExpectedStaleness(), (clients, np.zeros(len(clients), dtype=int)))
    assert (found == found[0]).all()
    assert found[0] > 0


def test_authors_variant_leaves_the_model_unchanged_if_all_reports_are_fresh():
    algorithm, known = compose(ExpectedStaleness("authors_code"), DivideBySum()), federation()
    state = algorithm.init(torch.ones(5, dtype=torch.float64), known)
    state, info = server_step(algorithm, state, buffer([0, 1], [0, 0], 0), known)
    assert (info["weights"] == 0).all()
    assert (state.params == 1).all()


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.sampled_from(["window", "cumulative", "exponential"]))
def test_weight_times_share_of_reports_is_equal_for_expected_staleness(taus, average):
    """Equations (6) to (8): with the share ``p = 1 / (E[tau] B + 1)`` of all reports, ``w p`` is 1 / N for every client."""
    buffer = (list(range(len(taus))), taus)
    share = 1 / (np.array(taus) * len(taus) + 1)
    found = weights(ExpectedStaleness(average=average), *[buffer] * 7)
    np.testing.assert_allclose(found * share, 1 / 8)


@given(st.integers(0, 10_000), st.sampled_from(["constant", "polynomial", "exponential", "hinge"]))
def test_discounts_are_one_at_zero_and_never_increase(tau, rule):
    piece = ByStaleness(rule)
    fresh, some, more = piece.of(np.array([0, tau, tau + 1]))
    assert fresh == 1
    assert 0 <= more <= some <= 1


def test_discounts_equal_known_values():
    taus = np.array([0, 3, 4, 6])
    np.testing.assert_allclose(ByStaleness().of(taus), [1, 0.5, 5**-0.5, 7**-0.5])
    np.testing.assert_allclose(ByStaleness("hinge").of(taus), [1, 1, 1, 1 / 21])
    np.testing.assert_allclose(ByStaleness("exponential", base=2.0).of(taus), [1, 8, 16, 64])


def test_reverse_exponential_is_finite_for_any_staleness():
    piece = compose(ByStaleness("exponential", base=2.0), DivideBySum())
    state = piece.init(torch.zeros(5, dtype=torch.float64), federation())
    _, info = server_step(piece, state, buffer([0, 1], [5000, 0], 0), federation())
    np.testing.assert_allclose(info["weights"], [1, 0], atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ExpectedStaleness("papr"), "unknown value of rule 'papr'"),  # type: ignore[arg-type]
        (lambda: ExpectedStaleness(average="windw"), "unknown value of average 'windw'"),  # type: ignore[arg-type]
        (lambda: ExpectedStaleness(window=0), "window: got 0, needed a whole number >= 1"),
        (lambda: ExpectedStaleness(rate=1.5), "rate: got 1.5, needed a number > 0 and <= 1"),
        (lambda: ExpectedStaleness(rate=0.0), "rate: got 0.0, needed a number > 0 and <= 1"),
        (lambda: ByStaleness("linear"), "unknown value of rule 'linear'"),  # type: ignore[arg-type]
        (lambda: ByStaleness(exponent=-1.0), "exponent: got -1.0, needed a finite number >= 0"),
        (lambda: ByStaleness(base=0.0), "base: got 0.0"),
        (lambda: ByStaleness(slope=0.0), "slope: got 0.0"),
        (lambda: ByStaleness(grace=-1), "grace: got -1"),
        (lambda: fedasync(alpha=1.5), "alpha: got 1.5, needed a number > 0 and <= 1"),
        (
            lambda: compose(Participation(), ExpectedStaleness(), DivideBySum()),
            "both weigh a client by 1/p_n",
        ),
    ],
)
def test_invalid_arguments_raise(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
