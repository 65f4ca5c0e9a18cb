"""Models of private runs: which ones are possible does not depend on whether a client has data."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.tiny import federation, report

import turnout as to
from turnout.base.server_step import server_step
from turnout.pieces.aggregation import PrivateSum, SecureSum
from turnout.protocol.streaming import StreamingSum

N, P, Z, NORM, ROUNDS = 10, 400, 1.3, 0.3, 3
SECURE = SecureSum(bits=48, fraction_bits=18, largest=1.0, min_clients=2)
BANDED = {"correlation": to.privacy.BandedSquareRoot(bands=3), "rounds": ROUNDS}
BLT = {"correlation": to.privacy.BufferedToeplitz(2), "rounds": ROUNDS}
MECHANISMS = {
    "independent": {},
    "banded": BANDED,
    "buffers": BLT,
    "masks": {"secure": SECURE},
    "masks and banded": {"secure": SECURE, **BANDED},
    "shares under masks": {"secure": SECURE, "noise_shares": N, "dropouts": 2},
}


def steps(options, dtype, size, seed=0):
    """Return the directions of three rounds in steps of the grid, [3, P]: all clients but the first have no data."""
    piece = PrivateSum(norm=NORM, noise_multiplier=Z, delta=1e-3, **options)
    algorithm, known = to.average_all(to.Sgd(lr=0.1), also=(piece,)), replace(federation(N, P, dtype=dtype), seed=seed)
    state, found = algorithm.init(torch.zeros(P, dtype=dtype), known), []
    rows = torch.zeros(N, P, dtype=dtype)
    rows[0] = size * torch.linspace(-1, 1, P)
    for version in range(ROUNDS):
        sent = report(range(N), rows, version=version, dtype=dtype)
        if piece.secure is not None:
            sums = StreamingSum(algorithm, state, known)
            sums.add(sent)
            sent = sums.reports()
        before = state.params
        state, _ = server_step(algorithm, state, sent, known)
        found.append((state.params - before if version else state.params).double())
    step = 2.0**-18 if piece.noise_shares else piece.noise.grid(Z, NORM, P).step
    return torch.stack(found) * N / step


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("size", [0.0, 0.01, 1 / 3, 50.0])
def test_model_of_neighbors_consists_of_whole_steps(name, size):
    """In float64, exactly so; the last digit is as random with a client's data as without."""
    first = steps(MECHANISMS[name], torch.float64, size)[0]
    whole = first.round()
    torch.testing.assert_close(first, whole, rtol=1e-14, atol=1e-6)
    assert abs((whole % 2).mean().item() - 0.5) < 5 * 0.5 / P**0.5
    remainders = np.bincount((whole % 8).long(), minlength=8)
    assert (np.abs(remainders - P / 8) < 5 * (P / 8) ** 0.5).all()


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("size", [0.0, 0.25])
def test_float32_model_is_the_rounded_float64_model(name, size):
    """What a narrower type loses is lost after the noise: it was drawn and added in whole steps."""
    narrow, wide = (steps(MECHANISMS[name], dtype, size)[0] for dtype in (torch.float32, torch.float64))
    step = 2.0**-18 if "noise_shares" in MECHANISMS[name] else PrivateSum(
        norm=NORM, noise_multiplier=Z, **MECHANISMS[name]
    ).noise.grid(Z, NORM, P).step  # fmt: skip
    back = lambda values: (values * step / N).float()  # noqa: E731
    assert (back(narrow) == back(wide)).all()


def test_no_model_identifies_the_federation():
    """The attack: of 650 numbers, noise alone never made one that is impossible for float32 noise; a client's update did."""
    impossible = {0.0: [], 0.01: []}
    for seed in range(20):
        for size, counts in impossible.items():
            first = steps({}, torch.float32, size, seed=seed + 1000 * bool(size))[0]
            model = (first * PrivateSum(norm=NORM, noise_multiplier=Z).noise.grid(Z, NORM, P).step / N).float().double()
            scaled = (model * N / (Z * NORM)).float()
            found = torch.zeros(P, dtype=torch.bool)
            for shift in (-1, 0, 1):
                near = (scaled.view(torch.int32) + shift).view(torch.float32).double()
                found |= (near * Z * NORM / N).float().double() == model
            counts.append(int((~found).sum()))
    without, with_data = (np.array(counts) for counts in impossible.values())
    assert abs(without.mean() - with_data.mean()) < 5 * (without.std() + 1) / 20**0.5
