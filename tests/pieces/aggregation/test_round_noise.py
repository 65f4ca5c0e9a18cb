"""Tests of the noise of a private sum in each round."""

import pytest
import torch

from turnout.core.types import Federation
from turnout.pieces.aggregation.round_noise import CONTROL, RoundNoise
from turnout.privacy import BandedSquareRoot, BufferedToeplitz, Correlation, Independent
from turnout.privacy.noise import GridNoise

FEDERATION = Federation(8, 5, seed=3)
GRID = GridNoise(1.0, 1.0, 20)


def test_independent_noise_has_no_state_and_differs_between_rounds_and_vectors():
    noise = RoundNoise(Independent(), 4, 1, None, ("", CONTROL))
    assert noise.init(FEDERATION) == {}
    drawn = [noise.next(prefix, GRID, release, {}, FEDERATION)[0] for prefix in ("", CONTROL) for release in (0, 1)]
    assert len({tuple(values.tolist()) for values in drawn}) == 4
    assert torch.equal(noise.next("", GRID, 1, {}, FEDERATION)[0], drawn[1])


def test_two_vectors_are_correlated_apart():
    noise = RoundNoise(BandedSquareRoot(), 4, 3, None, ("", CONTROL))
    state = noise.init(FEDERATION)
    assert state
    assert {name.removeprefix(CONTROL) for name in state} == {n for n in state if not n.startswith(CONTROL)}
    _, after = noise.next(CONTROL, GRID, 0, {name: value.clone() for name, value in state.items()}, FEDERATION)
    changed = {name for name in state if not torch.equal(state[name], after[name])}
    assert changed
    assert all(name.startswith(CONTROL) for name in changed)


def test_column_is_that_of_the_correlation():
    assert RoundNoise(Independent(), 4, 2, None).column(None) is None
    assert RoundNoise(BandedSquareRoot(), 4, 2, None).column(None) == (1.0, 0.5, 0.0, 0.0)


@pytest.mark.parametrize("correlation", [Independent(), BandedSquareRoot(), BufferedToeplitz(2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_correlated_noise_consists_of_whole_steps(correlation: Correlation, dtype):
    """In every round, whatever the type of the model: what is subtracted of earlier rounds is rounded to the grid."""
    known = Federation(8, 500, seed=3, dtype=dtype)
    noise = RoundNoise(correlation, 6, 3, None)
    grid, state = noise.grid(2.0, 1.0, 500), noise.init(known)
    last = []
    for release in range(6):
        drawn, state = noise.next("", grid, release, state, known)
        assert drawn.dtype == torch.float64
        assert torch.equal(drawn, drawn.round())
        assert 0.5 < float(drawn.std()) / 2.0**grid.bits < 2.0
        last.append((drawn % 2).mean().item())
    assert last == pytest.approx([0.5] * 6, abs=0.1)  # the last digit is random, too


def test_grid_has_room_for_the_rounding_of_all_rounds():
    once, often = (RoundNoise(each, 400, 3, None).grid(1.0, 1.0, 100) for each in (Independent(), BandedSquareRoot()))
    assert (once.numbers, often.numbers) == (100, 40_000)
