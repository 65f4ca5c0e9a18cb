"""`Participation` compared with FedAU's counter and recursion, over 288 sequences of participation for each cutoff."""

import numpy as np
import pytest
import torch

from turnout import compose
from turnout.base.server_step import server_step
from turnout.core.types import ServerState
from turnout.pieces.weighting import DivideByClients, Participation

from ..tiny import federation, presence, report
from .weights import algorithm_2, counted, exponential

CUTOFFS = (1, 3, 10, 50, None)
N, T = 8, 60


def weights_of(piece, present):
    """Weights ``[T + 1, N]`` that the server used or would have used, from `server_step` and `client_weights`."""
    algorithm, known = compose(piece, DivideByClients()), federation(num_clients=present.shape[1], num_params=1)
    state: ServerState = algorithm.init(torch.zeros(1, dtype=torch.float64), known)
    rows = []
    for there in present:
        everyone = piece.client_weights(state.version, state.slots["weighting.0"], known)
        clients = np.flatnonzero(there)
        state, info = server_step(algorithm, state, report(clients, num_params=1), known)
        np.testing.assert_array_equal(info["weights"].numpy() * len(everyone), everyone[clients])
        rows.append(everyone)
    return np.array([*rows, piece.client_weights(state.version, state.slots["weighting.0"], known)])


@pytest.mark.parametrize("cutoff", CUTOFFS)
# Powers of two, so that dividing by them and multiplying by them again is exact.
@pytest.mark.parametrize(("num_clients", "seed"), [(N, 0), (N, 1), (N, 2), (N, 3), (256, 4)])
def test_equals_the_per_round_counter(cutoff, num_clients, seed):
    present = presence(T, num_clients, seed)
    assert (~present.any(axis=1)).any()  # empty rounds are among them
    ours = weights_of(Participation(cutoff), present)
    np.testing.assert_array_equal(ours, counted(present, cutoff))
    np.testing.assert_allclose(ours, algorithm_2(present, cutoff), rtol=1e-12)


@pytest.mark.parametrize("cutoff", CUTOFFS)
@pytest.mark.parametrize(("rate", "seed"), [(0.1, 0), (0.5, 1), (1.0, 0)])
def test_exponential_average_equals_its_recursion(cutoff, rate, seed):
    present = presence(T, N, seed)
    ours = weights_of(Participation(cutoff, average="exponential", rate=rate), present)
    np.testing.assert_allclose(ours, algorithm_2(present, cutoff, update=exponential(rate)), rtol=1e-12)


@pytest.mark.parametrize("cutoff", CUTOFFS)
@pytest.mark.parametrize("groups", [(0,) * 8, (0, 1, 0, 1, 2, 2, 2, 0), (3, 1, 3, 1, 1, 0, 0, 5)])
def test_groups_share_the_variables_of_algorithm_2(cutoff, groups):
    present, other = (presence(T, N, seed) for seed in range(2))
    ours = weights_of(Participation(cutoff, groups=groups), present)
    np.testing.assert_allclose(ours, algorithm_2(present, cutoff, groups), rtol=1e-12)
    forgetting = Participation(cutoff, average="exponential", rate=0.2, groups=groups)
    expected = algorithm_2(other, cutoff, groups, update=exponential(0.2))
    np.testing.assert_allclose(weights_of(forgetting, other), expected, rtol=1e-12)


def test_counter_equals_the_recursion():
    for cutoff in CUTOFFS:
        present = presence(300, 8, seed=99)
        np.testing.assert_allclose(counted(present, cutoff), algorithm_2(present, cutoff), rtol=1e-12)
