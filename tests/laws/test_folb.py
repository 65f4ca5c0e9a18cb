"""What FOLB's rules are at known limits, and what they are in expectation."""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from turnout import (
    Experiment,
    Population,
    Sgd,
    average_participating,
    compose,
    fedavg,
    fednova,
    fednu,
    fedprox,
    folb,
    folb_heterogeneous,
    folb_two_set,
)
from turnout.base.server_step import server_step
from turnout.core.candidates import Candidates
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.pieces.local import Inexactness, Prox, StartGradient, UniformWork, Work
from turnout.pieces.selection import TwoCohorts, Uniform
from turnout.population.availability import Everyone
from turnout.simulation import Simulation

from ..phases import train
from ..tiny import federation, report
from .recipes import LOCAL, N, experiment, trained

P = 4
EVERYONE = Population(Everyone())


def run_of(algorithm, **options):
    """The experiment of the table with another algorithm."""
    run = experiment("folb", **options)
    return type(run)(**{**vars(run), "algorithm": algorithm})


def reports_of(gradient, *, inexactness=None, sizes=None, delta=None, second=None, second_sizes=None):
    """Reports with these start gradients, and those of a second cohort."""
    gradient = torch.as_tensor(gradient, dtype=torch.float64)
    n = len(gradient)
    seen = {"start_gradient": gradient}
    if inexactness is not None:
        seen["inexactness"] = torch.as_tensor(inexactness, dtype=torch.float64)
    one = report(
        range(n), torch.ones(n, gradient.shape[1]).double() if delta is None else delta, sizes=sizes, seen=seen
    )
    if second is None:
        return one
    second = torch.as_tensor(second, dtype=torch.float64)
    nothing = torch.zeros(len(second), 0, dtype=torch.float64)
    measured = report(range(len(second)), nothing, sizes=second_sizes, seen={"start_gradient": second})
    return replace(one, measured=measured)


def stepped(algorithm, reports):
    """The step from zero, and the weights."""
    known = federation(64, reports.delta.shape[1])
    state = algorithm.init(torch.zeros(known.num_params, dtype=torch.float64), known)
    after, info = server_step(algorithm, state, reports, known)
    return after.params, info["weights"]


# --- reductions to known methods


def test_folb_with_psi_0_is_equation_13_bit_for_bit():
    one = trained(run_of(folb(LOCAL, cohort_size=3)))
    other = trained(run_of(folb_heterogeneous(LOCAL, psi=0.0, cohort_size=3)))
    assert torch.equal(one.state.params, other.state.params)
    psi = trained(run_of(folb_heterogeneous(LOCAL, psi=0.5, cohort_size=3)))
    assert not torch.equal(one.state.params, psi.state.params)


def test_fedprox_with_mu_0_is_federated_averaging():
    for weighted, plain in ((True, fedavg), (False, average_participating)):
        one = trained(run_of(fedprox(LOCAL, mu=0.0, weighted=weighted, cohort_size=3)))
        other = trained(run_of(plain(LOCAL, also=(Uniform(3),))))
        assert torch.equal(one.state.params, other.state.params)


def test_fednova_with_equal_numbers_of_steps_is_federated_averaging():
    one = trained(run_of(fednova(LOCAL, cohort_size=3)))
    other = trained(run_of(fedavg(LOCAL, also=(Uniform(3),))))
    torch.testing.assert_close(one.state.params, other.state.params, rtol=1e-5, atol=1e-6)
    local = replace(LOCAL, steps=UniformWork(1, 6))
    unequal = trained(run_of(fednova(local, cohort_size=3)))
    assert (unequal.state.params - trained(run_of(fedavg(local, also=(Uniform(3),)))).state.params).norm() > 1e-3


@pytest.mark.parametrize(
    "make", [folb, folb_two_set, folb_heterogeneous, lambda **options: fednu(signs=True, **options)], ids=range(4)
)
def test_update_of_identical_clients_is_their_mean(make):
    """Equal gradients and equal inexactness give equal weights."""
    rng = np.random.default_rng(0)
    gradient = np.tile(rng.normal(size=P), (5, 1))
    delta = torch.from_numpy(rng.normal(size=(5, P)))
    reports = reports_of(gradient, inexactness=[0.3] * 5, delta=delta, second=gradient[:3])
    step, weights = stepped(make(cohort_size=5), reports)
    torch.testing.assert_close(step, delta.mean(dim=0), rtol=0, atol=1e-14)
    torch.testing.assert_close(weights, torch.full((5,), 0.2, dtype=torch.float64), rtol=0, atol=1e-15)


def test_update_of_a_single_client_is_taken_whole():
    """The weight is 1 for any gradient and gamma, and -1 if psi gamma > 1."""
    for gamma, sign in ((0.0, 1.0), (0.9, 1.0), (3.0, -1.0)):
        reports = reports_of([[0.2, -3.0, 1e-9, 4.0]], inexactness=[gamma])
        assert stepped(folb(cohort_size=1), reports)[1].tolist() == [1.0]
        assert stepped(folb_heterogeneous(cohort_size=1), reports)[1].tolist() == [sign]


def test_one_full_batch_step_descends_the_start_gradient():
    """mu = 0 and one step: FOLB's updates are FedAvg's, ``-lr grad F_k``, and so its ingredients are one and the same."""
    local = Sgd(lr=0.25, steps=1, batch_size=64)
    simulation = Simulation(run_of(folb(local, cohort_size=3, also=(Prox(0.0),))))
    found = train(simulation, np.arange(N))
    torch.testing.assert_close(found.delta, -0.25 * found.seen["start_gradient"], rtol=1e-4, atol=1e-7)
    plain = train(Simulation(run_of(fedavg(local))), np.arange(N))
    torch.testing.assert_close(found.delta, plain.delta, rtol=1e-4, atol=1e-6)


def test_weights_by_examples_change_nothing_for_clients_of_equal_size():
    rng = np.random.default_rng(1)
    gradient, second = rng.normal(size=(5, P)) + 0.5, rng.normal(size=(4, P)) + 0.5
    reports = reports_of(
        gradient, inexactness=rng.random(5), sizes=[7] * 5, second=second, second_sizes=[7] * 4,
        delta=torch.from_numpy(rng.normal(size=(5, P))),
    )  # fmt: skip
    for make in (folb, folb_heterogeneous, folb_two_set):
        one, other = (stepped(make(cohort_size=5, data_weighted=weighted), reports)[0] for weighted in (False, True))
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0)


def test_weights_by_examples_equal_repeating_a_client_once_per_example():
    rng = np.random.default_rng(2)
    gradient, delta = rng.normal(size=(3, P)) + 0.5, rng.normal(size=(3, P))
    sizes, often = [1, 3, 2], [0, 1, 1, 1, 2, 2]
    for make in (folb, folb_two_set):
        by_size = reports_of(gradient, sizes=sizes, delta=torch.from_numpy(delta), second=gradient, second_sizes=sizes)
        repeated = reports_of(gradient[often], delta=torch.from_numpy(delta[often]), second=gradient[often])
        one, _ = stepped(make(cohort_size=3, data_weighted=True), by_size)
        other, _ = stepped(make(cohort_size=6), repeated)
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0)


# --- invariants of the weights

finite = st.floats(-10, 10, allow_subnormal=False)
gradients = st.integers(1, 6).flatmap(
    lambda k: st.lists(st.lists(finite, min_size=3, max_size=3), min_size=k, max_size=k)
)


@settings(max_examples=80, deadline=None)
@given(gradients, st.floats(0, 20), st.integers(0, 2**32 - 1), st.sampled_from([1e-20, 1e-3, 1.0, 1e20]))
def test_absolute_weights_sum_to_one_whatever_the_scale(gradient, psi, seed, scale):
    gamma = np.random.default_rng(seed).uniform(0, 1.5, len(gradient))
    algorithm = folb_heterogeneous(psi=psi, cohort_size=3)
    _, weights = stepped(algorithm, reports_of(np.array(gradient) * scale, inexactness=gamma))
    total = float(weights.abs().sum())
    assert total == pytest.approx(1.0, abs=1e-12) or (weights == 0).all()
    if psi == 0:
        assert weights.sum() >= -1e-12  # the sum is proportional to the squared norm of the mean


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.integers(-9, 9), min_size=3, max_size=3), min_size=1, max_size=6))
def test_gradients_that_cancel_leave_the_model_unchanged(some):
    """The step is exactly 0: division by a rounding error would make a step of arbitrary direction."""
    gradient = np.array([*some, (-np.sum(some, axis=0)).tolist()], dtype=float)
    reports = reports_of(gradient, inexactness=[0.5] * len(gradient), second=gradient)
    for algorithm in (folb(cohort_size=3), folb_heterogeneous(cohort_size=3), folb_two_set(cohort_size=3)):
        step, weights = stepped(algorithm, reports)
        assert (weights == 0).all()
        assert (step == 0).all()


def test_second_cohort_without_gradients_or_with_canceling_ones_leaves_the_model_unchanged():
    first = [[1.0, 0.0], [0.0, 1.0]]
    for second in ([[3.0, 1.0], [-1.0, 2.0], [-2.0, -3.0]], [[0.0, 0.0]], np.zeros((0, 2))):
        step, weights = stepped(folb_two_set(cohort_size=2), reports_of(first, second=second))
        assert (weights == 0).all()
        assert (step == 0).all()


def test_updates_against_the_mean_gradient_are_subtracted():
    """By hand: the mean gradient is (1, 0), the inner products 3, -1 and 1."""
    gradient = [[3.0, 1.0], [-1.0, 1.0], [1.0, -2.0]]
    delta = torch.tensor([[1.0, 0.0], [0.0, 10.0], [100.0, 0.0]]).double()
    step, weights = stepped(folb(cohort_size=3), reports_of(gradient, delta=delta))
    assert weights.tolist() == pytest.approx([0.6, -0.2, 0.2])
    assert step.tolist() == pytest.approx([0.6 + 20.0, -2.0])
    _, weights = stepped(folb_two_set(cohort_size=3), reports_of(gradient, delta=delta, second=[[0, 2], [0, 0]]))
    assert weights.tolist() == pytest.approx([1.0, -1 / 3, 1 / 3])  # grad_2 f is (0, 1); no absolute values here
    _, weights = stepped(folb_heterogeneous(psi=2.0, cohort_size=3), reports_of(gradient, inexactness=[1.0, 0.0, 1.0]))
    assert weights.tolist() == pytest.approx([1 / 3, -1 / 3, -1 / 3])  # 3 - 2, -1, 1 - 2
    _, weights = stepped(
        fednu(signs=True, cohort_size=3), reports_of([[2, 0], [-1, 5], [0, 1]], second=[[1, 0], [3, 0]])
    )
    assert weights.tolist() == pytest.approx([1 / 3, -1 / 3, 0.0])


def test_weights_of_the_first_cohort_sum_to_the_ratio_of_squared_gradient_norms():
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 99, 6)
    for weighted in (False, True):
        share = sizes if weighted else np.ones(6)
        first, second = rng.normal(size=(6, P)), rng.normal(size=(6, P))
        one, two = (share @ g / share.sum() for g in (first, second))
        reports = reports_of(first, second=second, sizes=sizes, second_sizes=sizes)
        _, weights = stepped(folb_two_set(cohort_size=6, data_weighted=weighted), reports)
        assert float(weights.sum()) == pytest.approx(one @ one / (two @ two))


def test_weights_of_the_first_cohort_sum_to_that_ratio_after_dropped_reports():
    """Two of three reports of the first cohort and one of the second are dropped; the step does not grow."""
    good = np.tile([1.0, 2.0], (3, 1))
    for first, second in ((good[:2], good), (good, good[:1]), (good, good)):
        for weighted in (False, True):
            reports = reports_of(first, second=second, sizes=[4] * len(first), second_sizes=[4] * len(second))
            _, weights = stepped(folb_two_set(cohort_size=3, data_weighted=weighted), reports)
            assert float(weights.sum()) == pytest.approx(1.0)


# --- expectations over the cohorts


def draws(num_clients, size):
    """All N^K equally likely outcomes of K draws."""
    return [list(outcome) for outcome in product(range(num_clients), repeat=size)]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_expected_denominator_over_second_cohorts_matches_the_closed_form(size):
    """``K ||grad f||^2 + mean_k ||grad F_k - grad f||^2``; lemma 1 has no second term.

    Its proof takes two draws as independent also where they are one and the same, as happens for K of the K^2 pairs.
    """
    g = np.random.default_rng(7).normal(size=(4, P)) + 0.4
    denominators = []
    for second in draws(4, size):
        weights = stepped(folb_two_set(cohort_size=size), reports_of(g[[0] * size], second=g[second]))[1]
        denominators.append(g[0] @ g[0] / float(weights[0]))
    mean = g.mean(axis=0)
    spread = ((g - mean) ** 2).sum(axis=1).mean()
    assert np.mean(denominators) == pytest.approx(size * mean @ mean + spread)


def test_expected_update_over_both_cohorts_matches_independent_draws():
    """Rounds of `TwoCohorts` against all pairs of multisets: how often each is drawn, and the mean of the updates."""
    num_clients, size, rounds = 3, 2, 4000
    rng = np.random.default_rng(9)
    g, delta = rng.normal(size=(num_clients, P)) + 0.8, torch.from_numpy(rng.normal(size=(num_clients, P)))
    selection = TwoCohorts(size)
    seen: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    for t in range(rounds):
        candidates = Candidates(lambda clients: np.ones(len(clients), dtype=bool), num_clients, t, 0)
        pair = tuple(selection.select(candidates).tolist()), tuple(selection.measuring(candidates).tolist())
        seen[pair] = seen.get(pair, 0) + 1
    likely: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
    for first, second in product(draws(num_clients, size), repeat=2):
        pair = tuple(sorted(first)), tuple(sorted(second))
        likely[pair] = likely.get(pair, 0.0) + num_clients ** (-2.0 * size)
    assert seen.keys() == likely.keys()
    square = sum((seen[pair] - rounds * p) ** 2 / (rounds * p) for pair, p in likely.items())
    assert abs(square - (len(likely) - 1)) < 4.5 * np.sqrt(2 * (len(likely) - 1))

    def update(pair):
        first, second = (list(cohort) for cohort in pair)
        reports = reports_of(g[first], delta=delta[first], second=g[second])
        return stepped(folb_two_set(cohort_size=size), reports)[0].numpy()

    updates = {pair: update(pair) for pair in likely}
    exact = sum(p * updates[pair] for pair, p in likely.items())
    variance = sum(p * (updates[pair] - exact) ** 2 for pair, p in likely.items())
    found = sum(n * updates[pair] for pair, n in seen.items()) / rounds
    assert (np.abs(found - exact) < 4.5 * np.sqrt(variance / rounds)).all()


# --- inexactness on a quadratic


def half_square(outputs, targets):
    return (outputs - targets) ** 2 / 2


class Mean(nn.Module):
    """Predicts one number, whatever the input."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def forward(self, x):
        return self.w.expand(len(x))


@dataclass(frozen=True)
class NoWork(Work):
    """Odd clients do no steps."""

    def amount(self, task, clients):
        del task
        return np.where(clients.ids % 2 == 1, 0, 3)


NUMBERS = FederatedData(
    "numbers",
    Shards(torch.zeros(12, 1), torch.arange(4).double().repeat_interleave(3) - 1, np.array([0, 3, 6, 9, 12])),
)


def inexactness(local, mu=0.0, clip=False, **options):
    algorithm = compose(local, StartGradient(), Inexactness(clip=clip), Prox(mu))
    run = Experiment(NUMBERS, Mean(), algorithm, EVERYONE, rounds=1, loss=half_square, **options)
    return train(Simulation(run), np.arange(4)).seen["inexactness"].numpy()


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
@pytest.mark.parametrize(
    ("lr", "steps", "mu"), [(0.1, 1, 0.0), (0.3, 4, 0.5), (0.9, 2, 1.0), (1.6, 3, 0.7), (0.5, 1, 1.0)]
)
def test_inexactness_of_gradient_descent_is_its_contraction(lr, steps, mu, engine):
    """``F_k = (w - c_k)^2 / 2``: a step multiplies the gradient of h_k by ``1 - lr (1 + mu)``."""
    found = inexactness(Sgd(lr=lr, steps=steps, batch_size=3), mu, engine=engine)
    np.testing.assert_allclose(found, abs(1 - lr * (1 + mu)) ** steps, atol=1e-12)


def test_inexactness_can_be_clipped():
    local = Sgd(lr=2.5, steps=3, batch_size=3)
    np.testing.assert_allclose(inexactness(local), 1.5**3)
    assert (inexactness(local, clip=True) == 1.0).all()
    assert (inexactness(replace(local, lr=0.5), clip=True) < 1.0).all()


@pytest.mark.parametrize("batch_size", [2, 3], ids=["minibatches", "the gradient is shared"])
def test_clients_without_steps_have_inexactness_1_and_do_not_change_the_model(batch_size):
    """Their updates are zero, and those of the others are as without them."""
    local = Sgd(lr=0.2, steps=NoWork(), batch_size=batch_size, sampling="fresh")
    found = inexactness(local)
    assert (found[1::2] == 1.0).all()
    assert (found[::2] < 1.0).all()
    run = Experiment(NUMBERS, Mean(), folb(local, cohort_size=4), EVERYONE, rounds=1, loss=half_square)
    together = train(Simulation(run), np.arange(4))
    assert together.num_steps.tolist() == [3, 0, 3, 0]
    assert (together.delta[1::2] == 0).all()
    alone = train(Simulation(run), np.array([2]))
    assert torch.equal(alone.delta[0], together.delta[2])


def test_client_at_its_optimum_has_inexactness_0():
    run = Experiment(
        replace(NUMBERS, train=replace(NUMBERS.train, y=torch.full((12,), 0.5).double())), Mean(),
        compose(Sgd(batch_size=3), Inexactness()), EVERYONE, rounds=1, loss=half_square,
    )  # fmt: skip
    assert (train(Simulation(run), np.arange(4)).seen["inexactness"] == 0).all()


# --- unequal work


def test_fednova_removes_the_bias_of_fedavg_to_clients_with_more_steps():
    """Client k holds k - 1 and always does 1 + 9 [k = 3] steps: the fixed points, in closed form."""

    @dataclass(frozen=True)
    class Unequal(Work):
        def amount(self, task, clients):
            del task
            return np.where(clients.ids == 3, 10, 1)

    local, lr = Sgd(lr=0.04, steps=Unequal(), batch_size=3), 0.04
    pull = 1 - (1 - lr) ** np.array([1, 1, 1, 10])
    targets = np.arange(4) - 1.0
    expected = {
        "fedavg": pull @ targets / pull.sum(),
        "fednova": (pull / [1, 1, 1, 10]) @ targets / (pull / [1, 1, 1, 10]).sum(),
    }
    for algorithm in (fedavg(local), fednova(local, cohort_size=4)):
        run = Experiment(NUMBERS, Mean(), algorithm, EVERYONE, rounds=150, loss=half_square, evaluate_every=150)
        assert float(trained(run).state.params) == pytest.approx(expected[algorithm.name], abs=1e-4)
    assert expected["fedavg"] > 1.2
    assert abs(expected["fednova"] - 0.5) < 0.15
