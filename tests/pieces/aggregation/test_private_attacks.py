"""Attacks on claimed privacy: the influence of one client, exact or sampled, compared with epsilon."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import beta, binom
from tests.tiny import classification, federation, report

import turnout as to
from turnout.base.server_step import server_step
from turnout.pieces.aggregation import PrivateSum
from turnout.simulation import Simulation

P = 3
BAD = torch.full((P,), torch.nan, dtype=torch.float64)
COUNTED = {
    "independent": to.average_participating(also=(PrivateSum(cohort=4),)),
    "by all": to.fedau(also=(PrivateSum(),)),
    "by coins": to.average_all(also=(PrivateSum(sampling_rate=0.1), to.selection.Poisson(0.1))),
    "correlated": to.average_participating(
        also=(PrivateSum(cohort=4, correlation=to.privacy.BandedSquareRoot(), rounds=8, separation=2),)
    ),
    "adaptive": to.average_participating(also=(PrivateSum(cohort=4, quantile=0.5, count_deviation=2.0),)),
    "in shares": to.average_participating(
        also=(PrivateSum(cohort=4, noise_shares=4), to.guard.NoiseShare(1.0, 1.0, shares=4))
    ),
    "two vectors": to.scaffold(
        cohort_size=4,
        also=(PrivateSum(cohort=4, control_norm=1.0), to.guard.ClipControls(1.0), to.selection.Uniform(4)),
    ),
}


def lower_bound(outcomes, neighbors, delta, alpha=1e-3):
    """Return an epsilon that the mechanism exceeds with confidence 1 - 2 alpha, by Clopper and Pearson's bounds.

    Both arguments are samples of a statistic that is larger with the client; half of each chooses the threshold.
    """
    n = len(outcomes) // 2
    best, threshold = -math.inf, 0.0
    for candidate in np.quantile(outcomes[:n], np.linspace(0.05, 0.95, 19)):
        hits, false = (outcomes[:n] > candidate).mean(), (neighbors[:n] > candidate).mean()
        found = math.log(max(hits - delta, 1e-12) / (false + 1 / n))
        best, threshold = max((best, threshold), (found, candidate))
    hits, false = int((outcomes[n:] > threshold).sum()), int((neighbors[n:] > threshold).sum())
    low, high = beta.ppf(alpha, hits, n - hits + 1), beta.ppf(1 - alpha, false + 1, n - false)
    return math.log(max(low - delta, 1e-12) / high)


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("clients", [[], [0, 2]], ids=["nobody", "only bad reports"])
def test_every_counted_round_has_noise(name, clients):
    algorithm, known = COUNTED[name], federation(8, P)
    state = algorithm.init(torch.zeros(P, dtype=torch.float64), known)
    for t in range(2):
        sent = report(clients, BAD.expand(len(clients), P), version=t)
        sent = replace(sent, extra=dict.fromkeys(algorithm.keeps, sent.delta))
        after, _ = server_step(algorithm, state, sent, known)
        assert (after.params != state.params).all()
        for kept, mean in algorithm.shared(after).items():
            assert (mean != algorithm.shared(state)[kept]).all()
        state = after
    assert state.slots["aggregation"]["releases"] == 2


IN_STEP = to.average_all(
    to.Sgd(steps=1), also=(PrivateSum(noise_multiplier=2.0, sampling_rate=0.05), to.selection.Poisson(0.05))
)
BY_CLOCK = to.average_participating(to.Sgd(steps=1), also=(PrivateSum(noise_multiplier=2.0, cohort=4),))
SLOW = to.Population(speed=to.speed.Speed(compute=to.delay.Uniform(1, 5)))


@pytest.mark.parametrize("by_clock", [False, True], ids=["in step", "by the clock"])
def test_runs_add_noise_in_rounds_without_reports(by_clock):
    """Some rounds have no reports, because all coins fail or all clients are too slow."""
    algorithm, population = (BY_CLOCK, SLOW) if by_clock else (IN_STEP, to.Population())
    pace = to.pace.Rounds(deadline=1.3) if by_clock else to.pace.Rounds()
    run = to.Experiment(classification(), to.models.Logistic(), algorithm, population, pace, rounds=8)
    simulation = Simulation(run)
    sizes, moved = [], []
    for _ in range(8):
        before = simulation.state.params
        sizes.append(len(simulation.step().reports))
        moved.append(bool((simulation.state.params != before).any()))
    assert 0 in sizes
    assert all(moved)


def test_empty_rounds_reveal_no_more_than_epsilon():
    """The exact attack counts rounds without change, which are more frequent with N - 1 clients than with N."""
    clients, rate, rounds, delta = 100, 0.01, 1000, 1e-5
    algorithm, known = COUNTED["by coins"], federation(clients, P)
    state = algorithm.init(torch.zeros(P, dtype=torch.float64), known)
    unchanged = torch.equal(server_step(algorithm, state, report([], num_params=P), known)[0].params, state.params)
    counts = np.arange(rounds + 1)
    with_client, without = (
        binom.sf(counts, rounds, (1 - rate) ** n if unchanged else 0.0) for n in (clients, clients - 1)
    )
    exact = max(math.log(max(q - delta, 1e-300) / max(p, 1e-300)) for p, q in zip(with_client, without, strict=True))
    assert exact <= to.privacy.epsilon(to.privacy.Release(1.0, sampling_rate=rate), rounds, delta)


CHAINS = {
    "by staleness over the sum": (to.weighting.ByStaleness(rule="exponential", base=3.0), to.weighting.DivideBySum()),
    "over the absolute sum": (to.weighting.ByStaleness(), to.weighting.DivideByAbsoluteSum()),
    "over the sum and more": (to.weighting.ByStaleness(), to.weighting.DivideBySumPlus(0.1)),
    "by participants": (to.weighting.DivideByParticipants(),),
    "by clients": (to.weighting.DivideByClients(),),
    "fedau": (to.weighting.Participation(), to.weighting.DivideByClients()),
    "fedau in groups": (to.weighting.Participation(groups=(0, 1) * 4), to.weighting.DivideByClients()),
    "fedstaleweight": (to.weighting.ExpectedStaleness(), to.weighting.DivideBySum()),
    "f3ast": (to.weighting.BySmoothedRate(), to.weighting.DivideBySum()),
    "echo": (to.weighting.Echo(), to.weighting.DivideByClients()),
    "known rates": (to.weighting.KnownRates(rates=(0.5,) * 8), to.weighting.DivideByClients()),
    "examples": (to.weighting.ExamplesUpTo(5), to.weighting.DivideByParticipants()),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("sent", [math.nan, math.inf, 1e200, -1e308, 50.0])
def test_one_client_changes_the_sum_by_at_most_the_norm(name, sent):
    """Including a client whose report is dropped, in this step and the next; its neighbor sends zeros."""
    chain, norm, known = CHAINS[name], 0.5, federation(8, P)
    by_all = isinstance(chain[-1], to.weighting.DivideByClients)
    piece = PrivateSum(norm=norm, noise_multiplier=0.0, cohort=None if by_all else 4)
    algorithm, divisor = to.compose(*chain, piece), 8 if by_all else 4
    rng = np.random.default_rng(1)
    rows = [torch.from_numpy(rng.normal(size=(6, P))) * 3 for _ in range(2)]
    models = []
    for value in (sent, 0.0):
        state, found = algorithm.init(torch.zeros(P, dtype=torch.float64), known), []
        for t, delta in enumerate(rows):
            delta = delta.clone()
            delta[2] = value if t == 0 else delta[2]
            reports = replace(report(range(6), delta), version=t - np.arange(6) % 3)
            before = state.params
            state, _ = server_step(algorithm, state, reports, known)
            found.append(state.params - before)
        models.append(found)
    assert (models[0][0] - models[1][0]).norm() <= norm / divisor * (1 + 1e-9)
    torch.testing.assert_close(models[0][1], models[1][1])


def test_one_client_changes_the_quantile_count_by_one_half():
    """For all its possible updates, compared with a neighbor that adds nothing. The count follows exactly from the norm."""
    piece = PrivateSum(norm=1.0, noise_multiplier=2.0, cohort=4, quantile=0.5, count_deviation=2.0)
    known, others, counts = federation(8, P), torch.ones(3, P, dtype=torch.float64) * 0.1, []
    for row in (BAD, *(torch.full((P,), value, dtype=torch.float64) for value in (0.0, 0.1, 9.0, 1e200))):
        algorithm = to.average_participating(also=(piece,))
        state = algorithm.init(torch.zeros(P, dtype=torch.float64), known)
        sent = report(range(4), torch.cat([others, row[None]]))
        norm = server_step(algorithm, state, sent, known)[0].slots["aggregation"]["norm"]
        counts.append(-math.log(norm) / piece.quantile_rate * 4)
    assert np.subtract(counts, counts[0]).tolist() == pytest.approx([0, 0.5, 0.5, -0.5, -0.5])


def test_adaptive_clipping_loses_at_most_epsilon():
    """Likelihood ratio of both released numbers, direction and norm, over runs with different noise."""
    runs, delta = 3000, 1e-3
    piece = PrivateSum(noise_multiplier=1.0, cohort=1, quantile=0.5, count_deviation=0.55, delta=delta)
    weights = torch.ones(1, dtype=torch.float64)
    multiplier = (1 - 1.1**-2) ** -0.5

    def statistics(row, first):
        found = []
        sent = report([0], torch.tensor([[row]], dtype=torch.float64)).nulled()[0]
        for seed in range(first, first + runs):
            known = replace(federation(2, 1), seed=seed)
            moved, state = piece.apply(weights, sent, piece.init(known), known)
            count = -math.log(state["norm"]) / piece.quantile_rate
            found.append(float(moved) / multiplier**2 + count * 0.5 / 0.55**2)
        return np.array(found)

    # An update of the length 1 is not clipped: both numbers move as far as they may, the direction by 1, the count by 1/2.
    found = lower_bound(statistics(1.0, 0), statistics(math.nan, runs), delta)
    claimed = to.privacy.epsilon(piece.release(), 1, delta)
    assert 0.15 * claimed < found <= claimed


def test_non_finite_weight_adds_nothing():
    piece, known = PrivateSum(noise_multiplier=0.0, cohort=3), federation(8, P)
    rows = torch.ones(3, P, dtype=torch.float64)
    weights = torch.tensor([1 / 3, math.inf, math.nan], dtype=torch.float64)
    moved, _ = piece.apply(weights, report(range(3), rows), piece.init(known), known)
    alone, _ = piece.apply(weights[:1], report([0], rows[:1]), piece.init(known), known)
    assert torch.equal(moved, alone)


def test_one_client_changes_a_bounded_divisor_by_at_most_its_bound():
    """A weight may be negative or infinite; a dropped report adds nothing."""
    piece, known = to.weighting.DivideByNoisySum(most=0.25, noise_multiplier=2.0, least=1e-6), federation(8, P)
    divisors = []
    for weight, row in ((1.0, BAD), (0.1, torch.ones(P)), (1e300, torch.ones(P)), (-1e300, torch.ones(P))):
        sent = report(range(9), torch.cat([torch.ones(8, P).double(), row.double()[None]])).nulled()[0]
        weights = torch.tensor([5.0] * 8 + [weight], dtype=torch.float64)
        divisors.append(0.25 / float(piece.apply(weights, sent, 0, piece.init(known), known)[0][0]))
    assert np.subtract(divisors, divisors[0]).tolist() == pytest.approx([0.0, 0.1, 0.25, -0.25])
