"""Tests of the noise of a private sum in each round."""

import torch

from turnout.core.types import Federation
from turnout.pieces.aggregation.round_noise import CONTROL, RoundNoise
from turnout.privacy.correlation import BandedSquareRoot, Independent

FEDERATION = Federation(8, 5, seed=3)


def test_independent_noise_has_no_state_and_differs_between_rounds_and_vectors():
    noise = RoundNoise(Independent(), 4, 1, None, ("", CONTROL))
    assert noise.init(FEDERATION) == {}
    drawn = [noise.next(prefix, release, {}, FEDERATION)[0] for prefix in ("", CONTROL) for release in (0, 1)]
    assert len({tuple(values.tolist()) for values in drawn}) == 4
    assert torch.equal(noise.next("", 1, {}, FEDERATION)[0], drawn[1])


def test_two_vectors_are_correlated_apart():
    noise = RoundNoise(BandedSquareRoot(), 4, 3, None, ("", CONTROL))
    state = noise.init(FEDERATION)
    assert state
    assert {name.removeprefix(CONTROL) for name in state} == {n for n in state if not n.startswith(CONTROL)}
    _, after = noise.next(CONTROL, 0, {name: value.clone() for name, value in state.items()}, FEDERATION)
    changed = {name for name in state if not torch.equal(state[name], after[name])}
    assert changed
    assert all(name.startswith(CONTROL) for name in changed)


def test_column_is_that_of_the_correlation():
    assert RoundNoise(Independent(), 4, 2, None).column(None) is None
    assert RoundNoise(BandedSquareRoot(), 4, 2, None).column(None) == (1.0, 0.5, 0.0, 0.0)
