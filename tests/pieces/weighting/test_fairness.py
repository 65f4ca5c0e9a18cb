"""q-FFL's step: its limits, and what no loss may do to it; the rule itself is compared in tests/oracles."""

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
def test_at_q_0_it_is_the_mean(loss, value):
    assert weights_of(loss, [[value]] * len(loss), 0.0).tolist() == pytest.approx([1 / len(loss)] * len(loss))


def test_large_q_leaves_the_worst_served_alone():
    weights = weights_of([1.0, 2.0, 1.9], [[1.0]] * 3, 500.0)
    assert weights[1] > 1e9 * weights[2] > 0
    assert weights[0] < 1e-100


def test_the_worse_served_count_more_and_a_larger_q_makes_smaller_steps():
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
def test_no_loss_and_no_update_makes_nan(loss, q, value):
    weights = weights_of(loss, [[value]] * len(loss), q)
    assert torch.isfinite(weights).all()
    assert (weights >= 0).all()
    assert weights.sum() <= 1 + 1e-12


def test_earlier_weights_count_in_both_sums():
    twice = weights_of([1.0, 2.0], [[1.0], [3.0]], 1.0, weights=torch.tensor([2.0, 1.0], dtype=torch.float64))
    thrice = weights_of([1.0, 1.0, 2.0], [[1.0], [1.0], [3.0]], 1.0)
    assert twice.tolist() == pytest.approx([float(thrice[:2].sum()), float(thrice[2])])


def test_the_step_size_is_that_of_the_round():
    lr = Halving(0.4, start=1, every=1, most=1)
    old = report([0, 1], version=0, seen={"start_loss": torch.ones(2)})
    new = report([0, 1], version=1, seen={"start_loss": torch.ones(2)})
    ones = torch.ones(2, dtype=torch.float64)
    for one, gamma in ((old, 0.4), (new, 0.2)):
        expected = DivideByCurvature(1.0, gamma).apply(ones, one, 0, {}, KNOWN)[0]
        assert torch.equal(DivideByCurvature(1.0, lr).apply(ones, one, 0, {}, KNOWN)[0], expected)
    assert qffl(Sgd(lr=lr)).weighting == (DivideByCurvature(1.0, lr),)


def test_the_step_size_must_be_that_of_the_local_rule():
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
def test_bad_options(options, message):
    with pytest.raises(ConfigurationError, match=message):
        DivideByCurvature(**options)
