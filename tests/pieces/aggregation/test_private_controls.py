"""SCAFFOLD with both vectors clipped and noised, compared with plain NumPy, and properties of its control variates."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.tiny import classification, federation, report

import turnout as to
from turnout import ConfigurationError
from turnout.base.server_step import server_step
from turnout.pieces.aggregation import PrivateSum
from turnout.privacy.noise import server_words
from turnout.simulation import Simulation

N, P, ROUNDS = 6, 4, 7
LOCAL = to.Sgd(lr=0.1, steps=2)


def private(correlation=None, multiplier=3.0, **more):
    """SCAFFOLD of cohorts of 3, norms 2 and 0.5."""
    correlated = {} if correlation is None else {"correlation": correlation, "rounds": ROUNDS, "separation": 2}
    piece = PrivateSum(
        norm=2.0, noise_multiplier=multiplier, cohort=3, control_norm=0.5, **{"delta": 1e-5, **correlated, **more}
    )
    return to.scaffold(LOCAL, cohort_size=3, also=(piece, to.guard.ClipControls(0.5)))


def clip(row, norm):
    return row * min(1.0, norm / max(np.linalg.norm(row), 1e-300))


@pytest.mark.parametrize("correlation", [None, to.privacy.BandedSquareRoot(2)], ids=["independent", "correlated"])
def test_both_sums_equal_a_numpy_transcription(correlation):
    """Over random cohorts, including an empty one, which also has noise."""
    rng, known = np.random.default_rng(5), federation(N, P)
    algorithm = private(correlation)
    state, w, c = algorithm.init(torch.zeros(P, dtype=torch.float64), known), np.zeros(P), np.zeros(P)
    z = np.sqrt(2.0) * 3.0
    column = np.array([1.0]) if correlation is None else correlation.coefficients(2, 2, None)
    aggregation = algorithm.aggregation
    assert isinstance(aggregation, PrivateSum)
    past = {"model": [], "controls": []}
    for t in range(ROUNDS):
        cohort = np.flatnonzero(rng.random(N) < 0.5) if t != 3 else np.array([], dtype=int)
        delta, change = (rng.normal(size=(len(cohort), P)) * size for size in (3.0, 0.6))
        sent = report(cohort, torch.from_numpy(delta), version=t)
        state, _ = server_step(algorithm, state, replace(sent, extra={"control": torch.from_numpy(change)}), known)
        noise = {}
        for name, rows in past.items():
            grid = aggregation.noise.grid(z, 2.0 if name == "model" else 0.5, P)
            y = grid.drawn(server_words(f"noise of the {name}", known, t), P, torch.device("cpu")).numpy()
            y = y - np.rint(sum(column[j] * rows[-j] for j in range(1, min(len(column), len(rows) + 1))))
            rows.append(y)
            noise[name] = y * grid.step
        step = noise["model"]
        for row in delta:
            step = step + clip(3 / len(cohort) * row, 2.0)
        w = w + step / 3
        moved = noise["controls"]
        for row in change:
            moved = moved + clip(row, 0.5)
        c = c + moved / N
        # The sums are rounded to the grids, of 2^-23 of a deviation.
        np.testing.assert_allclose(state.params.numpy(), w, rtol=0, atol=1e-5)
        np.testing.assert_allclose(algorithm.shared(state)["control"].numpy(), c, rtol=0, atol=1e-5)


def test_mean_of_control_variates_is_exact_without_noise():
    algorithm = private(multiplier=0.0)
    run = Simulation(to.Experiment(classification(), to.models.Logistic(), algorithm, rounds=5))
    while run.state.version < 5:
        run.step()
    kept = run.memory.gather(np.arange(8))["control"].double()
    lengths = kept.norm(dim=1)
    mean = algorithm.shared(run.state)["control"].double()
    assert lengths.max() > 0.4
    torch.testing.assert_close(mean, kept.mean(dim=0), rtol=0, atol=1e-6)


def test_both_vectors_cost_one_gaussian_mechanism():
    plan = private().privacy
    assert plan is not None
    assert plan.spent(4, 4) == to.privacy.epsilon(to.privacy.Release(3.0), 4, 1e-5)


def test_quantile_count_increases_the_noise_of_both():
    """The noise of the control variates with an adaptive norm, relative to a fixed norm."""
    known, rows = federation(N, 4000), torch.zeros(3, 4000, dtype=torch.float64)
    sent = replace(report(range(3), rows), extra={"control": rows})
    moved = []
    for more in ({}, {"quantile": 0.5, "count_deviation": 3.0}):
        piece = private(**more).aggregation
        assert isinstance(piece, PrivateSum)
        moved.append(piece.noised_change("control", torch.full((3,), 1 / N), sent, piece.init(known), known)[0].norm())
    assert moved[0].item() == pytest.approx(np.sqrt(2) * 3.0 * 0.5 / N * np.sqrt(4000), rel=0.05)
    assert (moved[1] / moved[0]).item() == pytest.approx((1 - 0.25) ** -0.5, rel=1e-6)


@pytest.mark.parametrize("name", ["scaffold", "scaffold_p", "amplified_scaffold"])
def test_all_recipes_with_control_variates_run(name):
    """After two steps the broadcast is finite and nonzero (for Amplified SCAFFOLD, with periods of one)."""
    make, pieces = (
        to.ALGORITHMS[name],
        (to.selection.Uniform(3), PrivateSum(cohort=3, control_norm=0.5), to.guard.ClipControls(0.5)),
    )
    own = {"scaffold_p": {"initial": "zeros"}, "amplified_scaffold": {"period": 1}}.get(name, {})
    algorithm, known = make(LOCAL, also=pieces, **own), federation(N, P)
    state = algorithm.init(torch.zeros(P, dtype=torch.float64), known)
    for t in range(2):
        rows = torch.ones(3, P, dtype=torch.float64)
        state, _ = server_step(
            algorithm, state, replace(report(range(3), rows, version=t), extra={"control": rows}), known
        )
    assert algorithm.shared(state)["control"].abs().min() > 0
    assert algorithm.privacy is not None


def test_incompatible_pieces_are_refused():
    piece, clip_controls = PrivateSum(cohort=3, control_norm=0.5), to.guard.ClipControls(0.5)
    with pytest.raises(ConfigurationError, match=r"write control_norm=1\.0 and add ClipControls"):
        to.scaffold(also=(replace(piece, control_norm=None),))
    with pytest.raises(
        ConfigurationError, match="the server's mean would differ from theirs: add ClipControls with that norm"
    ):
        to.scaffold(also=(piece, to.guard.ClipControls(0.4)))
    with pytest.raises(ConfigurationError, match="in a sum without noise: write initial='zeros'"):
        to.scaffold_p(also=(piece, clip_controls))
    assert to.scaffold_p(initial="zeros", also=(piece, clip_controls)).privacy is not None
    with pytest.raises(ConfigurationError, match="control_norm: clients keep no control variates: leave it out"):
        to.average_participating(also=(piece,))
    with pytest.raises(ConfigurationError, match="clients send none: leave it out, or use Scaffold"):
        to.fedavg(also=(clip_controls,))
    with pytest.raises(ConfigurationError, match="norm"):
        to.guard.ClipControls(0.0)


def test_invalid_report_gives_the_noise_of_a_report_of_zeros():
    """Noise is overwritten in place: a step with NaN is undone, and repeated with zeros."""
    algorithm, known = private(to.privacy.BandedSquareRoot(3)), federation(N, P)
    rows = torch.from_numpy(np.random.default_rng(1).normal(size=(ROUNDS, 3, P)))
    states = [algorithm.init(torch.zeros(P, dtype=torch.float64), known) for _ in range(2)]
    for t in range(ROUNDS):
        zeros = torch.cat([rows[t], torch.zeros_like(rows[t, :1])])
        good = replace(report(range(4), zeros, version=t), extra={"control": zeros})
        bad = replace(report(range(4), torch.cat([rows[t], rows[t, :1] * float("nan")]), version=t))
        bad = replace(bad, extra={"control": torch.cat([rows[t], rows[t, :1]])})
        states = [server_step(algorithm, s, one, known)[0] for s, one in zip(states, (good, bad), strict=True)]
        assert torch.equal(states[0].params, states[1].params)
        assert torch.equal(algorithm.shared(states[0])["control"], algorithm.shared(states[1])["control"])
