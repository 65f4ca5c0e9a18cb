"""Weighted sums, and the tables of FedVARP and MIFA."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.tiny import federation, report

from turnout.pieces.aggregation import FedVarp, Mifa, WeightedSum

N, P = 5, 4
KNOWN = federation(N, P)


def rows(*values):
    return torch.tensor([[v] * P for v in values]).double()


def even(n):
    return torch.full((n,), 1.0 / n).double()


def test_weighted_sum_equals_the_product():
    direction, state = WeightedSum().apply(torch.tensor([0.5, 2.0]).double(), report([0, 1], rows(1.0, 3.0)), {}, KNOWN)
    assert direction.tolist() == [6.5] * P
    assert state == {}


def test_weighted_sum_keeps_the_type_of_the_updates():
    direction, _ = WeightedSum().apply(even(1), report([0], torch.ones(1, P)), {}, KNOWN)
    assert direction.dtype == torch.float32


def test_fedvarp_equals_a_hand_computed_example():
    piece = FedVarp()
    state = piece.init(KNOWN)
    direction, state = piece.apply(even(2), report([0, 1], rows(10.0, 20.0)), state, KNOWN)
    assert direction.tolist() == [15.0] * P  # Y = 0: the plain mean
    direction, state = piece.apply(even(2), report([1, 2], rows(30.0, 5.0)), state, KNOWN)
    assert direction.tolist() == [30 / 5 + (10 + 5) / 2] * P  # mean Y was 30 / 5
    assert state["table"][:, 0].tolist() == [10.0, 30.0, 5.0, 0.0, 0.0]
    assert state["mean"].tolist() == [9.0] * P


def test_mifa_equals_a_hand_computed_example():
    piece = Mifa()
    state = piece.init(KNOWN)
    direction, state = piece.apply(even(2), report([0, 1], rows(10.0, 20.0)), state, KNOWN)
    assert direction.tolist() == [6.0] * P
    direction, state = piece.apply(even(1), report([1], rows(30.0)), state, KNOWN)
    assert direction.tolist() == [8.0] * P
    direction, state = piece.apply(even(1)[:0], report([], num_params=P), state, KNOWN)
    assert direction.tolist() == [8.0] * P
    assert Mifa.acts_alone
    assert not FedVarp.acts_alone


def test_running_mean_equals_the_mean_of_the_table():
    rng = np.random.default_rng(0)
    for piece in (FedVarp(), Mifa()):
        state = piece.init(KNOWN)
        for _ in range(200):
            clients = rng.permutation(N)[: rng.integers(1, N + 1)]
            one = report(clients, torch.from_numpy(rng.normal(size=(len(clients), P))))
            _, state = piece.apply(even(len(clients)), one, state, KNOWN)
        torch.testing.assert_close(state["mean"], state["table"].mean(dim=0), rtol=0, atol=1e-13)


def test_tables_use_n_times_p_numbers_of_the_update_dtype():
    state = Mifa().init(federation(N, P, dtype=torch.float32))
    assert state["table"].shape == (N, P)
    assert state["table"].dtype == torch.float32
    assert state["mean"].dtype == torch.float64
    direction, _ = Mifa().apply(even(1), report([0], torch.ones(1, P)), state, federation(N, P, dtype=torch.float32))
    assert direction.dtype == torch.float32


def test_mean_stays_finite_for_opposite_updates_near_the_dtype_maximum():
    largest = torch.finfo(torch.float32).max
    known = federation(N, P, dtype=torch.float32)
    for piece in (FedVarp(), Mifa()):
        state = piece.init(known)
        for sign in (1.0, -1.0):
            _, state = piece.apply(even(1), report([0], torch.full((1, P), sign * largest)), state, known)
        assert torch.isfinite(state["mean"]).all()


def test_latest_version_wins_among_reports_of_one_client():
    several = replace(report([2, 2, 2], rows(1.0, 7.0, 3.0)), version=np.array([0, 2, 1]))
    for piece in (FedVarp(), Mifa()):
        _, state = piece.apply(even(3), several, piece.init(KNOWN), KNOWN)
        assert state["table"][2].tolist() == [7.0] * P
        assert state["mean"].tolist() == pytest.approx([7.0 / N] * P)
