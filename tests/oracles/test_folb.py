"""FOLB, FedNu, FedProx and FedNova against plain NumPy in float64, end to end and rule by rule.

Cohorts are drawn at random, so the transcription takes those that were drawn here; that they are drawn by the right law is
tested with the selections. Everything else it finds for itself: full gradients, minibatches, work, inexactness.
"""

from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from turnout import Experiment, Population, Sgd, fednova, fednu, fedprox, folb, folb_heterogeneous, folb_two_set
from turnout.base.server_step import server_step
from turnout.core.random import fold, stream
from turnout.pieces.local import Prox, UniformWork
from turnout.pieces.selection import ByAlignment, ByAlignmentAndInexactness, ByGradientNorm
from turnout.population.availability import Trace
from turnout.simulation import Simulation

from ..phases import measure, next_cohort
from ..tiny import federation, presence, report
from . import folb as rules
from .rules import local_sgd, softmax_gradient
from .shuffles import client_key, endless
from .test_rules import CLASSES, DATA, SEED, SIZES, N, model

T, LR, STEPS, BATCH, SERVER_LR = 15, 0.5, 3, 16, 0.9
HELD = [tuple(part.numpy() for part in DATA.train.client(n)) for n in range(N)]
LOCAL = Sgd(lr=LR, steps=STEPS, batch_size=BATCH)
WORK = Sgd(lr=0.1, steps=UniformWork(1, 6), batch_size=BATCH)

CASES = {
    "folb": (folb, {"cohort_size": 3}, rules.single_set),
    "folb, work": (folb, {"cohort_size": 4, "local": WORK, "mu": 0.4}, rules.single_set),
    "folb by examples": (folb, {"cohort_size": 3, "data_weighted": True}, rules.data_weighted),
    "folb_heterogeneous": (folb_heterogeneous, {"cohort_size": 3, "psi": 1.0}, rules.single_set),
    "folb_heterogeneous, work": (
        folb_heterogeneous, {"cohort_size": 4, "psi": 0.7, "local": WORK, "mu": 0.4}, rules.single_set,
    ),
    "folb_heterogeneous by examples": (
        folb_heterogeneous, {"cohort_size": 4, "psi": 0.3, "data_weighted": True}, rules.data_weighted,
    ),
    "folb_two_set": (folb_two_set, {"cohort_size": 6}, rules.two_set),
    "folb_two_set by examples": (folb_two_set, {"cohort_size": 6, "data_weighted": True}, rules.data_weighted_two_set),
    "fednu": (fednu, {"cohort_size": 4}, rules.simple_mean),
    "fednu, signs": (fednu, {"cohort_size": 4, "signs": True}, rules.signed_mean),
    "fednu by examples": (fednu, {"cohort_size": 4, "data_weighted": True}, rules.simple_mean),
    "fednu, signs, by examples": (
        fednu, {"cohort_size": 4, "signs": True, "data_weighted": True}, rules.signed_mean_by_examples,
    ),
    "fednu, uniform, by examples": (
        fednu, {"cohort_size": 5, "by": "uniform", "data_weighted": True}, rules.by_examples,
    ),
    "fednu, uniform": (fednu, {"cohort_size": 5, "by": "uniform", "local": WORK}, rules.simple_mean),
    "fednu by norm": (fednu, {"cohort_size": 3, "by": "norm"}, rules.simple_mean),
    "fednu by inexactness": (
        fednu, {"cohort_size": 3, "by": "alignment_and_inexactness", "psi": 0.5, "mu": 0.4}, rules.simple_mean,
    ),
    "fedprox": (fedprox, {"cohort_size": 3, "local": WORK, "mu": 0.4}, rules.by_examples),
    "fedprox, simple mean": (fedprox, {"cohort_size": 3, "weighted": False, "mu": 0.4}, rules.simple_mean),
    "fednova": (fednova, {"cohort_size": 4, "local": WORK}, rules.fednova),
}  # fmt: skip
"""Recipe, options and rule; a local rule and mu are options of all."""

MULTISETS = [name for name in CASES if name.startswith(("fednu", "folb_two"))]


def test_cases_include_every_recipe():
    assert rules.METHODS.keys() <= CASES.keys()


def algorithm_of(recipe, options):
    """The algorithm, with mu as a piece where the recipe has no option for it."""
    options = dict(options)
    local, mu = options.pop("local", LOCAL), options.pop("mu", 0.0)
    prox = {"mu": mu} if recipe is fedprox else {"also": (Prox(mu),)} if mu else {}
    return recipe(local, server_lr=SERVER_LR, **options, **prox)


def ours(algorithm, present, engine):
    """Parameters after every round ``[T, P]``, and the two cohorts of every round."""
    rows = tuple((int(n), int(t), int(t) + 1) for t, n in zip(*np.nonzero(present), strict=True))
    population = Population(Trace(rows, rounds=T))
    run = Experiment(DATA, model(), algorithm, population, rounds=T, seed=SEED, evaluate_every=T, engine=engine)
    simulation, found, cohorts = Simulation(run), [], []
    for _ in range(T):
        measured = measure(simulation)
        asked = [] if measured is None else measured.client.tolist()
        cohorts.append((next_cohort(simulation, measured).tolist(), asked))
        simulation.round()
        found.append(simulation.state.params.numpy().copy())
    return np.array(found), cohorts


def gradient(w, x, y):
    return softmax_gradient(w, x, y, CLASSES)


def trained(k, w, batches, lr, mu):
    """The update of a client after a step on each of the minibatches, and its inexactness."""
    x, y = HELD[k]
    delta = local_sgd(w, [(x[rows], y[rows]) for rows in batches], gradient, lr, mu=mu)
    return delta, rules.inexactness(lambda v: gradient(v, x, y), w, delta, mu)


def steps_of(local, client, t):
    """How many local steps a client does in round t."""
    if not isinstance(local.steps, UniformWork):
        return local.steps
    (bits,) = fold(stream("work", SEED), np.array([t]), np.array([client]))
    return rules.uniform_work(bits, local.steps.least, local.steps.most)


def theirs(rule, cohorts, local=LOCAL, mu=0.0, psi=None):
    """Return parameters from NumPy after every round, and the inputs of every round."""
    psi = {"psi": psi} if psi is not None and rule is not rules.simple_mean else {}
    w = np.concatenate([p.detach().numpy().ravel() for p in model().parameters()])
    batches = [endless(int(SIZES[n]), client_key(SEED, n), BATCH, drop_last=True) for n in range(N)]
    found, rounds = [], []
    for t, (S1, S2) in enumerate(cohorts):
        round = SimpleNamespace(S1=S1, S2=S2, n=SIZES, G={}, D={}, gamma={}, steps={}, w=w)
        for k in {*S1, *S2}:
            round.G[k] = gradient(w, *HELD[k])
            round.steps[k] = steps_of(local, k, t)
        for k in set(S1):
            round.D[k], round.gamma[k] = trained(k, w, islice(batches[k], round.steps[k]), local.lr, mu)
        w = w + SERVER_LR * rule(round, **psi)
        found.append(w)
        rounds.append(round)
    return np.array(found), rounds


@pytest.mark.parametrize(
    ("name", "engine"),
    [(name, "vectorized") for name in CASES]
    + [(name, "one_by_one") for name in ("folb", "folb_heterogeneous, work", "fednu by inexactness", "fedprox")],
)
def test_recipe_equals_its_transcription(name, engine):
    recipe, options, rule = CASES[name]
    present = presence(T, N, seed=1)
    found, cohorts = ours(algorithm_of(recipe, options), present, engine)
    expected, rounds = theirs(rule, cohorts, **{k: v for k, v in options.items() if k in ("local", "mu", "psi")})
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    assert np.abs(expected[-1] - expected[0]).max() > 0.1  # it went somewhere
    assert all(set(S1) <= set(np.flatnonzero(here)) for (S1, _), here in zip(cohorts, present, strict=True))
    assert any(len(set(S1)) < len(S1) for S1, _ in cohorts) == (name in MULTISETS)
    if name in ("folb", "folb_heterogeneous", "folb_two_set"):
        inner = [r.G[k] @ rules.mean([r.G[j] for j in r.S1]) for r in rounds for k in r.S1]
        assert min(inner) < 0  # so negative weights are among those that were tried


# --- the rules alone, on reports made up to be awkward

whole = st.integers(-2, 2)
vector = st.lists(whole, min_size=3, max_size=3)
SERVER_CASES = {
    "folb": (folb(), rules.single_set),
    "folb by examples": (folb(data_weighted=True), rules.data_weighted),
    "psi = 0.1": (folb_heterogeneous(psi=0.1), lambda r: rules.single_set(r, psi=0.1)),
    "psi = 1": (folb_heterogeneous(psi=1.0), lambda r: rules.single_set(r, psi=1.0)),
    "psi = 10": (folb_heterogeneous(psi=10.0), lambda r: rules.single_set(r, psi=10.0)),
    "psi = 1 by examples": (
        folb_heterogeneous(psi=1.0, data_weighted=True),
        lambda r: rules.data_weighted(r, psi=1.0),
    ),
    "two sets": (folb_two_set(), rules.two_set),
    "two sets by examples": (folb_two_set(data_weighted=True), rules.data_weighted_two_set),
    "signs": (fednu(signs=True), rules.signed_mean),
    "signs by examples": (fednu(signs=True, data_weighted=True), rules.signed_mean_by_examples),
    "mean": (fednu(), rules.simple_mean),
    "fedprox": (fedprox(), rules.by_examples),
    "fednova": (fednova(), rules.fednova),
}


@pytest.mark.parametrize("name", SERVER_CASES)
@settings(max_examples=30, deadline=None)
@given(
    st.lists(vector, min_size=8, max_size=8),
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0]), min_size=8, max_size=8),
    st.lists(st.integers(0, 7), min_size=1, max_size=7),
    st.lists(st.integers(0, 7), min_size=7, max_size=7),
    st.integers(0, 2**32 - 1),
)
def test_rule_equals_its_transcription(name, gradient, gamma, first, second, seed):
    """Small integers, so that zero inner products and denominators, repeats and K = 1 are frequent."""
    algorithm, rule = SERVER_CASES[name]
    rng, first, second = np.random.default_rng(seed), sorted(first), sorted(second[: len(first)])
    G, D = np.array(gradient, dtype=float), rng.normal(size=(8, 3))
    n, steps = rng.integers(1, 9, 8), rng.integers(1, 9, 8)
    often = np.repeat(second, n[second]) if "examples" in name else second
    if name.startswith("signs") and len(often) not in (1, 2, 4):  # the mean is rounded, and the sign of zero with it
        assume((G[first] @ G[often].sum(axis=0) != 0).all())
    round = SimpleNamespace(S1=first, S2=second, G=G, D=D, n=n, steps=steps, gamma=np.array(gamma))
    seen = {"start_gradient": torch.from_numpy(G), "inexactness": torch.tensor(gamma, dtype=torch.float64)}
    all_ = replace(report(range(8), torch.from_numpy(D), sizes=n, seen=seen), num_steps=steps)
    measured = replace(all_.take(np.array(second)), delta=torch.zeros(len(second), 0).double())
    known = federation(10, 3)
    state = algorithm.init(torch.zeros(3, dtype=torch.float64), known)
    after, _ = server_step(algorithm, state, replace(all_.take(np.array(first)), measured=measured), known)
    np.testing.assert_allclose(after.params.numpy(), rule(round) + np.zeros(3), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("by", ["alignment", "norm", "alignment_and_inexactness"])
@pytest.mark.parametrize("mu", [0.0, 0.4])
@pytest.mark.parametrize(("data_weighted", "as_written"), [(False, False), (True, False), (True, True)])
def test_selection_probabilities_equal_the_transcription(by, mu, data_weighted, as_written):
    """Computed from the measurements of all available clients in each round."""
    options = {"data_weighted": data_weighted, "scores_by_examples": not as_written}
    algorithm = fednu(LOCAL, by=by, psi=0.5, cohort_size=3, also=(Prox(mu),), **options)
    simulation = Simulation(Experiment(DATA, model(), algorithm, rounds=3, seed=SEED))
    for _ in range(3):
        w, measured = simulation.state.params.numpy().copy(), measure(simulation)
        assert measured is not None
        done = simulation.memory.gather(np.arange(N))["steps_done"].tolist()
        batches = [endless(int(SIZES[n]), client_key(SEED, n), BATCH, drop_last=True) for n in range(N)]
        gamma = [trained(k, w, islice(batches[k], done[k], done[k] + STEPS), LR, mu)[1] for k in range(N)]
        if by == "alignment_and_inexactness":
            np.testing.assert_allclose(measured.seen["inexactness"].numpy(), gamma, rtol=1e-9)
        assert isinstance(algorithm.selection, ByAlignment | ByGradientNorm | ByAlignmentAndInexactness)
        scores = algorithm.selection.scores(measured)
        sizes = SIZES if data_weighted else None
        gradients = [gradient(w, *HELD[k]) for k in range(N)]
        expected = rules.probabilities(gradients, by, gamma, psi=0.5, n=sizes, scores_by_examples=not as_written)
        np.testing.assert_allclose(scores / scores.sum(), expected, rtol=1e-9)
        simulation.round()
