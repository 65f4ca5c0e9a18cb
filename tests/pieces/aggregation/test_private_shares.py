"""Noise in shares: the sum has the noise that a server would add, for any drop-outs."""

import math
from typing import cast

import numpy as np
import pytest
import torch
from tests.tiny import classification, federation, report

import turnout as to
from turnout import ConfigurationError
from turnout.core.types import Task
from turnout.engine.cohort import Clients
from turnout.pieces.aggregation import PrivateSum
from turnout.pieces.guard import NoiseShare
from turnout.pieces.guard.clip import share_step

SHARES, NORM, Z, P = 8, 2.0, 1.5, 20_000
PIECE = PrivateSum(norm=NORM, noise_multiplier=Z, cohort=SHARES, noise_shares=SHARES)
GUARD = NoiseShare(NORM, Z, SHARES)
NOBODY = cast("Clients", None)


def noised(clients, delta=None, version=0):
    """Their updates as they leave, ``[B, P]``."""
    return sent(clients, delta, version).updates.gathered()


def sent(clients, delta=None, version=0):
    """The reports as they leave these clients."""
    rows = torch.zeros(len(clients), P, dtype=torch.float64) if delta is None else delta
    task = Task(torch.zeros(rows.shape[1], dtype=torch.float64), version=version, seed=0)
    return GUARD.apply(report(clients, rows, version=version, dtype=rows.dtype), task, {}, NOBODY)


@pytest.mark.parametrize("there", [1, 3, 8, 16])
def test_sum_has_the_counted_noise_for_any_drop_outs(there):
    known = federation(20, P)
    weights = torch.full((there,), 1 / there, dtype=torch.float64)
    found, state = PIECE.apply(weights, sent(range(there)), PIECE.init(known), known)
    assert (found * there).std().item() == pytest.approx(Z * NORM * max(there / SHARES, 1.0) ** 0.5, rel=0.03)
    assert state["releases"] == 1


@pytest.mark.parametrize("there", [3, 8, 16])
def test_dropped_report_leaves_the_noise_of_a_report_of_zeros(there):
    """The attack: a client sends NaN, which must not be told from a client without data by how much noise there is."""
    known, delta = federation(20, P), torch.zeros(there, P, dtype=torch.float64)
    delta[: there // 2] = torch.nan
    reports, dropped = sent(range(there), delta).nulled()
    assert dropped == there // 2
    found, _ = PIECE.apply(torch.full((there,), 1 / there, dtype=torch.float64), reports, PIECE.init(known), known)
    assert (found * there).std().item() == pytest.approx(Z * NORM * max(there / SHARES, 1.0) ** 0.5, rel=0.03)


def test_client_sends_its_clipped_update_with_its_own_noise():
    delta = torch.zeros(2, P, dtype=torch.float64)
    delta[:, 0] = torch.tensor([10.0, 1.0])
    noisy, noise = noised([3, 5], delta), noised([3, 5])
    assert (noisy - noise)[:, 0].tolist() == pytest.approx([2.0, 1.0], rel=0.02)  # rounded to the grid of the shares
    assert noise.std(dim=1).tolist() == pytest.approx([Z * NORM / SHARES**0.5] * 2, rel=0.03)
    assert noise.mean(dim=1).abs().max() < 0.03
    assert torch.equal(noise, torch.cat([noised([3]), noised([5])]))
    for other in (noised([4]), noised([3], version=1)):
        assert abs(torch.corrcoef(torch.stack([noise[0], other[0]]))[0, 1]) < 0.03


@pytest.mark.parametrize("others", [1, 3, SHARES])
def test_clients_that_share_their_noise_leave_that_of_the_others(others):
    """Toward c clients, and toward a server that sees a sum of B, the multiplier is that of the remaining shares."""
    assert noised(range(others)).sum(dim=0).std().item() == pytest.approx(Z * NORM * (others / SHARES) ** 0.5, rel=0.03)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noised_updates_and_their_sum_are_on_one_grid(dtype):
    """For updates of zeros and others, in float32, too: the grid is a power of two that has room for both."""
    known, step = federation(SHARES, P, dtype=dtype), share_step(NORM, Z, SHARES)
    assert math.log2(step) == round(math.log2(step))
    for size in (0.0, 1 / 3, 50.0):
        out = sent(range(SHARES - 2), (size * torch.ones(SHARES - 2, P)).to(dtype))
        rows = out.updates.gathered()
        assert rows.dtype == dtype
        steps = rows.double() / step
        assert torch.equal(steps, steps.round())
        assert abs((steps % 2).mean().item() - 0.5) < 0.02  # the last digit is random
        weights = torch.full((SHARES - 2,), 1 / 7, dtype=torch.float64)
        total, _ = PIECE.apply(weights, out, PIECE.init(known), known)
        if dtype == torch.float64:
            off = total * 7 / step
            torch.testing.assert_close(off, off.round(), rtol=1e-14, atol=1e-6)


def test_epsilon_is_recorded_and_the_budget_holds():
    algorithm = to.average_participating(to.Sgd(lr=0.1, steps=2), also=(PIECE, GUARD, to.selection.Uniform(SHARES)))
    result = to.Experiment(classification(), to.models.Logistic(), algorithm, rounds=2).run()
    assert result.rounds["epsilon"][1].as_py() == to.privacy.epsilon(to.privacy.Release(Z, is_discrete=True), 2, 1e-5)
    assert np.isfinite(result.rounds["update_norm"].to_pylist()).all()


def test_incompatible_pieces_are_refused():
    with pytest.raises(ConfigurationError, match="clients add no noise, and epsilon is computed for NoiseShare"):
        to.average_participating(also=(PIECE,))
    with pytest.raises(ConfigurationError, match=r"clients add NoiseShare\(.*shares=9\), and epsilon is computed"):
        to.average_participating(also=(PIECE, NoiseShare(NORM, Z, 9)))
    with pytest.raises(ConfigurationError, match=r"would add all of it again: write PrivateSum\(noise_shares=8"):
        to.average_participating(also=(PrivateSum(cohort=8), GUARD))
    with pytest.raises(
        ConfigurationError, match="Participation multiplies updates by weights after their noise was added"
    ):
        to.fedau(also=(PrivateSum(norm=NORM, noise_multiplier=Z, noise_shares=SHARES), GUARD))
    for other, pieces in {
        "SecureSum": (to.aggregation.SecureSum(),),
        "Median": (to.aggregation.Median(),),
        "WeightedSum": (),
    }.items():
        with pytest.raises(
            ConfigurationError, match=f"NoiseShare: {other} does not account for epsilon.* add PrivateSum.norm=2, "
        ):
            to.average_participating(also=(*pieces, GUARD))
    with pytest.raises(ConfigurationError, match="TopK after NoiseShare changes single updates"):
        to.average_participating(also=(PIECE, GUARD, to.guard.TopK()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise_multiplier": 0.0}, "noise_multiplier as given: there is no noise to share"),
        (
            {"correlation": to.privacy.BandedSquareRoot(), "rounds": 9},
            "correlation as given: no client knows the noise",
        ),
        ({"quantile": 0.5, "count_deviation": 9.0}, "quantile as given: clients add noise for a constant norm"),
        ({"control_norm": 1.0}, "control_norm as given: clients add noise to their update"),
        ({"sampling_rate": 0.5}, "sampling_rate as given: the noise that the server adds reveals how many"),
        ({"sampled_from": 20}, "sampled_from as given: it is public which clients"),
        ({"noise_shares": 0}, "noise_shares"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        PrivateSum(**{"cohort": 8, "noise_shares": 8, **options})


@pytest.mark.parametrize("options", [{"norm": 0.0}, {"noise_multiplier": 0.0}, {"shares": 0}])
def test_invalid_shares_raise(options):
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        NoiseShare(**options)
