"""Seeds of noise in private simulations cannot be enumerated and do not collide."""

from dataclasses import replace

import torch
from tests.tiny import federation

from turnout.core.random import stream
from turnout.privacy.noise import gaussian


def test_releases_whose_seeds_agree_in_32_bits_have_different_noise():
    """The attack: two of 50,067 releases have seeds that agree in the 32 bits of torch's CPU generator."""
    known, pair = federation(), (45_860, 50_066)
    first, second = (stream("noise of the model", known.seed, release) & (2**32 - 1) for release in pair)
    assert first == second
    one, two = (gaussian("noise of the model", known, release, 8) for release in pair)
    assert not torch.equal(one, two)


def test_noise_is_a_function_of_purpose_seed_release_and_secret():
    known = federation()
    drawn = [
        gaussian("noise of the model", known, 0, 10_000),
        gaussian("noise of the model", known, 1, 10_000),
        gaussian("noise of the count", known, 0, 10_000),
        gaussian("noise of the model", replace(known, seed=1), 0, 10_000),
        gaussian("noise of the model", replace(known, secret=2**70), 0, 10_000),
        gaussian("noise of the model", replace(known, secret=2**200), 0, 10_000),
    ]
    assert torch.equal(drawn[0], gaussian("noise of the model", known, 0, 10_000))
    correlation = torch.corrcoef(torch.stack(drawn)) - torch.eye(6, dtype=drawn[0].dtype)
    assert correlation.abs().max() < 0.05
    assert all(abs(float(values.std()) - 1) < 0.03 for values in drawn)
