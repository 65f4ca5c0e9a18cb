"""Masks and noise combined: clients clip before they mask, and the server noises the opened sum."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.recipes import DATA, LOCAL
from tests.tiny import federation, report

import turnout as to
from turnout import ConfigurationError
from turnout.base.server_step import server_step
from turnout.distributed.sums import Summed
from turnout.pieces.aggregation import PrivateSum, SecureSum
from turnout.pieces.aggregation.private_shares import grid_norm
from turnout.protocol.streaming import StreamingSum
from turnout.simulation import Simulation

FINE = SecureSum(bits=54, fraction_bits=36, largest=64.0)
EVERYONE = to.Population(to.availability.Everyone())


def run(algorithm, rounds=4, **options):
    options = {"population": to.Population(to.availability.Bernoulli(mean=0.7)), **options}
    return to.Experiment(DATA, to.models.Logistic(), algorithm, rounds=rounds, evaluate_every=2, **options)


def finished(experiment):
    """The simulation of an experiment, at its end."""
    simulation = Simulation(experiment)
    for _ in range(experiment.rounds):
        simulation.round()
    return simulation


def added(piece: PrivateSum, factors: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the contributions of clients to the sum."""
    found = piece.summand(factors, report(range(len(rows)), rows), 0)
    assert found is not None
    return found


KINDS: dict[str, dict[str, Any]] = {
    "independent": {},
    "banded": {"correlation": to.privacy.BandedSquareRoot(2), "rounds": 4},
    "toeplitz": {"correlation": to.privacy.BufferedToeplitz(2), "rounds": 4},
    "clips only": {"noise_multiplier": 0.0},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recipe", [to.fedau, to.average_all])
def test_model_and_epsilon_equal_those_without_masks(recipe, kind):
    """Divided by N, with the same participants, noise and clip, and fixed point of 36 bits."""
    options = {"norm": 0.3, "noise_multiplier": 0.5, **KINDS[kind]}
    alone, both = (
        finished(run(recipe(LOCAL, also=(PrivateSum(**options, secure=secure),)))) for secure in (None, FINE)
    )
    assert alone.history.participation.equals(both.history.participation)
    assert torch.allclose(alone.state.params, both.state.params, rtol=0, atol=4e-7)
    assert not torch.equal(alone.state.params, finished(run(recipe(LOCAL))).state.params)
    assert alone.history.rounds["epsilon"].equals(both.history.rounds["epsilon"])
    assert set(alone.history.rounds.column_names) <= {*both.history.rounds.column_names}


def test_mean_over_a_full_cohort_is_equal_and_absent_clients_count_as_zero():
    secure = PrivateSum(norm=0.3, noise_multiplier=0.5, cohort=8, secure=FINE)
    alone = PrivateSum(norm=0.3, noise_multiplier=0.5, cohort=8)
    one, other = (
        finished(run(to.average_participating(LOCAL, also=(piece,)), population=EVERYONE)) for piece in (alone, secure)
    )
    assert torch.allclose(one.state.params, other.state.params, rtol=0, atol=4e-7)
    known, few = federation(8, 3), torch.tensor([[0.1, 0.0, 0.0], [0.0, 0.2, 0.0]], dtype=torch.float64)
    ones = torch.ones(2, dtype=torch.float64)
    piece = PrivateSum(norm=0.3, noise_multiplier=0.0, cohort=8, secure=FINE)
    opened = report([0, 1], Summed(added(piece, ones, few).sum(dim=0), ones, torch.float64))
    found, _ = piece.apply(ones / 2, opened, piece.init(known), known)
    assert found.tolist() == pytest.approx([0.1 / 8, 0.2 / 8, 0.0])


def test_fixed_size_sample_is_counted_as_without_masks():
    options: dict[str, Any] = {"norm": 0.3, "noise_multiplier": 2.0, "cohort": 4, "sampled_from": 8}
    local = to.Sgd(lr=0.1, steps=2, sampling="fresh")
    alone, both = (
        finished(
            run(
                to.average_participating(local, also=(PrivateSum(**options, secure=secure), to.selection.Uniform(4))),
                population=EVERYONE,
            )
        )
        for secure in (None, FINE)
    )
    assert alone.history.rounds["epsilon"].equals(both.history.rounds["epsilon"])
    assert torch.allclose(alone.state.params, both.state.params, rtol=0, atol=4e-7)


def test_rounding_to_nearest_would_exceed_the_norm():
    """The attack: an update of maximal norm with all numbers above the middle of two codes becomes 1.6 times as long."""
    secure = SecureSum(fraction_bits=4, largest=4.0)
    update = torch.full((1, 400), 0.6 / 16, dtype=torch.float64)  # 0.75 long
    one = torch.ones(1, dtype=torch.float64)
    assert update.norm() == pytest.approx(0.75)
    assert secure.summand(one, report([0], update), 0).norm() == pytest.approx(1.25)
    piece = PrivateSum(norm=0.75, secure=SecureSum(fraction_bits=8, largest=4.0))
    longest = update * (1 + 1e-9)
    for scale in (1.0, 3.0, 1e6):
        assert added(piece, one * scale, longest).norm() <= 0.75
    coarse = PrivateSum(norm=0.75, secure=secure)
    with pytest.raises(
        ConfigurationError, match=r"got 0\.75, of which rounding 400 numbers to 4 bits.*fraction_bits=5"
    ):
        coarse.init(federation(8, 400))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_encoded_contribution_never_exceeds_the_norm(data):
    """For any update and weight, the decoded contribution is at most C long."""
    bits, num_params = data.draw(st.integers(2, 12)), data.draw(st.integers(1, 40))
    norm = data.draw(st.floats(max(0.05, 1.001 * math.sqrt(num_params) / 2**bits), 7.5))
    secure = SecureSum(fraction_bits=bits, largest=8.0)
    piece = PrivateSum(norm=norm, secure=secure)
    size = st.floats(-1e3, 1e3) | st.integers(-(2**12), 2**12).map(lambda code: (code + 0.5) / 2**bits)
    rows = torch.tensor([data.draw(st.lists(size, min_size=num_params, max_size=num_params))], dtype=torch.float64)
    weight = torch.tensor([data.draw(st.sampled_from([0.0, 0.3, 1.0, 1.0, 50.0]))], dtype=torch.float64)
    found = added(piece, weight, rows)
    assert float(found.norm()) <= norm * (1 + 1e-12)
    codes = secure.code.encode(found.numpy())
    np.testing.assert_array_equal(secure.code.decode(codes), found.numpy())
    if float((weight * rows).norm()) <= grid_norm(norm, bits, num_params):
        assert (found - weight * rows).abs().max() <= 0.5 / 2**bits  # of those that are not clipped, rounding is all


def test_unopened_and_empty_rounds_have_noise():
    """Epsilon counts them like opened ones."""
    here = to.Population(to.availability.Trace((*((c, 0, 1) for c in range(8)), (0, 1, 2), (1, 1, 2)), repeat=False))
    options: dict[str, Any] = {"norm": 0.3, "noise_multiplier": 0.5}
    secure = SecureSum(bits=54, fraction_bits=36, largest=64.0, min_clients=3)
    both = run(to.fedau(LOCAL, also=(PrivateSum(**options, secure=secure),)), rounds=3, population=here)
    simulation, moves = Simulation(both), []
    for _ in range(3):
        before = simulation.state.params.clone()
        simulation.round()
        moves.append(simulation.state.params - before)
    assert simulation.history.rounds["num_participants"].to_pylist() == [8, 0, 0]
    for move in moves[1:]:  # a round of two, fewer than min_clients, and a round of nobody
        assert float(move.std()) == pytest.approx(0.3 * 0.5 / 8, rel=0.3)
    assert simulation.history.rounds["epsilon"].to_pylist() == pytest.approx(
        [to.privacy.epsilon(to.privacy.Release(0.5), k, 1e-5) for k in (1, 2, 3)]
    )


def test_update_with_nan_adds_nothing_in_bulk_or_one_by_one():
    """As a client without data would; the weights of the others do not change."""
    piece = PrivateSum(norm=5.0, noise_multiplier=0.0, secure=FINE)
    algorithm = to.fedau(LOCAL, also=(piece,))
    known = federation(8, 4, dtype=torch.float32)
    state = algorithm.init(torch.zeros(4), known)
    rows = torch.tensor([[1.0, 0, 0, 0], [torch.nan, 0, 0, 0], [0, 2.0, 0, 0]])
    found = []
    for alone in (True, False):
        sums = StreamingSum(algorithm, state, known, alone)
        sums.add(report([0, 1, 2], rows, dtype=torch.float32))
        after, info = server_step(algorithm, state, sums.reports(), known)
        found.append(after.params)
        assert info["num_dropped"] == 1
        assert len(info["weights"]) == 3
    assert torch.equal(*found)
    assert found[0].tolist() == pytest.approx([1 / 8, 2 / 8, 0.0, 0.0])


def test_client_within_its_separation_is_omitted_before_masking():
    """Buffers select clients among all present ones, and no client can be removed from a sum."""
    population = to.Population(speed=to.speed.Speed(compute=to.delay.Constant(1.0), per="task"))
    piece = PrivateSum(norm=0.3, noise_multiplier=0.5, separation=2, secure=FINE, cohort=6)
    algorithm = to.average_participating(LOCAL, also=(piece, to.selection.Uniform(6)))
    result = run(algorithm, rounds=6, population=population, pace=to.pace.Rounds(deadline=50.0)).run()
    took_part = result.participation.to_pydict()
    rounds = set(zip(took_part["client"], took_part["round"], strict=True))
    assert rounds
    assert not any((client, number + 1) in rounds for client, number in rounds)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"quantile": 0.5, "count_deviation": 9.0},
            "secure does not go with quantile: only clients know",
        ),
        (
            {"sampling_rate": 0.5},
            "secure does not go with sampling_rate: whether a sum is opened depends on the number",
        ),
        ({"secure": "masks"}, "secure: got 'masks', needed a SecureSum"),
        (
            {"norm": 70.0},
            "secure: got largest=64, and an element of a clipped update .* write a SecureSum with largest=70",
        ),
        ({"cohort": 2, "sampled_from": 8}, "secure: got min_clients=3, which a cohort of 2 never reaches"),
    ],
)
def test_options_incompatible_with_masks_are_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        PrivateSum(**{"secure": FINE, **options})


def test_algorithms_that_need_single_updates_or_unknown_divisors_are_refused():
    piece = PrivateSum(secure=FINE, cohort=8)
    with pytest.raises(ConfigurationError, match=r"PrivateSum with secure: .* sends a code"):
        to.average_participating(also=(piece, to.guard.TopK(share=0.1)))
    with pytest.raises(ConfigurationError, match="DivideByNoisySum weights a report by the others"):
        to.maxfl(also=(piece, to.weighting.DivideByNoisySum()))
    with pytest.raises(ConfigurationError, match="draws clients twice"):
        to.average_participating(also=(piece, to.selection.WithReplacement(3)))
    with pytest.raises(ConfigurationError, match="clients store control"):
        to.scaffold(also=(PrivateSum(secure=FINE, cohort=8, control_norm=1.0), to.guard.ClipControls(1.0)))
    with pytest.raises(ConfigurationError, match="does not fit 54 bits"):
        PrivateSum(secure=SecureSum(bits=54, fraction_bits=46, largest=64.0)).init(federation(8, 3))


def test_sampling_is_refused_with_drop_outs():
    """A sum that is not opened for lack of one client reveals that it was sampled."""
    pieces = PrivateSum(cohort=4, sampled_from=8, secure=FINE), to.selection.Uniform(4)
    with pytest.raises(ConfigurationError, match=r"sampled_from: sampling hides a client only if .* no dropout"):
        run(
            to.average_participating(to.Sgd(lr=0.1, sampling="fresh"), also=pieces),
            population=to.Population(
                to.availability.Everyone(),
                speed=to.speed.Speed(compute=to.delay.Constant(1.0)),
                dropout=to.behavior.Dropout(0.1),
            ),
        )
