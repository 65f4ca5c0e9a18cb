"""MW-Fed's weights."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import federation, report

from turnout import ConfigurationError, Sgd, compose, mw_fed
from turnout.pieces.local import AppealGap
from turnout.pieces.weighting import DivideBySum, MultiplicativeWeights

N = 6
KNOWN = federation(N)


def after(rounds, piece=None):
    """The state after rounds of (clients, gaps)."""
    piece = piece or MultiplicativeWeights()
    state = piece.init(KNOWN)
    for clients, gaps in rounds:
        one = report(clients, seen={"appeal_gap": torch.tensor(gaps, dtype=torch.float64)})
        _, state = piece.apply(torch.ones(len(clients), dtype=torch.float64), one, 0, state, KNOWN)
    return state


def weights(state, piece=None):
    return (piece or MultiplicativeWeights()).client_weights(0, state, KNOWN)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, N - 1), st.floats(-1, 1)), max_size=N), max_size=30), st.floats(1.1, 9)
)
def test_equals_direct_multiplication_and_normalization(rounds, factor):
    piece, v = MultiplicativeWeights(factor), np.full(N, 1 / N)
    rounds = [tuple(zip(*dict(pairs).items(), strict=True)) for pairs in rounds if pairs]
    for clients, gaps in rounds:
        for k, gap in zip(clients, gaps, strict=True):
            v[k] *= factor if gap >= 0 else 1.0
        v /= v.sum()
    np.testing.assert_allclose(weights(after(rounds, piece), piece), v, rtol=1e-9)


def test_content_client_keeps_its_weight_and_zero_gap_is_not_content():
    state = after([((0, 1, 2), (-0.1, 0.0, 2.0))])
    assert state["times"].tolist() == [0, 1, 1, 0, 0, 0]


def test_weights_stay_finite_and_normalized_after_a_thousand_rounds():
    state = after([((0, 1), (1.0, 1.0))] * 1000 + [((0,), (1.0,))])
    found = weights(state)
    np.testing.assert_allclose(found[:2], [0.8, 0.2], rtol=1e-9)
    assert found.sum() == pytest.approx(1.0)
    assert (found >= 0).all()


def test_round_uses_weights_of_earlier_rounds():
    piece = MultiplicativeWeights()
    one = report([1, 4], seen={"appeal_gap": torch.ones(2)})
    ones = torch.ones(2, dtype=torch.float64)
    first, state = piece.apply(ones, one, 0, piece.init(KNOWN), KNOWN)
    assert first.tolist() == pytest.approx([1 / N] * 2)
    second, _ = piece.apply(ones, one, 1, state, KNOWN)
    assert second.tolist() == pytest.approx([4 / 12] * 2)


def test_shares_have_mean_one():
    state = after([((1, 4), (1.0, 1.0))])
    share = MultiplicativeWeights().per_client_inputs(np.arange(N), state, KNOWN)["share"]
    assert share.mean() == pytest.approx(1.0)
    assert share.tolist() == pytest.approx([0.5, 2.0, 0.5, 0.5, 2.0, 0.5])


def test_two_reports_of_a_client_count_once():
    twice = after([((1, 1, 2), (1.0, 1.0, 1.0))])
    assert twice["times"].tolist() == [0, 1, 1, 0, 0, 0]
    np.testing.assert_allclose(weights(twice), weights(after([((1, 2), (1.0, 1.0))])))


def test_recipe_declares_the_maximum_work():
    local = mw_fed(Sgd(steps=7), most=3.0).local
    assert isinstance(local, Sgd)
    assert local.steps.most == 3.0  # type: ignore[union-attr]


def test_invalid_options_and_missing_measurements_raise():
    with pytest.raises(ConfigurationError, match=r"factor: got 1\.0, needed a number > 1"):
        MultiplicativeWeights(1.0)
    with pytest.raises(ConfigurationError, match=r"factor: got nan, needed a finite number > 0"):
        MultiplicativeWeights(float("nan"))
    with pytest.raises(ConfigurationError, match=r"reads appeal_gap of every report.*add AppealGap\(\)"):
        compose(MultiplicativeWeights(), DivideBySum())
    assert compose(AppealGap(), MultiplicativeWeights(), DivideBySum()).measurements == (AppealGap(),)
