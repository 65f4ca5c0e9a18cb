"""Client-side noise under masks: opened sums have enough noise, and sums with too many drop-outs are not opened."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.laws.recipes import DATA, LOCAL
from tests.tiny import federation, report

import turnout as to
from turnout import ConfigurationError, privacy
from turnout.core.types import ServerState
from turnout.pieces.aggregation import PrivateSum, SecureSum
from turnout.pieces.aggregation.private_shares import share_deviation, with_noise_under_masks
from turnout.protocol.secure.attendance import Attendance
from turnout.protocol.streaming import StreamingSum
from turnout.simulation import Simulation

N, T, Z, NORM = 8, 3, 1.5, 0.4
SECURE = SecureSum(bits=48, fraction_bits=18, largest=1.0, min_clients=2)
PIECE = PrivateSum(norm=NORM, noise_multiplier=Z, noise_shares=N, dropouts=T, secure=SECURE)


def phases(piece):
    """Return the phases in which clients mask."""
    assert piece.extra is not None
    return piece.extra


def run(piece=PIECE, rounds=3, **options):
    options = {"population": to.Population(to.availability.Everyone()), **options}
    return to.Experiment(DATA, to.models.Logistic(), to.fedau(LOCAL, also=(piece,)), rounds=rounds, **options)


def opened(clients, num_params=20_000, version=0):
    """Return the direction of a round in which these clients send updates of zero: only noise."""
    known = federation(N, num_params)
    algorithm = to.average_all(LOCAL, also=(PIECE,))
    state = ServerState(
        torch.zeros(num_params, dtype=torch.float64), version, algorithm.init(torch.zeros(1), known).slots
    )
    sums = StreamingSum(algorithm, state, known)
    for client in clients:
        sums.add(report([client], torch.zeros(1, num_params, dtype=torch.float64), version=version))
    weights = torch.full((len(clients),), 1 / N, dtype=torch.float64)
    return PIECE.apply(weights, sums.reports(), PIECE.init(known), known)[0]


@pytest.mark.parametrize("there", [N - T, N - 1, N])
def test_opened_sum_has_at_least_the_counted_noise(there):
    """The deviation is z C with the most drop-outs allowed, and larger with fewer; on the grid, so from clients only."""
    found = opened(range(there)) * N
    assert found.std().item() == pytest.approx(Z * NORM * (there / (N - T)) ** 0.5, rel=0.02)
    codes = found * 2.0**SECURE.fraction_bits
    assert (codes - codes.round()).abs().max() < 1e-6


def test_server_adds_the_noise_of_missing_shares():
    """Updates with NaN bring no noise in a simulation: two of five remain."""
    known = federation(N, 20_000)
    algorithm = to.average_all(LOCAL, also=(PIECE,))
    state = algorithm.init(torch.zeros(20_000, dtype=torch.float64), known)
    rows = torch.zeros(5, 20_000, dtype=torch.float64)
    rows[2:] = torch.nan
    sums = StreamingSum(algorithm, state, known)
    sums.add(report(range(5), rows))
    nulled, _ = sums.reports().nulled()
    found, _ = PIECE.apply(torch.full((5,), 1 / N), nulled, PIECE.init(known), known)
    assert (found * N).std().item() == pytest.approx(Z * NORM, rel=0.02)


def test_simulated_noise_is_a_function_of_seed_version_client_and_served_noise_is_fresh():

    def noise(clients, seed, version=0):
        zeros = torch.zeros(len(clients), 10_000, dtype=torch.float64)
        return with_noise_under_masks(PIECE, zeros, report(clients, zeros, version=version), seed)

    drawn = noise([3, 5], 0)
    assert torch.equal(drawn[1:], noise([5], 0))
    others = [noise([3, 5], 1)[0], noise([3], 0, version=1)[0], drawn[1]]
    fresh = [noise([3], None)[0] for _ in range(2)]
    for other in (*others, *fresh):
        assert abs(np.corrcoef(drawn[0], other)[0, 1]) < 0.04
    assert abs(np.corrcoef(fresh[0], fresh[1])[0, 1]) < 0.04
    for each in (drawn, *fresh):
        assert float(each.std()) == pytest.approx(share_deviation(PIECE), rel=0.02)


@pytest.mark.parametrize("colluding", [1, 3])
def test_sum_hides_others_from_clients_that_know_their_own_noise(colluding):
    """Also if one of the others does not clip: what remains has the deviation z C sqrt((n - t - c) / (n - t))."""
    there, zeros = N - T, torch.zeros(N - T, 20_000, dtype=torch.float64)
    zeros[-1] = SECURE.largest
    shares = with_noise_under_masks(PIECE, zeros, report(range(there), zeros), 0)
    rest = shares.sum(dim=0) - shares[:colluding].sum(dim=0)
    assert rest.std().item() == pytest.approx(Z * NORM * ((there - colluding) / there) ** 0.5, rel=0.02)


@pytest.mark.parametrize("size", [0.0, 0.123, -1.0])
def test_possible_shares_do_not_depend_on_the_update(size):
    """They are the multiples of the step up to the largest number that fits, which replaces all beyond it."""
    values = torch.full((1, 20_000), size, dtype=torch.float64)
    values = (values * 2.0**SECURE.fraction_bits).round() / 2.0**SECURE.fraction_bits
    found = with_noise_under_masks(PIECE, values, report([0], values), 3) * 2.0**SECURE.fraction_bits
    assert torch.equal(found, found.round())
    assert abs((found % 2).mean().item() - 0.5) < 0.02
    masking = PIECE.masking
    assert masking is not None
    most = math.floor(masking.code.largest * 2.0**SECURE.fraction_bits)
    beyond = with_noise_under_masks(PIECE, values + 100 * (1 if size >= 0 else -1), report([0], values), 3)
    assert (beyond.abs() * 2.0**SECURE.fraction_bits == most).all()


def test_too_many_drop_outs_give_a_round_of_server_noise_at_full_cost():
    """The attack on the margin: four clients of eight have too little noise, so their sum is not opened."""
    five, four = ([(c, r, r + 1) for c in range(k)] for k, r in ((5, 0), (4, 1)))
    population = to.Population(to.availability.Trace((*five, *four), repeat=False))
    simulation = Simulation(run(rounds=2, population=population))
    simulation.round()
    before = simulation.state.params.clone()
    simulation.round()
    table = simulation.history.rounds
    assert table["num_participants"].to_pylist() == [5, 0]
    assert (simulation.state.params - before).double().std().item() == pytest.approx(Z * NORM / N, rel=0.2)
    release = privacy.Release(Z, is_discrete=True)
    assert table["epsilon"].to_pylist() == [privacy.epsilon(release, k, 1e-5) for k in (1, 2)]
    assert privacy.epsilon(release, 1, 1e-5) > privacy.epsilon(privacy.Release(Z), 1, 1e-5)


def test_weights_do_not_multiply_the_noise():
    """FedAU's weights are applied before the noise."""
    rows = torch.zeros(2, 20_000, dtype=torch.float64)
    found = PIECE.summand(torch.tensor([1.0, 50.0], dtype=torch.float64), report([0, 1], rows), 0)
    assert found is not None
    assert found.std(dim=1).tolist() == pytest.approx([share_deviation(PIECE)] * 2, rel=0.03)


def test_sum_has_room_for_noise_and_a_minimum_of_clients():
    masking = PIECE.masking
    assert masking is not None
    assert masking.code.largest == pytest.approx(NORM + 12 * Z * NORM / 5**0.5)
    assert masking.min_clients == 5
    assert Attendance(phases(PIECE).masking, (0, 0)).share([0, 1, 2, 3]) == []
    assert Attendance(phases(PIECE).masking, (0, 0)).share([0, 1, 2, 3, 4]) == [0, 1, 2, 3, 4]
    narrow = replace(PIECE, secure=replace(SECURE, bits=22))
    with pytest.raises(ConfigurationError, match="does not fit 22 bits"):
        narrow.init(federation(N, 10))
    assert (
        Attendance(phases(replace(PIECE, secure=replace(SECURE, min_clients=7))).masking, (0, 0)).share(range(6)) == []
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"secure": None},
            "dropouts: got 3, a margin of noise that clients add under masks: write noise_shares and secure",
        ),
        ({"noise_shares": None}, "dropouts: got 3, a margin of noise"),
        ({"dropouts": 7}, "dropouts: got 7 of noise_shares=8, and at least two clients .* write dropouts=6 or less"),
        ({"dropouts": -1}, "dropouts"),
        (
            {"secure": SecureSum(fraction_bits=3)},
            "fraction_bits=3, on whose grid .* 2.15 units.* write fraction_bits=4",
        ),
        ({"secure": SecureSum(54, 33)}, r"fraction_bits=33, on whose grid .* units, .* write fraction_bits=31"),
        ({"noise_multiplier": 0.0}, "noise_multiplier as given: there is no noise to share"),
        ({"correlation": to.privacy.BandedSquareRoot(), "rounds": 9}, "correlation as given"),
    ],
)
def test_invalid_noise_shares_raise(options: dict[str, Any], message):
    with pytest.raises(ConfigurationError, match=message):
        replace(PIECE, **options)


def test_shares_added_before_rounding_are_refused():
    with pytest.raises(ConfigurationError, match="NoiseShare: clients add their shares of the noise under the masks"):
        to.average_all(also=(PIECE, to.guard.NoiseShare(NORM, Z, N)))
