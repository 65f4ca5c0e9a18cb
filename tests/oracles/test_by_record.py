"""FedLaAvg and F3AST compared with a NumPy transcription that visits every client in every round."""

from dataclasses import replace

import numpy as np
import pytest

from turnout import ALGORITHMS, ConfigurationError, Experiment, Population, Sgd, compose
from turnout.base.selection import check_selection
from turnout.core.candidates import Candidates
from turnout.pieces.selection import AllAvailable, LeastServed, LongestAbsent
from turnout.pieces.weighting import BySmoothedRate, DivideByClients
from turnout.population.availability import Trace
from turnout.simulation import Simulation

from ..phases import next_cohort
from ..tiny import federation, presence, report
from .rules import local_sgd, softmax_gradient
from .shuffles import client_key, endless
from .test_rules import CLASSES, DATA, SEED, SIZES, N, P, T, model, ours

K, LR, STEPS, BATCH = 3, 0.2, 3, 16
SHARES = tuple((np.arange(N) + 1.0) / (N * (N + 1) / 2))


def ours_by_round(algorithm, present):
    """Return the cohort and the parameters after every round."""
    rows = tuple((int(n), int(t), int(t) + 1) for t, n in zip(*np.nonzero(present), strict=True))
    run = Experiment(DATA, model(), algorithm, Population(Trace(rows, rounds=T)), rounds=T, seed=SEED, evaluate_every=T)
    simulation = Simulation(run)
    for _ in range(T):
        chosen = next_cohort(simulation)
        simulation.round()
        yield chosen, simulation.state.params.numpy().copy()


class Clients:
    """Clients that train as in `test_rules`."""

    def __init__(self):
        self.w = np.concatenate([p.detach().numpy().ravel() for p in model().parameters()])
        self.batches = [endless(int(SIZES[n]), client_key(SEED, n), BATCH, drop_last=True) for n in range(N)]

    def update(self, n):
        x, y = (part.numpy() for part in DATA.train.client(int(n)))
        some = [(x[rows], y[rows]) for rows in (next(self.batches[n]) for _ in range(STEPS))]
        return local_sgd(self.w, some, lambda w, x, y: softmax_gradient(w, x, y, CLASSES), LR)


def check_first(chosen, there, score):
    """Check that the cohort is available and of maximal size, and that no other client has a larger score."""
    assert set(chosen) <= set(there)
    assert len(chosen) == min(K, len(there))
    left = [n for n in there if n not in chosen]
    assert not left or min(score[n] for n in chosen) >= max(score[n] for n in left) - 1e-12


def test_fedlaavg_equals_its_transcription():
    present, clients = presence(T, N, seed=1), Clients()
    last, latest = np.full(N, -1), np.zeros((N, P))
    algorithm = ALGORITHMS["fedlaavg"](Sgd(lr=LR, steps=STEPS, batch_size=BATCH), cohort_size=K)
    waited = 0
    for t, (chosen, params) in enumerate(ours_by_round(algorithm, present)):
        check_first(chosen, np.flatnonzero(present[t]), -last)
        waited += present[t].sum() > K
        for n in chosen:
            latest[n], last[n] = clients.update(n), t
        clients.w = clients.w + latest.mean(axis=0)
        np.testing.assert_allclose(params, clients.w, rtol=0, atol=1e-10)
    assert waited > 5


@pytest.mark.parametrize("shares", [None, SHARES])
def test_f3ast_equals_its_transcription(shares):
    present, clients, beta = presence(T, N, seed=0), Clients(), 0.1
    p, r = np.full(N, 1 / N) if shares is None else np.array(shares), np.full(N, 1 / N)
    local = Sgd(lr=LR, steps=STEPS, batch_size=BATCH)
    algorithm = ALGORITHMS["f3ast"](local, cohort_size=K, beta=beta, shares=shares, server_lr=2.0)
    start = clients.w
    for t, (chosen, params) in enumerate(ours_by_round(algorithm, present)):
        check_first(chosen, np.flatnonzero(present[t]), (p / r) ** 2)
        r = (1 - beta) * r
        r[chosen] += beta
        updates = [p[n] / r[n] * clients.update(n) for n in chosen]
        clients.w = clients.w + (2.0 * sum(updates) / len(updates) if updates else 0.0)
        np.testing.assert_allclose(params, clients.w, rtol=0, atol=1e-10)
    assert np.abs(clients.w - start).max() > 0.1  # it went somewhere


def test_fedlaavg_with_full_cohorts_equals_mifa():
    present, local = presence(T, N, seed=4), Sgd(lr=LR, steps=STEPS, batch_size=BATCH)
    expected = ours(ALGORITHMS["mifa"](local), present, "vectorized")
    np.testing.assert_array_equal(ours(ALGORITHMS["fedlaavg"](local, cohort_size=N), present, "vectorized"), expected)
    also = ALGORITHMS["fedlaavg"](local, also=(AllAvailable(),))
    np.testing.assert_array_equal(ours(also, present, "vectorized"), expected)


def test_rates_converge_to_participation_rates_and_weights_to_their_inverse():
    piece = BySmoothedRate(beta=0.02)
    known = federation(4)
    state = piece.init(known)
    for t in range(1000):
        there = [0, 1] if t % 2 else [0, 2 + t // 2 % 2]
        factors = piece.factors(report(there), t, state, known)
        _, state = piece.apply(factors * 0 + 1, report(there), t, state, known)
    rates = piece.rate_before(np.arange(4), 1000, state)
    np.testing.assert_allclose(rates, [1.0, 0.5, 0.25, 0.25], atol=0.02)


def test_ties_are_broken_at_random():
    piece = LongestAbsent(2)
    record = piece.init(federation(50))
    everyone = Candidates(lambda clients: np.ones(len(clients), dtype=bool), 50, 0, 0, record=record)
    chosen = {tuple(piece.select(replace(everyone, round=t))) for t in range(20)}
    assert len(chosen) > 15


def test_later_enrolled_clients_begin_at_the_current_round():
    algorithm = ALGORITHMS["f3ast"](Sgd(), cohort_size=1, beta=0.5)
    state = algorithm.init(DATA.train.x[0], federation(2, num_params=4))
    state = replace(state, version=7)
    after = algorithm.grown(state, federation(2, num_params=4), federation(3, num_params=4))
    assert after.slots["selection"]["last"].tolist() == [-1, -1, 6]
    assert after.slots["selection"]["rate"].tolist() == pytest.approx([1 / 3] * 3)


OF_TWO = compose(BySmoothedRate(shares=(0.5, 0.5)), DivideByClients())


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: LeastServed(beta=1.5), "beta: got 1.5, needed a number > 0 and <= 1"),
        (lambda: BySmoothedRate(shares=(0.5, 0.6)), "which sum to 1"),
        (lambda: OF_TWO.init(DATA.train.x[0], federation(3)), "for 2 clients, but there are 3"),
        (lambda: LongestAbsent(0), "cohort_size"),
        (lambda: check_selection(LongestAbsent(9), 8), "at most the number of clients, 8"),
    ],
)
def test_invalid_cohorts_and_rates_are_refused(make, why):
    with pytest.raises(ConfigurationError, match=why):
        make()
