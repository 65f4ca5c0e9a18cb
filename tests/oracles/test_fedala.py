"""FedALA compared with a NumPy transcription on MOON's network of two layers."""

import numpy as np
import pytest
import torch

from turnout import AdamW, ConfigurationError, Sgd, compose, fedala, fedavg
from turnout.core.random import stream
from turnout.pieces.local import AggregationSteps
from turnout.pieces.local.aggregation_steps import _differ
from turnout.pieces.personalization import AggregatedModel
from turnout.pieces.selection import Uniform

from ..tiny import SIZES, presence
from .shuffles import client_key, endless, permutation
from .test_moon import BATCH, CLASSES, DATA, HIDDEN, LOCAL, LR, SEED, STEPS, N, T, gradient, representation, run, split

SHARE, ETA, THRESHOLD, MOST = 0.6, 1.5, 0.002, 14
HEAD = np.arange(HIDDEN * 17 + CLASSES * (HIDDEN + 1)) >= HIDDEN * 17


def loss(w, x, y):
    _, _, V, c = split(w)
    scores = representation(w, x) @ V.T + c
    return np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y])


def learned_weights(received, last, weights, settled, held, n, version):
    """Return W after the passes of a round, and their number."""
    size, gap = int(SIZES[n]), (received - last) * HEAD
    order = permutation(size, client_key(stream("aggregation", SEED), n, version), 0)
    number = max(int(SHARE * size) // BATCH, 1)
    losses, value = [], np.nan
    while len(losses) < MOST:
        for i in range(number):
            rows = order[i * BATCH : (i + 1) * BATCH]
            mixed = last + (received - last) * weights
            value = loss(mixed, held[0][rows], held[1][rows])
            weights = np.clip(weights - ETA * gradient(mixed, None, None, held[0][rows], held[1][rows]) * gap, 0, 1)
        losses.append(value)
        if settled or (len(losses) > 10 and np.std(losses[-10:]) < THRESHOLD):
            break
    return weights, len(losses)


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_fedala_equals_its_transcription(engine):
    present = presence(T, N, seed=1)
    steps = AggregationSteps.of(LOCAL, share=SHARE, weight_lr=ETA, threshold=THRESHOLD, most_passes=MOST)
    pieces = {**fedala(LOCAL, cohort_size=N).pieces(), "local": steps}
    simulation = run(compose(*pieces.values()), present, engine)
    held = [tuple(part.numpy() for part in DATA.train.client(n)) for n in range(N)]
    batches = [endless(int(SIZES[n]), client_key(SEED, n), BATCH, drop_last=True) for n in range(N)]
    w = first = simulation.state.params.numpy().copy()
    last, weights, settled, passes = [w] * N, [np.ones_like(w)] * N, [False] * N, []
    for version, row in enumerate(present):
        clients = np.flatnonzero(row).tolist()
        for n in clients:
            if not np.allclose(w, last[n], rtol=0, atol=1e-14):
                weights[n], number = learned_weights(w, last[n], weights[n], settled[n], held[n], n, version)
                settled[n] = True
                passes.append(number)
            local = last[n] + (w - last[n]) * weights[n]
            for _ in range(STEPS):
                rows = next(batches[n])
                local = local - LR * gradient(local, None, None, held[n][0][rows], held[n][1][rows])
            last[n] = local
        if clients:
            w = np.average([last[n] for n in clients], axis=0, weights=[float(SIZES[n]) for n in clients])
        simulation.round()
        np.testing.assert_allclose(simulation.state.params, w, rtol=0, atol=1e-10)
        served = [v + (w - v) * W for v, W in zip(last, weights, strict=True)]
        np.testing.assert_allclose(simulation.models.serving(np.arange(N)), served, rtol=0, atol=1e-10)
    assert np.abs(w - first).max() > 0.1
    assert set(passes) >= {1, 11, MOST}, "some stopped by the threshold, and some by the bound"
    assert any(((W > 0) & (W < 1)).any() for W in weights)
    assert all((W[~HEAD] == 1).all() for W in weights)


def test_zero_higher_layers_equal_fedavg_bit_for_bit():
    present = presence(T, N, seed=1)
    none, plain = (
        run(algorithm, present)
        for algorithm in (fedala(LOCAL, parameters="none", cohort_size=N), fedavg(LOCAL, also=(Uniform(N),)))
    )
    for _ in present:
        none.round()
        plain.round()
    assert torch.equal(none.state.params, plain.state.params)
    assert torch.equal(none.models.serving(np.arange(N)), plain.state.params.expand(N, -1))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: fedala(AdamW()), r"needed steps of Sgd: write AggregationSteps.of\(Sgd"),
        (lambda: fedala(share=1.5), "share: got 1.5"),
        (lambda: fedala(weight_lr=0.0), "weight_lr: got 0.0"),
        (lambda: fedala(parameters=""), "parameters: got '', needed one of head, first"),
        (lambda: AggregationSteps(threshold=0.0), "threshold: got 0.0"),
        (lambda: AggregationSteps(most_passes=0), "most_passes: got 0"),
        (lambda: compose(AggregatedModel()), "AggregatedModel requires AggregationSteps, got Sgd"),
        (lambda: compose(AggregationSteps.of(Sgd(momentum=0.5))), r"add AggregatedModel\(\) to the pieces"),
    ],
)
def test_invalid_options_and_combinations_are_refused(make, why):
    with pytest.raises(ConfigurationError, match=why):
        make()


def test_pattern_without_match_is_refused():
    simulation = run(fedala(LOCAL, parameters="output.*", cohort_size=N), np.ones((1, N), dtype=bool))
    with pytest.raises(
        ConfigurationError, match=r"parameters 'output\.\*' match nothing of Sequential: its parameters are"
    ):
        simulation.round()


def test_a_mean_of_one_model_is_that_model():
    """A client that was alone in the last round receives its model up to rounding, and learns nothing from that."""
    alone = np.zeros((4, N), dtype=bool)
    alone[:, 2] = True
    simulation = run(fedala(LOCAL, parameters="all", cohort_size=N, server_lr=1.0), alone, "vectorized")
    for _ in range(4):
        simulation.round()
    row = simulation.memory.gather(np.array([2]))["personal"]
    size = len(simulation.state.params)
    assert (row[:, size : 2 * size] == 1).all()
    assert row[:, -1] == 0
    received = torch.randn(3, 5)
    nearly = received * torch.tensor([[1.0], [1 + 1e-7], [1 + 1e-5]])
    assert _differ(received, nearly).tolist() == [False, False, True]
