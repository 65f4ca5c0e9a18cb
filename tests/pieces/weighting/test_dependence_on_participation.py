"""Declared dependence of reports on the participation of other clients, and the samplings that it permits."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.tiny import federation, report

import turnout as to
from turnout import ConfigurationError
from turnout.base.server_step import server_step
from turnout.pieces.aggregation import PrivateSum

N, P = 8, 3
GROUPS = (0, 1) * 4
WEIGHTINGS = {
    "participation": to.weighting.Participation(cutoff=3),
    "exponential": to.weighting.Participation(cutoff=3, average="exponential"),
    "groups": to.weighting.Participation(cutoff=3, groups=GROUPS),
    "rates": to.weighting.KnownRates(rates=(0.5,) * N),
    "smoothed": to.weighting.BySmoothedRate(beta=0.2),
    "staleness": to.weighting.ByStaleness(),
    "expected staleness": to.weighting.ExpectedStaleness(),
    "echo": to.weighting.Echo(),
    "examples": to.weighting.ByExamples(),
    "examples up to": to.weighting.ExamplesUpTo(5),
    "appeal": to.weighting.Appeal(),
    "by clients": to.weighting.DivideByClients(),
    "by participants": to.weighting.DivideByParticipants(),
    "by sum": to.weighting.DivideBySum(),
    "by absolute sum": to.weighting.DivideByAbsoluteSum(),
    "by sum plus": to.weighting.DivideBySumPlus(0.1),
}


def weight_of_the_last(piece, draws):
    """Return the weight of the last client in the third of three rounds, with staleness two."""
    known = federation(N, P)
    state, weights = piece.init(known), torch.zeros(0)
    for t, clients in enumerate(draws):
        seen = {"appeal_gap": torch.ones(len(clients), dtype=torch.float64)}
        sent = replace(report(clients, num_params=P, seen=seen), version=np.full(len(clients), max(t - 2, 0)))
        if not clients:
            continue
        weights, state = piece.apply(torch.ones(len(clients), dtype=torch.float64), sent, t, state, known)
    return float(weights[-1])


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_only_declared_weightings_depend_on_others_participation(name):
    piece = WEIGHTINGS[name]
    found = {weight_of_the_last(piece, draws) for draws in (([7], [], [7]), ([1, 7], [3], [7]), ([7], [], [1, 3, 7]))}
    assert (len(found) > 1) == (piece.participation == "others")
    if piece.participation == "none":
        assert {weight_of_the_last(piece, ([1], [], [7]))} == found


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_weightings_with_shared_participation_are_refused_with_poisson(name):
    piece = WEIGHTINGS[name]
    ends = () if isinstance(piece, to.weighting.DivideByClients) else (to.weighting.DivideByClients(),)
    if hasattr(piece, "divisor_is_public"):
        ends = ()
    if isinstance(piece, to.weighting.Appeal):
        ends = (to.local.AppealGap(), *ends)
    pieces = (piece, *ends, to.selection.Poisson(0.1), PrivateSum(sampling_rate=0.1, cohort=None))
    if piece.participation != "others":
        assert to.compose(*pieces).privacy is not None
        return
    with pytest.raises(ConfigurationError, match=r"PrivateSum: |sampling_rate: "):
        to.compose(*pieces)


def test_refusals_give_the_reason():
    pieces = (to.weighting.DivideByClients(), to.selection.Poisson(0.1), PrivateSum(sampling_rate=0.1))
    with pytest.raises(ConfigurationError, match="Participation treats a client's report by which other clients were"):
        to.compose(to.weighting.Participation(groups=GROUPS), *pieces)
    slow = to.server.Amsgrad(delays="paper")
    with pytest.raises(ConfigurationError, match="ServerAmsgrad treats a client's report by which other clients were"):
        to.compose(*pieces, slow)
    assert to.compose(*pieces, replace(slow, delays="ignored")).privacy is not None
    fixed = (
        to.weighting.DivideByParticipants(),
        to.selection.Uniform(2),
        PrivateSum(cohort=2, sampled_from=8),
        to.Sgd(sampling="fresh"),
    )
    with pytest.raises(ConfigurationError, match="with ServerAmsgrad, a client's contribution depends on"):
        to.compose(*fixed, slow)

    class Unknown(to.weighting.ByExamples):
        """Inherit the declaration of the base class; without one, the piece is refused."""

        participation = to.pieces.Weighting.participation

    with pytest.raises(ConfigurationError, match="Unknown treats"):
        to.compose(Unknown(), *pieces)


def test_unsampled_client_leaves_no_trace_in_contributions_of_others():
    """The attack: the change of the model in a round without client 0, with and without it in an earlier round."""
    known, moves = federation(N, P), []
    algorithm = to.compose(
        to.weighting.Participation(),
        to.weighting.DivideByClients(),
        to.selection.Poisson(0.1),
        PrivateSum(noise_multiplier=0.0, sampling_rate=0.1),
    )
    for first in ([0, 2], [2]):
        state = algorithm.init(torch.zeros(P, dtype=torch.float64), known)
        before = state.params
        for t, clients in enumerate((first, [], [2, 4])):
            before = state.params
            state, _ = server_step(algorithm, state, report(clients, num_params=P, version=t), known)
        moves.append(state.params - before)
    torch.testing.assert_close(moves[0], moves[1])
