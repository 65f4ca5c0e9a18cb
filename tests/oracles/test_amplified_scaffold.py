"""Amplified SCAFFOLD compared with a NumPy transcription that lists all gradients of a period."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

from turnout import ALGORITHMS, ConfigurationError, Experiment, Population, Sgd, average_participating, models, scaffold
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.pieces.local import PeriodicScaffold
from turnout.pieces.server_optimizer.sgd import Amplified
from turnout.population.availability import Trace
from turnout.simulation import Simulation

from ..laws.test_optimum import Mean, half_square
from ..tiny import classification, presence
from . import rules
from .shuffles import client_key, endless
from .test_rules import CLASSES, DATA, SEED, SIZES, N, T, model, ours

LR, STEPS = 0.1, 3
LOCAL = Sgd(lr=LR, steps=STEPS, batch_size=16)


def theirs(present, period, gamma):
    """Parameters, and c, after every round, as the authors' program has them."""
    w = np.concatenate([p.detach().numpy().ravel() for p in model().parameters()])
    begun, c, c_k = w.copy(), np.zeros_like(w), np.zeros((N, len(w)))
    total, number, found = np.zeros((N, len(w))), np.zeros(N, dtype=int), []
    batches = [endless(int(SIZES[n]), client_key(SEED, n), LOCAL.batch_size, drop_last=True) for n in range(N)]
    for t in range(T):
        ends = []
        for n in np.flatnonzero(present[t]):
            x, y = (part.numpy() for part in DATA.train.client(int(n)))
            v = w.copy()
            for rows in islice(batches[n], STEPS):
                g = rules.softmax_gradient(v, x[rows], y[rows], CLASSES)
                total[n] += g
                number[n] += 1
                v = v - LR * (g - c_k[n] + c)
            ends.append(v)
        if ends:
            w = np.mean(ends, axis=0)
        if (t + 1) % period == 0:
            w = begun + gamma * (w - begun)
            begun = w.copy()
            for n in range(N):
                if number[n]:
                    c = c - c_k[n] / N
                    c_k[n] = total[n] / number[n]
                    c = c + c_k[n] / N
                    total[n], number[n] = 0.0, 0
        found.append((w, c))
    return found


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_amplified_scaffold_equals_its_transcription(engine):
    present, period = presence(T, N, seed=5), 6
    assert not present[period - 1 :: period].any(axis=1).all()  # a period that ends with nobody there
    expected = theirs(present, period, gamma=1.4)
    rows = tuple((int(n), int(t), int(t) + 1) for t, n in zip(*np.nonzero(present), strict=True))
    algorithm = ALGORITHMS["amplified_scaffold"](LOCAL, period=period, gamma=1.4)
    run = Experiment(DATA, model(), algorithm, Population(Trace(rows, rounds=T)), rounds=T, seed=SEED, engine=engine)
    simulation = Simulation(run)
    for w, c in expected:
        simulation.round()
        np.testing.assert_allclose(simulation.state.params, w, rtol=0, atol=1e-10)
        np.testing.assert_allclose(simulation.server.shared()["control"], c, rtol=0, atol=1e-10)
    assert np.abs(expected[-1][0] - expected[0][0]).max() > 0.1  # it went somewhere
    own = simulation.memory.gather(np.arange(N))["control"]
    np.testing.assert_allclose(simulation.state.slots["controls"]["control"], own.mean(dim=0), rtol=0, atol=1e-12)


def test_periods_of_one_round_without_amplification_equal_scaffold():
    present = presence(T, N, seed=2)
    expected = ours(scaffold(LOCAL, cohort_size=N), present, "vectorized")
    algorithm = ALGORITHMS["amplified_scaffold"](LOCAL, period=1, gamma=1.0)
    np.testing.assert_allclose(ours(algorithm, present, "vectorized"), expected, rtol=0, atol=1e-12)


def end(algorithm, rounds=100, period=4):
    """Return the last model for clients with targets n^2, of which alternating halves are available."""
    targets = np.arange(4) ** 2.0
    shards = Shards(torch.zeros(16, 1), torch.from_numpy(targets).repeat_interleave(4).float(), np.arange(0, 17, 4))
    begins = [(n, t + period // 2 * (n // 2)) for t in range(0, rounds, period) for n in range(4)]
    turns = [(n, t, t + period // 2) for n, t in begins]
    population = Population(Trace(tuple(turns), rounds=rounds))
    data = FederatedData("numbers", shards)
    run = Experiment(data, Mean(), algorithm, population, rounds=rounds, evaluate_every=rounds, loss=half_square)
    simulation = Simulation(run)
    for _ in range(rounds):
        simulation.round()
    return float(simulation.state.params), targets


def test_cyclic_clients_are_weighted_equally_at_a_constant_step_size():
    """``F_n(x) = (x - n^2)^2 / 2``: it converges to the mean of all n^2, and the plain mean to the last clients."""
    local = Sgd(lr=0.1, steps=2, batch_size=4)
    found, targets = end(ALGORITHMS["amplified_scaffold"](local, period=4, gamma=1.5))
    assert found == pytest.approx(targets.mean(), abs=1e-4)
    plain, _ = end(average_participating(local))
    assert plain - targets.mean() > 0.5
    amplified, _ = end(average_participating(local, also=(Amplified(period=4, gamma=1.5),)))
    assert amplified - targets.mean() > 0.5


def test_invalid_periods_and_amplifications_are_refused():
    for make in (lambda: PeriodicScaffold(0), lambda: Amplified(0)):
        with pytest.raises(ConfigurationError, match="period"):
            make()
    with pytest.raises(ConfigurationError, match="gamma"):
        Amplified(gamma=0.0)


def test_dropped_report_leaves_client_memory_unchanged():
    data = classification()
    data = replace(data, train=replace(data.train, x=data.train.x.clone()))
    data.train.client(4)[0].fill_(3e38)
    algorithm = ALGORITHMS["amplified_scaffold"](Sgd(lr=0.2, steps=2, batch_size=8), period=2)
    simulation = Simulation(Experiment(data, models.Logistic(), algorithm, rounds=5, evaluate_every=5))
    for _ in range(5):
        simulation.round()
    memory = simulation.memory.gather(np.arange(N))
    assert not any(memory[name][4].any() for name in ("control", "control_held", "control_period", "control_steps"))
    assert memory["control_steps"][3].item() == 2
    assert memory["control_period"][3].item() == 2
    torch.testing.assert_close(memory["control"].double().mean(dim=0), simulation.state.slots["controls"]["control"])
