"""q-FFL's step: limits and extreme losses. `tests/oracles` compares the rule itself."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import federation, report

from turnout import ConfigurationError, Sgd, compose, qffl
from turnout.core.schedule import Halving
from turnout.pieces.local import StartLoss
from turnout.pieces.weighting import DivideByCurvature

KNOWN = federation()


def weights_of(loss, delta, q, lr=0.1, weights=None):
    loss = torch.tensor(loss, dtype=torch.float64)
    one = report(range(len(loss)), torch.tensor(delta, dtype=torch.float64), seen={"start_loss": loss})
    weights = torch.ones(len(loss), dtype=torch.float64) if weights is None else weights
    return DivideByCurvature(q, lr).apply(weights, one, 0, {}, KNOWN)[0]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=6), st.floats(-5, 5))
def test_q_zero_is_the_mean(loss, value):
    assert weights_of(loss, [[value]] * len(loss), 0.0).tolist() == pytest.approx([1 / len(loss)] * len(loss))


def test_large_q_uses_only_the_worst_served_client():
    weights = weights_of([1.0, 2.0, 1.9], [[1.0]] * 3, 500.0)
    assert weights[1] > 1e9 * weights[2] > 0
    assert weights[0] < 1e-100


def test_higher_loss_has_higher_weight_and_larger_q_has_smaller_steps():
    for q in (0.5, 1.0, 2.0, 10.0):
        weights = weights_of([1.0, 2.0], [[1.0], [1.0]], q)
        assert weights[1] / weights[0] == pytest.approx(2.0**q)
    sums = [float(weights_of([1.0, 2.0], [[1.0], [1.0]], q).sum()) for q in (0.0, 1.0, 3.0, 10.0)]
    assert sums == sorted(sums, reverse=True)


@given(
    st.lists(st.sampled_from([-1.0, 0.0, 1e-300, 1e-10, 1.0, 1e3, 1e30, 1e300]), min_size=1, max_size=5),
    st.sampled_from([0.0, 0.1, 1.0, 10.0, 1000.0]),
    st.sampled_from([0.0, 1e-200, 1.0, 1e30, 1e160]),
)
def test_no_loss_or_update_gives_nan(loss, q, value):
    weights = weights_of(loss, [[value]] * len(loss), q)
    assert torch.isfinite(weights).all()
    assert (weights >= 0).all()
    assert weights.sum() <= 1 + 1e-12


def test_earlier_weights_enter_both_sums():
    twice = weights_of([1.0, 2.0], [[1.0], [3.0]], 1.0, weights=torch.tensor([2.0, 1.0], dtype=torch.float64))
    thrice = weights_of([1.0, 1.0, 2.0], [[1.0], [1.0], [3.0]], 1.0)
    assert twice.tolist() == pytest.approx([float(thrice[:2].sum()), float(thrice[2])])


def test_step_size_is_that_of_the_round():
    lr = Halving(0.4, start=1, every=1, most=1)
    old = report([0, 1], version=0, seen={"start_loss": torch.ones(2)})
    new = report([0, 1], version=1, seen={"start_loss": torch.ones(2)})
    ones = torch.ones(2, dtype=torch.float64)
    for one, gamma in ((old, 0.4), (new, 0.2)):
        expected = DivideByCurvature(1.0, gamma).apply(ones, one, 0, {}, KNOWN)[0]
        assert torch.equal(DivideByCurvature(1.0, lr).apply(ones, one, 0, {}, KNOWN)[0], expected)
    assert qffl(Sgd(lr=lr)).weighting == (DivideByCurvature(1.0, lr),)


def test_different_local_step_size_is_refused():
    with pytest.raises(
        ConfigurationError, match=r"step size, 0\.2 here, .*lr=0\.1: write DivideByCurvature\(lr=0\.2\)"
    ):
        compose(Sgd(lr=0.2), StartLoss(), DivideByCurvature())
    with pytest.raises(ConfigurationError, match=r"reads start_loss of every report.*add StartLoss\(\)"):
        compose(DivideByCurvature())


@pytest.mark.parametrize(
    ("options", "message"),
    [({"q": -1.0}, r"q: got -1\.0, needed a finite number >= 0"), ({"lr": 0.0}, r"lr: got 0\.0, needed")],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        DivideByCurvature(**options)
