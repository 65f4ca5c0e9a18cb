"""Numbers that leave a private run are multiples of a grid, all of which are possible for all data."""

import ast
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import federation

import turnout
from turnout.core.random import stream
from turnout.privacy.noise import GridNoise, client_words, server_words

CPU = torch.device("cpu")


def gaussian(purpose, known, release, number):
    """Return noise of deviation 1."""
    return GridNoise(1.0, 1.0).noised(torch.zeros(number, dtype=torch.float64), purpose, known, release)


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


def test_noise_on_a_gpu_is_a_function_of_position():
    """The random bits of a simulation on another device, here without one."""
    known = replace(federation(), device=torch.device("meta"))
    words = server_words("noise of the model", known, 3)
    positions = torch.arange(1000)
    assert torch.equal(words(positions, 4)[7:9], words(positions[7:9], 4))
    assert len(torch.cat([words(positions, draw) for draw in range(4)]).unique()) == 4000


def test_random_bits_of_clients_differ_by_client_position_and_draw():
    words = client_words(torch.tensor([5, 6]), 100)
    drawn = torch.cat([words(torch.arange(200), draw) for draw in range(4)])
    assert len(drawn.unique()) == 800
    assert torch.equal(client_words(torch.tensor([6]), 100)(torch.arange(100), 2), words(torch.arange(100, 200), 2))


SIZES = [(0.001, 1.0, 1), (1.0, 0.3, 650), (4.0, 8.0, 10**6), (30.0, 1e9, 10**9), (1e6, 1e-9, 10**8)]


@pytest.mark.parametrize(("multiplier", "bound", "numbers"), SIZES)
def test_noise_covers_what_rounding_adds_to_the_sensitivity(multiplier, bound, numbers):
    """The ratio that the accountant assumes holds on the grid: half a step for each number, in each sum and term."""
    noise = GridNoise(multiplier, bound, numbers)
    on_grid = bound * (1 + 2.0**-20) + 2 * math.sqrt(numbers) * noise.step
    assert noise.deviation / on_grid == pytest.approx(multiplier, rel=1e-12)
    assert noise.deviation <= multiplier * bound * (1 + 2.0**-12)  # at hardly any cost
    assert noise.step == noise.deviation * 2.0**-noise.bits
    assert noise.bits <= 48


def test_rounded_sums_of_neighbors_differ_by_no_more_than_the_sensitivity():
    """The sensitivity on the grid, in float64: with and without one client of the largest norm."""
    rng = np.random.default_rng(0)
    others, own = rng.normal(size=5000) * 100, rng.normal(size=5000)
    own /= np.linalg.norm(own)
    noise = GridNoise(30.0, 1.0, 5000)
    with_one, without = (
        noise.released(torch.from_numpy(total), torch.zeros(5000, dtype=torch.float64))
        for total in (others + own, others)
    )
    assert float((with_one - without).norm()) <= noise.deviation / 30.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shift", [0.0, 1 / 3, math.pi, 1e-7, 12345.678])
def test_possible_numbers_do_not_depend_on_the_sum(dtype, shift):
    """Whatever the sum, releases are the multiples of one step: the last digits tell nothing of it."""
    noise, known = GridNoise(2.0, 1.0, 4000), federation()
    sums = torch.full((4000,), shift, dtype=dtype).double()
    released = noise.noised(sums, "noise of the model", known, 0)
    steps = released / noise.step
    assert torch.equal(steps, steps.round())
    assert torch.equal(steps * noise.step, released)
    last = np.bincount((steps % 64).long(), minlength=64)
    assert (np.abs(last - 4000 / 64) < 5 * (4000 / 64) ** 0.5).all()
    zero = GridNoise(2.0, 1.0, 4000).noised(0 * sums, "noise of the model", known, 0)
    assert torch.equal(steps, (zero / noise.step).round() + (sums / noise.step).round())


def test_one_number_of_an_exhausted_range_is_possible_for_all_sums():
    """On a coarse grid, every number that one sum makes is made by its neighbor, too."""
    found = {}
    for total in (0.0, 0.25, 1.0):
        noise = GridNoise(0.1, 1.0)
        steps = torch.full((200_000,), total / 0.1, dtype=torch.float64).round()
        drawn = noise.drawn(
            server_words("noise of the model", replace(federation(), seed=int(total * 4)), 0), 200_000, CPU
        )
        coarse = steps + torch.div(drawn, 2.0 ** (noise.bits - 3), rounding_mode="floor")  # an eighth of a deviation
        found[total] = {int(value) for value in coarse if abs(value) < 12}
    assert found[0.0] == found[0.25] == found[1.0] == set(range(-11, 12))


def test_noise_is_drawn_nowhere_else():
    """Only these modules draw noise of private runs; all others release through `GridNoise`, or share discrete noise."""
    root = Path(turnout.__file__).parent
    drawing = {"rounded_gaussian": {"privacy/gaussian.py", "privacy/noise.py"}}
    drawing["discrete_gaussian"] = {
        "privacy/gaussian.py", "pieces/aggregation/private_shares.py",
        "pieces/guard/clip.py", "protocol/answer_sum.py",
    }  # fmt: skip
    found = {name: set() for name in drawing}
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node, "id", None) or getattr(node, "name", None)
            if name in found:
                found[name].add(path.relative_to(root).as_posix())
    assert found == drawing


@pytest.mark.parametrize("total", [0.0, -0.0, 5e-324, -5e-324, -1e-310])
@pytest.mark.parametrize("noise", [0.0, -0.0])
def test_zero_is_released_without_the_sign_of_a_small_sum(total, noise):
    released = GridNoise(1.0, 1.0).released(*(torch.tensor([x], dtype=torch.float64) for x in (total, noise)))
    assert released.numpy().tobytes() == bytes(8)
