"""Composition of algorithms from pieces."""

import pytest
import torch

from turnout import ConfigurationError, Sgd, compose, fedau, fedavg
from turnout.base import Correction, Guard, Weighting
from turnout.pieces.aggregation import FedVarp, Mifa, WeightedSum
from turnout.pieces.local import Prox
from turnout.pieces.selection import AllAvailable, Uniform
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import (
    ByExamples,
    DivideByClients,
    DivideByParticipants,
    DivideBySum,
    KnownRates,
    Participation,
)

from ..tiny import federation, report


class Doubling(Weighting):
    """As short as a weighting gets."""

    def factors(self, report, version, state, federation):
        del state, federation
        return torch.full((len(report),), 2.0 + version)


class Silent(Weighting):
    """Says nothing of weights."""


class Mute(Correction):
    """Says nothing of gradients."""


def test_defaults_are_federated_averaging():
    algorithm = compose()
    assert algorithm.name == "custom"
    assert algorithm.selection == AllAvailable()
    assert algorithm.local == Sgd()
    assert algorithm.corrections == algorithm.guard == ()
    assert algorithm.weighting == (DivideByParticipants(),)
    assert algorithm.aggregation == WeightedSum()
    assert algorithm.server == ServerSgd(1.0)


def test_pieces_fill_their_slots_in_any_order():
    pieces = (ServerSgd(2.0), DivideByClients(), Prox(0.1), Sgd(lr=0.3), Uniform(4))
    algorithm = compose(*pieces, name="mine")
    assert algorithm == compose(*reversed(pieces), name="mine")
    assert algorithm.pieces() == {
        "selection": Uniform(4),
        "local": Sgd(lr=0.3),
        "correction.0": Prox(0.1),
        "weighting.0": DivideByClients(),
        "aggregation": WeightedSum(),
        "server": ServerSgd(2.0),
    }


def test_step_size_of_the_server_is_that_of_its_plain_step():
    assert compose(server_lr=0.5) == compose(ServerSgd(0.5))
    with pytest.raises(ConfigurationError, match="ServerSgd and ServerSgd are both for the slot 'server'"):
        compose(ServerSgd(), server_lr=0.5)


def test_chains_keep_their_order():
    class Noise(Guard):
        def apply(self, report, task, memory, clients):
            del task, memory, clients
            return report

    one, two = Noise(), Noise()
    algorithm = compose(Prox(0.1), one, ByExamples(), Prox(0.2), Participation(), two, DivideBySum())
    assert algorithm.corrections == (Prox(0.1), Prox(0.2))
    assert algorithm.guard == (one, two)
    assert algorithm.weighting == (ByExamples(), Participation(), DivideBySum())


def test_recipes_accept_additional_pieces_and_a_name():
    algorithm = fedau(cutoff=7, server_lr=0.5, also=(Uniform(3), Prox(0.2)))
    assert algorithm.weighting == (Participation(7), DivideByClients())
    assert algorithm.selection == Uniform(3)
    assert algorithm.corrections == (Prox(0.2),)
    assert algorithm.server == ServerSgd(0.5)
    assert algorithm.named("fedau, three at a time").name == "fedau, three at a time"
    assert fedavg().weighting == (ByExamples(), DivideBySum())


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ((Sgd(), Sgd()), "Sgd and Sgd are both for the slot 'local', which holds one: keep one of them"),
        ((Uniform(3), AllAvailable()), "Uniform and AllAvailable are both for the slot 'selection'"),
        ((Mifa(), FedVarp()), "Mifa and FedVarp are both for the slot 'aggregation'"),
        ((ServerSgd(), ServerSgd()), "both for the slot 'server'"),
        ((Sgd,), r"takes pieces of an algorithm, got <class .*Sgd'>; write Sgd\(\)"),
        ((0.1,), "takes pieces of an algorithm, got 0.1"),
        ((Participation(),), "weights of Participation need a normalizer after them: DivideByClients"),
        ((ByExamples(), Participation()), "weights of ByExamples, Participation need a normalizer"),
        (
            (DivideByClients(), Participation()),
            "DivideByClients -> Participation; it must end in exactly one normalizer",
        ),
        ((DivideByClients(), DivideBySum()), "DivideByClients -> DivideBySum; it must end in exactly one"),
        (
            (Participation(), KnownRates(), DivideByClients()),
            r"Participation and KnownRates both weigh a client by 1/p_n",
        ),
        (
            (FedVarp(), DivideByClients()),
            r"weighting is DivideByClients, but FedVARP .*: use DivideByParticipants\(\) alone",
        ),
        ((FedVarp(), Participation(), DivideByParticipants()), "weighting is Participation -> DivideByParticipants"),
        ((Mifa(),), r"weighting is DivideByParticipants, but MIFA averages .*use DivideByClients\(\) alone"),
        ((Mifa(), ByExamples(), DivideByClients()), "weighting is ByExamples -> DivideByClients"),
        ((Mute(),), r"Mute does not change gradients: write its correct\(\), or its begin\(\)"),
        ((Silent(), DivideBySum()), r"Silent does not change weights: write its factors\(\), .* or its apply\(\)"),
    ],
)
def test_incompatible_pieces_are_refused(pieces, message):
    with pytest.raises(ConfigurationError, match=message):
        compose(*pieces)


def test_weighting_multiplies_by_its_factors_and_allows_early_summation():
    weights = torch.tensor([1.0, 3.0], dtype=torch.float64)
    found, state = Doubling().apply(weights, report([0, 1]), 5, {"kept": weights}, federation())
    assert found.tolist() == [7.0, 21.0]
    assert found.dtype == torch.float64
    assert state == {"kept": weights}
    assert compose(Doubling(), DivideBySum()).sums_early


def test_initial_state_includes_every_server_piece():
    state = compose(ByExamples(), Participation(), DivideBySum()).init(torch.zeros(5), federation())
    assert state.version == 0
    assert set(state.slots) == {"weighting.0", "weighting.1", "weighting.2", "aggregation", "server"}
    assert set(state.slots["weighting.1"]) == {"intervals", "last", "total"}


def test_selection_is_adapted_to_the_federation():
    with pytest.raises(ConfigurationError, match="cohort_size: got 9, needed at most the number of clients, 8"):
        compose(Uniform(9)).init(torch.zeros(5), federation())
    assert compose(Uniform(8)).init(torch.zeros(5), federation()).params.shape == (5,)
