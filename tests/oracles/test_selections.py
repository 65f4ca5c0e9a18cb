"""Power-of-choice and Oort compared with a NumPy transcription that visits every client in every round."""

import numpy as np
import pytest
import torch

from turnout import ALGORITHMS, ConfigurationError, Sgd, compose
from turnout.base.selection import check_selection
from turnout.core.candidates import Candidates
from turnout.pieces.aggregation import Median, PrivateSum
from turnout.pieces.selection import Oort, PowerOfChoice, RecentLoss
from turnout.pieces.selection.draws import by_weight

from ..phases import measure, next_cohort
from ..tiny import federation, presence, report
from .clients import Clients, simulation
from .test_rules import SIZES, N

LR, STEPS, T = 0.2, 3, 30
LOCAL = Sgd(lr=LR, steps=STEPS, batch_size=16)
DURATIONS = tuple(np.arange(1.0, N + 1))


def trained(clients, w, n):
    """Return the trained model of client n from w, and its mean minibatch loss."""
    losses = []
    for batch in (clients.minibatch(n) for _ in range(STEPS)):
        losses.append(clients.losses(w, batch).mean())
        w = w - LR * clients.gradient(w, batch)
    return w, np.mean(losses)


def highest(loss, there, chosen, size):
    """Check that no available client outside of the cohort has a higher loss than one inside."""
    assert set(chosen) <= set(there)
    assert len(chosen) == min(size, len(there))
    left = [n for n in there if n not in chosen]
    assert not left or not chosen or min(loss[n] for n in chosen) >= max(loss[n] for n in left)


@pytest.mark.parametrize("recent", [False, True])
def test_power_of_choice_equals_its_transcription(recent):
    present, clients, size = presence(T, N, seed=0), Clients(), 3
    algorithm = ALGORITHMS["power_of_choice"](LOCAL, cohort_size=size, candidates=N, recent=recent)
    w, last, choices, run = clients.first, np.full(N, np.inf), 0, simulation(algorithm, present)
    for t in range(T):
        there, chosen = np.flatnonzero(present[t]), next_cohort(run, measure(run)).tolist()
        loss = last if recent else [clients.losses(w, clients.held[n]).mean() for n in range(N)]
        highest(loss, there, chosen, size)
        choices += len(there) > size
        ends = {n: trained(clients, w, n) for n in chosen}
        for n, (_, mean) in ends.items():
            last[n] = mean
        w = sum(end for end, _ in ends.values()) / len(ends) if ends else w
        run.round()
        np.testing.assert_allclose(run.state.params, w, rtol=0, atol=1e-10)
    assert choices > 5


@pytest.mark.parametrize("cutoff", [1.0, 0.5])
@pytest.mark.parametrize("durations", [None, DURATIONS])
def test_oort_equals_its_transcription(cutoff, durations):
    present, clients = presence(T, N, seed=0) | presence(T, N, seed=5), Clients()
    size, window, alpha, delta, preferred = 3, 3, 1.5, 2.0, 3.0
    options = {"durations": durations, "preferred": preferred, "penalty": alpha, "pacer_step": delta, "window": window}
    piece = Oort(size, 0.9, 0.8, 0.1, cutoff=cutoff, **options)
    algorithm = ALGORITHMS["oort"](LOCAL, also=(piece,))
    w, U, L, gained, choices = clients.first, {}, {}, [], 0
    run = simulation(algorithm, present)
    for t in range(T):
        R, there, chosen = t + 1, np.flatnonzero(present[t]), next_cohort(run).tolist()
        known = [n for n in there if n in U]
        new = [n for n in there if n not in U]
        num_new = min(int(max(0.9 * 0.8**R, 0.1) * size), len(new))
        num_known = min(size - num_new, len(known))
        assert sum(n in U for n in chosen) == num_known
        assert len(chosen) == num_known + min(size - num_known, len(new))
        score = {}
        if known:
            ranked = sorted(U[n] for n in known)
            top, low = ranked[min(int(0.95 * len(ranked)), len(ranked) - 1)], 0.999 * ranked[0]
            for n in known:
                score[n] = (min(U[n], top) - low) / max(ranked[-1] - low, 1e-4) + (0.1 * np.log(R) / L[n]) ** 0.5
                if durations and durations[n] > preferred:
                    score[n] *= (preferred / durations[n]) ** alpha
        if num_known:
            limit = cutoff * sorted(score.values(), reverse=True)[num_known - 1]
            assert all(score[n] >= limit for n in chosen if n in U)
            choices += len(known) > num_known
        if chosen:
            total = sum(SIZES[n] for n in chosen)
            for n in chosen:
                U[n], L[n] = SIZES[n] * np.sqrt((clients.losses(w, clients.held[n]) ** 2).mean()), R
            gained.append(sum(U[n] for n in chosen))
            w = sum(SIZES[n] / total * trained(clients, w, n)[0] for n in chosen)
            if len(gained) >= 2 * window and len(gained) % window == 0:
                preferred += delta * (sum(gained[-2 * window : -window]) > sum(gained[-window:]))
        run.round()
        np.testing.assert_allclose(run.state.params, w, rtol=0, atol=1e-10)
        record = run.state.slots["selection"]
        np.testing.assert_allclose(record["utility"], [U.get(n, 0.0) for n in range(N)], rtol=0, atol=1e-10)
        assert record["preferred"].item() == preferred
    assert choices > 5
    assert preferred > 3.0


def candidates(num_clients=4, round=0, **options):
    return Candidates(lambda clients: np.ones(len(clients), dtype=bool), num_clients, round, 0, **options)


def test_draws_without_replacement_have_sequential_probabilities():
    weights, rounds = np.array([0.5, 0.3, 0.2, 0.0]), 20000
    pairs = [tuple(by_weight(candidates(round=t), np.arange(4), weights, 2)) for t in range(rounds)]
    for (a, b), expected in {
        (0, 1): 0.5 * 0.3 / 0.5,
        (1, 0): 0.3 * 0.5 / 0.7,
        (2, 1): 0.2 * 0.3 / 0.8,
        (0, 3): 0.0,
    }.items():
        assert pairs.count((a, b)) / rounds == pytest.approx(expected, abs=0.012)


def test_client_above_the_participation_limit_is_excluded():
    piece = Oort(2, exploration=0.0, least=0.0, most=2)
    state = piece.init(federation(3))
    seen = {"start_loss_rms": torch.ones(3, dtype=torch.float64)}
    state = piece.apply(report([0, 1, 2], seen=seen), 0, state)
    one = {"start_loss_rms": torch.ones(1, dtype=torch.float64)}
    state = piece.apply(report([1], seen=one), 1, state)
    assert piece.select(candidates(3, round=2, record=state)).tolist() == [0, 2]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda: PowerOfChoice(3, candidates=2),
            "candidates: got 2, needed a whole number >= 3. Candidates include the cohort",
        ),
        (lambda: PowerOfChoice(3, shares=(0.5, 0.6)), "which sum to 1"),
        (lambda: check_selection(PowerOfChoice(9), 8), "at most the number of clients, 8"),
        (lambda: check_selection(RecentLoss(1, 1, shares=(0.5, 0.5)), 3), "for 2 clients, but there are 3"),
        (lambda: RecentLoss(1, 1, (0.5, 0.5)).select(candidates(3)), "for 2 clients, but there are 3"),
        (lambda: Oort(exploration=1.5), "exploration"),
        (lambda: Oort(preferred=0.0), "preferred"),
        (lambda: Oort(penalty=-1.0), "penalty"),
        (lambda: Oort(pacer_step=-1.0), "pacer_step"),
        (lambda: Oort(window=0), "window"),
        (lambda: Oort(most=0), "most"),
        (lambda: Oort(durations=(1.0, 0.0)), "durations"),
        (
            lambda: check_selection(Oort(2, durations=(1.0, 2.0)), 3),
            "durations has a number for 2 clients, but there are 3",
        ),
        (
            lambda: compose(Oort()),
            r"Oort reads start_loss_rms of every report, and no client sends it: add LossRms\(\)",
        ),
        (lambda: compose(RecentLoss(), PrivateSum(cohort=10)), "selects the cohort by measurements of clients' data"),
        (lambda: compose(RecentLoss(), Median()), "attackers can fill it"),
    ],
)
def test_invalid_options_are_refused(make, why):
    with pytest.raises(ConfigurationError, match=why):
        make()


def test_new_clients_have_no_participation():
    piece = Oort(1)
    before, after = federation(2), federation(3)
    state = piece.grow(piece.init(before) | {"last": torch.tensor([4, 5])}, before, after, 6)
    assert state["last"].tolist() == [4, 5, 0]
    assert len(state["gained"]) == 40
