"""FedAU's participation weights."""

import numpy as np
import pytest
import torch
from tests.tiny import federation, report

from turnout import ConfigurationError, compose
from turnout.base.server_step import server_step
from turnout.pieces.weighting import DivideByClients, Participation


def run(piece, there, at_the_end=False):
    """Return the weights of all clients before each round and after the last, ``[T + 1, N]``, or only the latter."""
    known = federation(there.shape[1], 1)
    algorithm = compose(piece, DivideByClients())
    state, rows = algorithm.init(torch.zeros(1, dtype=torch.float64), known), []
    for present in there:
        if not at_the_end:
            rows.append(piece.client_weights(state.version, state.slots["weighting.0"], known))
        state, _ = server_step(algorithm, state, report(np.flatnonzero(present), num_params=1), known)
    return np.array([*rows, piece.client_weights(state.version, state.slots["weighting.0"], known)])


def test_equals_a_hand_computed_example():
    """K = 3; available in rounds 1, 2 and 8: intervals 2, 1, then 3 and 3 cut off, of which the visit ends the last."""
    there = np.zeros((10, 1), dtype=bool)
    there[[1, 2, 8], 0] = True
    expected = [1, 1, 2, 1.5, 1.5, 1.5, 2, 2, 2, 2.25, 2.25]
    np.testing.assert_array_equal(run(Participation(3), there)[:, 0], expected)


def test_absent_client_has_weight_k_after_k_rounds():
    weights = run(Participation(7), np.zeros((30, 2), dtype=bool))
    assert (weights[:7] == 1).all()
    assert (weights[7:] == 7).all()
    assert (run(Participation(None), np.zeros((30, 2), dtype=bool)) == 1).all()


def test_always_available_client_has_weight_1():
    for piece in (Participation(5), Participation(None), Participation(5, average="exponential")):
        assert (run(piece, np.ones((30, 2), dtype=bool)) == 1).all()


def test_cutoff_1_gives_weight_1():
    there = np.random.default_rng(0).random((50, 8)) < 0.3
    assert (run(Participation(1), there) == 1).all()


@pytest.mark.parametrize("cutoff", [2, 5, 20, None])
def test_weights_are_between_1_and_the_cutoff(cutoff):
    there = np.random.default_rng(1).random((300, 40)) < np.linspace(0.01, 0.99, 40)
    weights = run(Participation(cutoff), there)
    assert (weights >= 1).all()
    assert (weights <= (cutoff or 300)).all()


@pytest.mark.parametrize(("p", "cutoff"), [(0.1, 5), (0.1, 50), (0.1, None), (0.4, 1), (0.4, 5), (0.9, 5), (0.9, None)])
def test_mean_interval_converges_to_its_expectation(p, cutoff):
    """E[S] = (1 - (1 - p)^K) / p; the mean of n such intervals is within 5 standard errors, Var[S] < 1 / p^2."""
    N, T = 200, 300
    weights = run(Participation(cutoff), np.random.default_rng(2).random((T, N)) < p, at_the_end=True)[-1]
    expected = (1 - (1 - p) ** cutoff) / p if cutoff else 1 / p
    intervals = N * T / expected
    # Without a cutoff the interval that is still open is missing: a bias of the order of E[S] over the rounds so far.
    assert abs(weights.mean() - expected) < 5 / p / np.sqrt(intervals) + 2 * expected**2 / T * (cutoff != 1)


def test_first_weight_is_1_and_a_round_does_not_affect_its_own_weight():
    piece, known = Participation(50), federation(4, 1)
    state = piece.init(known)
    ones = torch.ones(2, dtype=torch.float64)
    weights, _ = piece.apply(ones, report([1, 3]), 9, state, known)
    assert weights.tolist() == [1.0, 1.0]  # the interval of 10 that this round ends counts from the next on
    weights, _ = piece.apply(ones, report([1, 2]), 10, state, known)
    assert weights.tolist() == [10.0, 1.0]


def test_earlier_weights_are_multiplied():
    piece, known = Participation(None), federation(2, 1)
    state = piece.init(known)
    piece.apply(torch.ones(1).double(), report([0]), 3, state, known)
    weights, _ = piece.apply(torch.tensor([5.0]).double(), report([0]), 4, state, known)
    assert weights.tolist() == [20.0]


@pytest.mark.parametrize("piece", [Participation(3), Participation(3, average="exponential")])
def test_two_reports_of_a_client_in_a_round_count_once(piece):
    known = federation(2, 1)
    once, twice = piece.init(known), piece.init(known)
    for version in (0, 4, 5):
        piece.apply(torch.ones(1).double(), report([1]), version, once, known)
        weights, _ = piece.apply(torch.ones(2).double(), report([1, 1]), version, twice, known)
        assert weights[0] == weights[1]
    for name in once:
        assert torch.equal(once[name], twice[name])


def test_state_has_three_numbers_per_client():
    assert {k: v.shape for k, v in Participation().init(federation(9)).items()} == {
        "intervals": (9,),
        "last": (9,),
        "total": (9,),
    }
    assert {k: v.shape for k, v in Participation(groups=(0, 1) * 4).init(federation(8)).items()} == {
        "intervals": (2,),
        "last": (2,),
        "total": (2,),
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"cutoff": 0},
            "cutoff: got 0, needed a whole number >= 1. Write cutoff=None for no cutoff; 1 would",
        ),
        ({"cutoff": -5}, "cutoff: got -5"),
        ({"cutoff": 2.5}, "cutoff: got 2.5"),
        ({"average": "median"}, "unknown value of average 'median'"),
        ({"rate": 0}, "rate: got 0, needed a number > 0 and <= 1"),
        ({"rate": 1.5}, "rate: got 1.5, needed a number > 0 and <= 1"),
        ({"rate": "fast"}, "rate: got 'fast'"),
        ({"groups": ()}, r"groups: got \(\), needed one group number >= 0 for each client"),
        ({"groups": (0, -1)}, r"groups: got \(0, -1\)"),
        ({"groups": (0, 0.5)}, r"groups: got \(0, 0.5\)"),
    ],
)
def test_invalid_arguments_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Participation(**options)


def test_groups_that_omit_clients_are_refused():
    with pytest.raises(ConfigurationError, match="groups has a number for 3 clients, but there are 8"):
        compose(Participation(groups=(0, 1, 0)), DivideByClients()).init(torch.zeros(3), federation(8))
