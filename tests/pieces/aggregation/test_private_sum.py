"""The sum of clipped updates with noise, its accounting in a run, and its compatibility with recipes."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.recipes import BASELINES, LOCAL, RECIPES
from tests.tiny import LOW_RANK, classification, federation, report

import turnout as to
from turnout import ALGORITHMS, ConfigurationError
from turnout.base.server_step import server_step
from turnout.cli.dry_run import planned
from turnout.core.checks import BudgetSpent
from turnout.pieces.aggregation import PrivateSum
from turnout.privacy import buffered_toeplitz
from turnout.privacy.noise import GridNoise
from turnout.privacy.plan import Plan, _together
from turnout.simulation import Simulation
from turnout.simulation.running import save_simulation


def direction(piece, delta, weights=None, known=None, state=None):
    """Return the direction of a piece for updates ``[B, P]``, by default with weights 1/B."""
    known = known or federation(20, delta.shape[1])
    weights = torch.full((len(delta),), 1 / len(delta), dtype=torch.float64) if weights is None else weights
    return piece.apply(weights, report(range(len(delta)), delta), state or piece.init(known), known)


def test_weighted_updates_are_clipped_and_summed():
    """Compared with a transcription: FedAU's weights omega / N, D = N."""
    rng = np.random.default_rng(3)
    delta, omega = rng.normal(size=(6, 5)) * np.arange(1, 7)[:, None], rng.uniform(0.5, 4.0, 6)
    expected = np.zeros(5)
    for w, row in zip(omega, delta, strict=True):
        expected += w * row * min(1.0, 2.0 / np.linalg.norm(w * row)) / 20
    found, _ = direction(
        PrivateSum(norm=2.0, noise_multiplier=0.0), torch.from_numpy(delta), torch.from_numpy(omega / 20)
    )
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.01, 5.0), st.floats(1e-3, 1e6))
def test_one_client_adds_at_most_the_norm(seed, norm, size):
    rng, piece = np.random.default_rng(seed), PrivateSum(norm=norm, noise_multiplier=0.0)
    delta = torch.from_numpy(rng.normal(size=(4, 5)))
    other = delta.clone()
    other[2] = torch.from_numpy(rng.normal(size=5)) * size
    nothing = delta.clone()
    nothing[2] = 0.0
    moved = direction(piece, other)[0] - direction(piece, nothing)[0]
    assert moved.norm() <= norm / 20 * (1 + 1e-9)


def test_noise_has_the_counted_norm_and_differs_between_releases():
    piece, known = PrivateSum(norm=2.0, noise_multiplier=3.0), federation(20, 4000)
    zero = torch.zeros(4, 4000, dtype=torch.float64)
    first, state = direction(piece, zero, known=known)
    second, _ = direction(piece, zero, known=known, state=state)
    assert first.std().item() == pytest.approx(2.0 * 3.0 / 20, rel=0.05)
    assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1]) < 0.1
    assert torch.equal(first, direction(piece, zero, known=known)[0])


def test_norm_converges_to_the_quantile_of_update_norms():
    lengths = torch.linspace(0.5, 8.0, 16, dtype=torch.float64)
    delta = torch.eye(16, dtype=torch.float64) * lengths[:, None]
    piece = PrivateSum(norm=0.1, noise_multiplier=0.0, cohort=16, quantile=0.5)
    known = federation(20, 16)
    state = piece.init(known)
    for _ in range(150):
        _, state = direction(piece, delta, known=known, state=state)
    assert state["norm"].item() == pytest.approx(4.25, abs=0.6)


def test_quantile_count_increases_the_noise_of_updates():
    plain, adaptive = (
        PrivateSum(noise_multiplier=1.0, cohort=20, quantile=quantile, count_deviation=1.0) for quantile in (None, 0.5)
    )
    zero, known = torch.zeros(4, 4000, dtype=torch.float64), federation(20, 4000)
    ratio = direction(adaptive, zero, known=known)[0].norm() / direction(plain, zero, known=known)[0].norm()
    assert ratio.item() == pytest.approx((1 - 0.25) ** -0.5, rel=1e-6)


def experiment(piece, algorithm="average_participating", rounds=6, **more):
    make = ALGORITHMS[algorithm]
    return to.Experiment(
        classification(), to.models.Logistic(), make(to.Sgd(lr=0.1, steps=2), also=(piece,)), rounds=rounds, **more
    )


def test_rows_have_the_epsilon_spent_and_nothing_is_counted_twice():
    result = experiment(PrivateSum(noise_multiplier=5.0, cohort=8)).run()
    spent = result.rounds["epsilon"].to_pylist()
    assert spent == [to.privacy.epsilon(to.privacy.Release(5.0), t, 1e-5) for t in range(1, 7)]


def test_budget_is_never_exceeded():
    with pytest.raises(
        ConfigurationError, match=r"6 rounds would spend epsilon=.* write rounds=1, or noise_multiplier=3\.\d+"
    ):
        experiment(PrivateSum(noise_multiplier=2.0, cohort=8, budget=2.6))
    experiment(PrivateSum(noise_multiplier=4.6, cohort=8, budget=2.6))


def test_delta_of_at_least_one_over_n_is_refused():
    with pytest.raises(
        ConfigurationError, match=r"delta: got 0\.125 with 8 clients, needed less than 1/8.* delta=0\.01$"
    ):
        experiment(PrivateSum(cohort=8, delta=0.125)).run()
    experiment(PrivateSum(cohort=8, delta=0.12), rounds=1).run()


def test_no_row_exceeds_the_budget():
    piece = PrivateSum(noise_multiplier=0.8, sampling_rate=0.3)
    total = to.privacy.epsilon(piece.release(), 9, 1e-5)
    algorithm = to.average_all(to.Sgd(lr=0.1, steps=1), also=(replace(piece, budget=total), to.selection.Poisson(0.3)))
    result = to.Experiment(classification(), to.models.Logistic(), algorithm, rounds=9).run()
    assert max(result.rounds["epsilon"].to_pylist()) == result.rounds["epsilon"][-1].as_py() == total


def test_run_ends_before_a_step_that_would_exceed_the_budget(monkeypatch, tmp_path):
    """No step releases more than the budget allows, whatever was accepted at the start."""
    monkeypatch.setattr(Plan, "check", lambda *_: None)
    budget = to.privacy.epsilon(to.privacy.Release(5.0), 4, 1e-5)
    run = experiment(PrivateSum(noise_multiplier=5.0, cohort=8, budget=budget))
    with pytest.warns(RuntimeWarning, match="the privacy budget is spent: round 5 would bring epsilon to"):
        result = run.run(tmp_path)
    assert result.rounds["epsilon"].to_pylist()[3:] == [budget]
    assert result.history.column("test_loss")[0].tolist() == [4], "the last model is evaluated"
    with pytest.warns(RuntimeWarning, match="the privacy budget is spent"):
        assert run.run(tmp_path, resume=True).rounds.num_rows == 4
    simulation = Simulation(run)
    for _ in range(4):
        simulation.round()
    with pytest.raises(BudgetSpent, match="round 5 would bring epsilon"):
        simulation.round()


@pytest.mark.parametrize("correlation", [to.privacy.BandedSquareRoot(), to.privacy.BufferedToeplitz(2)])
def test_separation_holds_and_a_resumed_run_equals_an_uninterrupted_one(correlation, tmp_path):
    piece = PrivateSum(noise_multiplier=1.0, cohort=4, correlation=correlation, rounds=8, separation=3)
    whole = experiment(piece, rounds=8).run()
    took_part = whole.participation.to_pydict()
    for client in range(8):
        rounds = [r for r, c in zip(took_part["round"], took_part["client"], strict=True) if c == client]
        assert rounds
        assert min(np.diff(rounds), default=3) >= 3

    class Stop(to.Callback):
        def on_round(self, row):
            if row["round"] == 4:
                raise to.Interrupted("enough")

    with pytest.raises(to.Interrupted):
        experiment(piece, rounds=8).run(tmp_path, callbacks=[Stop()])
    resumed = experiment(piece, rounds=8).run(tmp_path, resume=True)
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value)


def test_resumed_run_does_not_repeat_the_search_for_a_correlation(tmp_path, monkeypatch):
    """Another version of SciPy may find other coefficients; noise and epsilon use those of the start."""
    piece = PrivateSum(cohort=4, correlation=to.privacy.BufferedToeplitz(2), rounds=6, separation=2, budget=100.0)
    whole = experiment(piece).run()
    simulation = Simulation(experiment(piece))
    for _ in range(3):
        simulation.round()
    save_simulation(simulation, tmp_path)
    monkeypatch.setattr(buffered_toeplitz, "_best", None)
    _together.cache_clear()
    resumed = experiment(piece).run(tmp_path, resume=True)
    assert resumed.rounds["epsilon"] == whole.rounds["epsilon"]
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value)


def test_searched_correlation_is_compared_with_the_budget_at_the_start(tmp_path):
    run = experiment(PrivateSum(cohort=4, correlation=to.privacy.BufferedToeplitz(2), rounds=6, budget=0.1))
    for begin in (lambda: run.run(tmp_path / "run"), lambda: planned(run)):
        with pytest.raises(ConfigurationError, match="budget: 6 rounds would spend"):
            begin()
    assert not (tmp_path / "run").exists()


def test_reports_within_the_separation_are_dropped():
    piece = PrivateSum(noise_multiplier=1.0, cohort=2, separation=4)
    result = experiment(piece, "fedbuff", pace=to.pace.Buffered(buffer_size=2, concurrency=4), rounds=10).run()
    assert sum(result.rounds["num_too_early"].to_pylist()) > 0


def test_sampling_is_counted_only_if_the_server_determines_participation():
    piece = PrivateSum(noise_multiplier=1.0, sampling_rate=0.5)
    algorithm = to.average_all(to.Sgd(steps=1), also=(piece, to.selection.Poisson(0.5)))
    run = to.Experiment(classification(), to.models.Logistic(), algorithm, rounds=3)
    spent = run.run().rounds["epsilon"].to_pylist()
    assert spent[-1] < to.privacy.epsilon(to.privacy.Release(1.0), 3, 1e-5)
    with pytest.raises(ConfigurationError, match="sampling hides a client only if the server alone decides"):
        to.Experiment(
            classification(),
            to.models.Logistic(),
            algorithm,
            to.Population(to.availability.Bernoulli(mean=0.5)),
            rounds=3,
        )
    with pytest.raises(ConfigurationError, match="add Poisson with that rate to the pieces"):
        to.average_all(also=(piece,))
    with pytest.raises(ConfigurationError, match="the number of sampled clients is private, and DivideByParticipants"):
        to.average_participating(also=(PrivateSum(cohort=4, sampling_rate=0.5), to.selection.Poisson(0.5)))


def test_fixed_size_sampling_is_counted_and_named_in_rows():
    piece = PrivateSum(noise_multiplier=4.0, cohort=2, sampled_from=8)
    make = to.average_participating
    fresh = to.Sgd(steps=1, sampling="fresh")
    algorithm = make(fresh, also=(piece, to.selection.Uniform(2)))
    run = to.Experiment(classification(), to.models.Logistic(), algorithm, rounds=2)
    result = run.run()
    release = to.privacy.Release(4.0, sampling_rate=0.25, sampling="fixed_size")
    assert result.rounds["epsilon"].to_pylist() == [to.privacy.epsilon(release, t, 1e-5) for t in (1, 2)]
    assert result.rounds["fixed_size_rate"].to_pylist() == [0.25, 0.25]
    assert result.summary()["epsilon"] == result.rounds["epsilon"][-1].as_py()
    assert result.summary()["fixed_size_rate"] == 0.25
    assert "one client is replaced by another" in str(planned(run)["epsilon at delta 1e-05"])
    with pytest.raises(ConfigurationError, match="sampled_from: sampling hides a client only if"):
        replace(run, population=to.Population(to.availability.Bernoulli(mean=0.5)))
    with pytest.raises(ConfigurationError, match="there are 8 clients to draw from: write sampled_from=8"):
        replace(run, algorithm=make(fresh, also=(replace(piece, sampled_from=9), to.selection.Uniform(2)))).run()
    with pytest.raises(ConfigurationError, match=r"AllAvailable does not draw cohort=2 of all clients: add Uniform"):
        make(also=(piece,))
    with pytest.raises(
        ConfigurationError, match="DivideByNoisySum divides by another number: use DivideByParticipants"
    ):
        make(also=(piece, to.selection.Uniform(2), to.weighting.DivideByNoisySum()))


@pytest.mark.parametrize(
    "remembering",
    [to.weighting.Participation(), to.guard.TopK(), to.personalization.Personal(), to.Sgd()],
    ids=lambda piece: type(piece).__name__,
)
def test_fixed_size_sampling_requires_updates_independent_of_earlier_draws(remembering):
    pieces = (to.selection.Uniform(2), to.weighting.DivideByParticipants(), PrivateSum(cohort=2, sampled_from=8))
    with pytest.raises(
        ConfigurationError, match=f"with {type(remembering).__name__}, a client's contribution depends on"
    ):
        to.compose(remembering, *pieces)


def test_count_that_leaves_no_noise_is_refused_at_the_start():
    with pytest.raises(ConfigurationError, match="count_deviation: the count alone costs more"):
        experiment(PrivateSum(noise_multiplier=10.0, quantile=0.5, count_deviation=5.0), "fedau").run()


def test_count_relative_to_all_clients_is_refused():
    """With 20 of 1,000 clients a round, noise of a twentieth of all would be 2.5 times the count: a random walk."""
    message = (
        r"DivideByClients divides by all clients, .*: write count_deviation=, .* more than noise_multiplier / 2 = 1"
    )
    with pytest.raises(ConfigurationError, match=message):
        to.fedau(also=(PrivateSum(noise_multiplier=2.0, quantile=0.5),))
    to.fedau(also=(PrivateSum(noise_multiplier=0.0, quantile=0.5),))


@pytest.mark.parametrize(
    ("algorithm", "options"), [("fedau", {"count_deviation": 2.0}), ("average_participating", {"cohort": 100})]
)
def test_noised_norm_stays_near_the_quantile(algorithm, options):
    """All updates have the norm 0.2: within 200 rounds of 20 reports the norm comes close to it, and stays there."""
    piece = PrivateSum(norm=1.0, noise_multiplier=2.0, quantile=0.5, delta=1e-4, **options)
    known, rng, norms = replace(federation(1000, 5), rates=np.full(1000, 0.02)), np.random.default_rng(0), []
    algorithm = ALGORITHMS[algorithm](to.Sgd(lr=0.1), also=(piece,))
    state = algorithm.init(torch.zeros(5, dtype=torch.float64), known)
    unweighted = to.compose(piece, to.weighting.DivideByParticipants()) if "cohort" in options else None
    for version in range(200):
        rows = torch.from_numpy(rng.normal(size=(20, 5)))
        sent = report(range(20), 0.2 * rows / rows.norm(dim=1, keepdim=True), version=version)
        weights = torch.full((20,), 1 / (1000 if unweighted is None else 100), dtype=torch.float64)
        _, after = piece.apply(weights, sent, state.slots["aggregation"], known)
        state = replace(state, slots={**state.slots, "aggregation": after})
        norms.append(float(after["norm"]))
    assert 0.15 < min(norms[-100:]) < max(norms[-100:]) < 0.3


def test_norm_adapts_to_the_available_clients():
    """With a divisor of all 20 clients, and 4 available ones whose updates are shorter than the norm, the norm decreases."""
    piece, known = PrivateSum(norm=5.0, noise_multiplier=0.0, quantile=0.5), federation(20, 5)
    _, state = direction(
        piece, torch.ones(4, 5, dtype=torch.float64), torch.full((4,), 1 / 20, dtype=torch.float64), known
    )
    assert state["norm"].item() == pytest.approx(5.0 * np.exp(-0.2 * 0.5))


def test_other_pieces_may_have_options_of_any_kind():
    @dataclass(frozen=True)
    class Listed(to.weighting.ByExamples):
        factor: list = field(default_factory=lambda: [1.0])

    assert to.compose(Listed(), to.weighting.DivideBySum()).privacy is None


def test_correlated_noise_for_other_rounds_is_refused():
    with pytest.raises(ConfigurationError, match="got 6, and the noise of PrivateSum is correlated over 9"):
        experiment(PrivateSum(cohort=8, correlation=to.privacy.BandedSquareRoot(), rounds=9, separation=2))


def test_maxfl_divides_by_a_noised_sum():
    divisor = to.weighting.DivideByNoisySum(noise_multiplier=6.0)
    algorithm = to.maxfl(
        to.Sgd(lr=0.1, steps=2), cohort_size=4, also=(PrivateSum(noise_multiplier=2.0, cohort=4), divisor)
    )
    result = to.Experiment(classification(), to.models.Logistic(), algorithm, rounds=2).run()
    both = (2.0**-2 + 6.0**-2) ** -0.5
    assert result.rounds["epsilon"][1].as_py() == to.privacy.epsilon(to.privacy.Release(both), 2, 1e-5)


@pytest.mark.parametrize("q", [0.0, 0.5, 2.0])
def test_qffl_divides_by_a_noised_sum_of_bounded_curvatures(q):
    """Compared with a transcription; one client's loss would overflow, and one has none."""
    rng, known, lr = np.random.default_rng(3), federation(20, 5), 0.1
    delta, loss = rng.normal(size=(5, 5)), np.array([0.3, 2.0, 1e200, 0.0, 0.9])
    piece = to.weighting.DivideByNoisyCurvature(q=q, lr=lr, most=30.0, noise_multiplier=0.5, least=1.0)
    sent = report(range(5), torch.from_numpy(delta), seen={"start_loss": torch.from_numpy(loss)})
    ours, state = piece.apply(torch.ones(5, dtype=torch.float64), sent, 0, piece.init(known), known)
    nothing = torch.zeros(1, dtype=torch.float64)
    divisor, weights = GridNoise(0.5, 30.0).noised(nothing, "noise of the divisor", known, 0).item(), []
    for f, row in zip(loss.astype(np.longdouble) + 1e-10, delta, strict=True):
        h = q * f ** (q - 1) * (row @ row) / lr + f**q
        share = 1.0 if h <= 30.0 else 30.0 / h
        weights.append(share * f**q)
        divisor += min(h, 30.0)
        assert weights[-1] <= 30.0
    np.testing.assert_allclose(ours.numpy(), np.array(weights, dtype=float) / float(max(divisor, 1.0)), rtol=1e-5)
    assert state["releases"] == 1


def test_qffl_counts_both_noises():
    divisor = to.weighting.DivideByNoisyCurvature(lr=0.2, noise_multiplier=6.0)
    make = to.Sgd(lr=0.2, steps=2)
    algorithm = to.qffl(make, cohort_size=4, also=(PrivateSum(noise_multiplier=2.0, cohort=4), divisor))
    result = to.Experiment(classification(), to.models.Logistic(), algorithm, rounds=1).run()
    both = (2.0**-2 + 6.0**-2) ** -0.5
    assert result.rounds["epsilon"][0].as_py() == to.privacy.epsilon(to.privacy.Release(both), 1, 1e-5)
    with pytest.raises(ConfigurationError, match=r"write DivideByNoisyCurvature\(lr=0.2\)"):
        to.qffl(make, also=(replace(divisor, lr=0.1),))
    with pytest.raises(ConfigurationError, match="most"):
        to.weighting.DivideByNoisyCurvature(most=0.0)
    correlated = PrivateSum(cohort=4, correlation=to.privacy.BandedSquareRoot(), rounds=9)
    with pytest.raises(
        ConfigurationError,
        match=r"PrivateSum and DivideByNoisyCurvature: independent noise without sampling is needed: write correlation=None",
    ):
        to.Experiment(classification(), to.models.Logistic(), to.qffl(make, also=(correlated, divisor)), rounds=9)


def test_examples_count_up_to_a_bound():
    pieces = (
        to.weighting.ExamplesUpTo(20),
        to.weighting.DivideByParticipants(),
        PrivateSum(noise_multiplier=0.0, norm=1e9, cohort=3),
    )
    known = federation(8, 2)
    algorithm = to.compose(*pieces)
    state = algorithm.init(torch.zeros(2, dtype=torch.float64), known)
    delta = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    state, _ = server_step(algorithm, state, report([0, 1, 2], delta, sizes=[5, 20, 90]), known)
    assert state.params.tolist() == pytest.approx([1.25 / 3, 1 / 3])


REFUSED = {
    "what it stores of a client enters every later step": {
        *("fedvarp", "mifa", "fedlaavg", "fedstale", "ca2fl", "ace", "aced", "area"),
    },
    "is defined by KeptModels": {"fedawe"},
    "is defined by FedDyn": {"feddyn"},
    "is defined by TrackedSum": {"focus"},
    "is defined by (Fed|Flora|Flex|Het|RaF)": LOW_RANK,
    "is defined by WeightedModels": {"fedasync"},
    "is defined by RecentModels": {"fedfa"},
    "the server sums without noise": {"scaffold", "scaffold_p", "amplified_scaffold"},
    "computes a client's weight from other clients' data": {
        *("folb", "folb_heterogeneous", "fednova", "mw_fed"),
    },
    "divides by a sum of losses and norms, which has no bound and no noise": {"qffl"},
    "selects the cohort by measurements of clients' data": {"fednu", "folb_two_set", "power_of_choice", "oort"},
    "reads the norm of every update": {"fedexp"},
    "divides by a sum over clients' data": {
        "fedavg",
        "fedper",
        "fedala",
        "fedbabu",
        "moon",
        "maxfl",
        "fedprox",
        "fedavgm",
        "fedadam",
        "fedyogi",
        "fedadagrad",
    },
}
"""Why an algorithm does not go with it, by a part of the reason."""


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in BASELINES])
def test_every_recipe_runs_or_is_refused_with_a_reason(name):
    own = RECIPES[name](LOCAL)
    by_clients = isinstance(own.weighting[-1], to.weighting.DivideByClients)
    piece = PrivateSum(cohort=None if by_clients else 4)
    kept = [p for place, p in own.pieces().items() if place != "aggregation" or type(p).__name__ != "WeightedSum"]
    why = next((why for why, names in REFUSED.items() if name in names), None)
    if why is None:
        assert to.compose(*kept, also=(piece,), name=name).privacy is not None
        return
    with pytest.raises(ConfigurationError, match=why):
        to.compose(*kept, also=(piece,), name=name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": 0}, "norm"),
        ({"norm": None}, "norm"),
        ({"delta": None}, "delta"),
        ({"noise_multiplier": -1}, "noise_multiplier"),
        ({"delta": 1.5}, "delta"),
        ({"quantile": 0}, "quantile"),
        ({"correlation": "banded"}, "correlation: got 'banded'"),
        ({"correlation": to.privacy.BandedSquareRoot()}, "write rounds=500"),
        (
            {"correlation": to.privacy.BandedSquareRoot(), "rounds": 9, "quantile": 0.5},
            "requires independent noise",
        ),
        ({"sampling_rate": 0.1, "quantile": 0.5}, "the sampled clients are private"),
        ({"sampling_rate": 0.1, "separation": 3}, "so separation and most cannot hold"),
        ({"cohort": 2, "sampled_from": 9, "most": 3}, "sampled_from: sampling is independent of earlier rounds"),
        ({"cohort": 2, "sampled_from": 9, "sampling_rate": 0.1}, "Poisson samples or of fixed size: leave one out"),
        ({"sampled_from": 9}, "sampled_from: got 9, needed all N clients, of which cohort=None are drawn"),
        ({"cohort": 12, "sampled_from": 9}, "sampled_from: got 9, needed all N clients, of which cohort=12"),
        ({"cohort": 10, "quantile": 0.5, "noise_multiplier": 4.0}, "count_deviation: the count alone costs more"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        PrivateSum(**options)


@dataclass(frozen=True)
class ByOwnSteps(to.weighting.DivideByLocalSteps, name="by_own_steps"):
    """A user's normalizer with a divisor for each report."""

    reads = "own"


def test_divisor_of_each_report_is_refused():
    with pytest.raises(
        ConfigurationError, match="PrivateSum: ByOwnSteps has a divisor per report: use DivideByClients"
    ):
        to.average_participating(also=(PrivateSum(cohort=4), ByOwnSteps()))


def test_chain_without_divisor_is_refused():
    with pytest.raises(ConfigurationError, match="write cohort="):
        to.average_participating(also=(PrivateSum(),))
    with pytest.raises(ConfigurationError, match="leave cohort out"):
        to.fedau(also=(PrivateSum(cohort=3),))
