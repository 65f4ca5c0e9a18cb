"""MaxFL, q-FFL, Per-FedAvg and MW-Fed compared with NumPy in float64, with clients that opt in and out."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from turnout import Experiment, Population, Sgd, maxfl, mw_fed, perfedavg, qffl
from turnout.core.random import stream
from turnout.pieces.selection import AllAvailable
from turnout.population.availability import Trace
from turnout.population.behavior.leaving import Opting
from turnout.population.requirement import WarmUp
from turnout.simulation import Simulation

from ..phases import next_cohort
from ..tiny import presence
from . import maxfl as rules
from .rules import local_sgd, softmax_gradient
from .shuffles import client_key, endless
from .test_rules import CLASSES, DATA, SEED, SIZES, N, model

T, LR, STEPS, BATCH, SERVER_LR = 20, 0.3, 3, 16, 0.9
WARM_UP, MANDATORY, TUNING = 7, 6, 2
HELD = [tuple(part.numpy() for part in DATA.train.client(n)) for n in range(N)]
LOCAL = Sgd(lr=LR, steps=STEPS, batch_size=BATCH)
ALL = (AllAvailable(),)
FIRST = np.concatenate([p.detach().numpy().ravel() for p in model().parameters()])


def gradient(w, x, y):
    return softmax_gradient(w, x, y, CLASSES)


def minibatches(n, key):
    """Minibatches of one client for ever."""
    x, y = HELD[n]
    return ((x[rows], y[rows]) for rows in endless(int(SIZES[n]), key, BATCH, drop_last=True))


def steps_of(purpose, n, w, version, steps):
    """Return a client's model after separate local steps, as for own and tuned models."""
    key = client_key(stream(purpose, SEED), n, version)
    return w + local_sgd(w, islice(minibatches(n, key), steps), gradient, LR)


def loss(n, w):
    x, y = HELD[n]
    return rules.softmax_loss(w, x, y, CLASSES)


class Plain:
    """Clients that take STEPS local steps."""

    def __init__(self):
        self.batches = [minibatches(n, client_key(SEED, n)) for n in range(N)]

    def update(self, n, w, rule=None):
        steps = rule.steps(n, STEPS) if isinstance(rule, rules.Multiplicative) else STEPS
        return local_sgd(w, islice(self.batches[n], steps), gradient, LR)


class Adapting(Plain):
    """Clients that take them by Per-FedAvg's rule."""

    def __init__(self, alpha, delta=None):
        super().__init__()
        self.alpha, self.delta, self.per_step = alpha, delta, 2 if delta is None else 3

    def update(self, n, w, rule=None):
        assert not hasattr(rule, "steps")
        steps = [list(islice(self.batches[n], self.per_step)) for _ in range(STEPS)]
        return rules.meta_sgd(w, steps, gradient, LR, self.alpha, self.delta)


CASES = {
    "maxfl": (maxfl(LOCAL, server_lr=SERVER_LR, also=ALL), lambda: rules.maxfl(1e-3), Plain),
    "maxfl, large epsilon": (
        maxfl(LOCAL, epsilon=0.5, server_lr=SERVER_LR, also=ALL), lambda: rules.maxfl(0.5), Plain,
    ),
    "maxfl, line 8": (
        maxfl(LOCAL, q="sigmoid", server_lr=SERVER_LR, also=ALL), lambda: rules.maxfl(1e-3, line_8=True), Plain,
    ),
    "maxfl, tuned": (
        maxfl(LOCAL, tuning_steps=TUNING, server_lr=SERVER_LR, also=ALL), lambda: rules.maxfl(1e-3), Plain,
    ),
    "qffl": (qffl(LOCAL, server_lr=SERVER_LR, also=ALL), lambda: rules.qffl(1.0, LR), Plain),
    "qffl, q = 10": (qffl(LOCAL, q=10.0, server_lr=SERVER_LR, also=ALL), lambda: rules.qffl(10.0, LR), Plain),
    "perfedavg": (
        perfedavg(LOCAL, alpha=0.2, server_lr=SERVER_LR, also=ALL), lambda: rules.mean, lambda: Adapting(0.2),
    ),
    "perfedavg, hessian": (
        perfedavg(LOCAL, alpha=0.2, hessian="difference", server_lr=SERVER_LR, also=ALL),
        lambda: rules.mean, lambda: Adapting(0.2, 1e-3),
    ),
    "mw_fed": (mw_fed(LOCAL, server_lr=SERVER_LR, also=ALL), lambda: rules.Multiplicative(N, 4.0), Plain),
    "mw_fed, factor 1.5": (
        mw_fed(LOCAL, factor=1.5, server_lr=SERVER_LR, also=ALL), lambda: rules.Multiplicative(N, 1.5), Plain,
    ),
}  # fmt: skip
"""The algorithm, its rule, and its clients."""


def test_cases_include_every_recipe():
    assert rules.METHODS.keys() <= CASES.keys()


def required():
    """Return the requirement of each client: the loss of its own model."""
    return [loss(n, steps_of("own models", n, FIRST, 0, WARM_UP)) for n in range(N)]


def theirs(name, present, opting):
    """Return parameters and participants after every round."""
    _, make, clients = CASES[name]
    w, rule, clients, rho, gone = FIRST, make(), clients(), required(), set()
    found, cohorts = [], []
    for t in range(T):
        there = [n for n in range(N) if present[t, n]]
        if opting is not None and t >= opting.mandatory_rounds:
            if not opting.comes_back:
                gone |= {n for n in range(N) if not loss(n, w) < rho[n]}
            there = [n for n in there if n not in gone and loss(n, w) < rho[n]]
        F = {n: loss(n, steps_of("tuning before the gap", n, w, t, TUNING) if "tuned" in name else w) for n in there}
        D = {n: clients.update(n, w, rule) for n in there}
        w = w + SERVER_LR * rule(D, F, rho)
        found.append(w)
        cohorts.append(there)
    return np.array(found), cohorts


def ours(algorithm, present, opting, engine):
    """The same, of the simulation."""
    rows = tuple((int(n), int(t), int(t) + 1) for t, n in zip(*np.nonzero(present), strict=True))
    population = Population(Trace(rows, rounds=T), requirement=WarmUp(WARM_UP), opting=opting)
    run = Experiment(DATA, model(), algorithm, population, rounds=T, seed=SEED, evaluate_every=T, engine=engine)
    simulation, found, cohorts = Simulation(run), [], []
    for _ in range(T):
        cohorts.append(list(next_cohort(simulation)))
        simulation.round()
        found.append(simulation.state.params.numpy().copy())
    return np.array(found), cohorts


ENGINES = {"stay": "vectorized", "opt in and out": "one_by_one", "leave for good": "vectorized"}
OPTING = {"stay": None, "opt in and out": Opting(MANDATORY), "leave for good": Opting(MANDATORY, comes_back=False)}


@pytest.mark.parametrize(
    ("name", "opting"),
    [(name, "leave for good" if number % 2 else "opt in and out") for number, name in enumerate(CASES)]
    + [("maxfl", "stay"), ("maxfl", "leave for good"), ("perfedavg", "leave for good"), ("mw_fed", "stay")],
)
def test_recipe_equals_its_transcription(name, opting):
    """Each rule with one way to come and go, by either engine; which clients are there does not depend on the rule."""
    present, rule = presence(T, N, list(OPTING).index(opting)), OPTING[opting]
    expected, cohorts = theirs(name, present, rule)
    found, found_cohorts = ours(CASES[name][0], present, rule, ENGINES[opting])
    assert found_cohorts == cohorts
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)
    assert np.abs(expected[-1] - expected[0]).max() > 0.05  # it went somewhere


def test_compared_rounds_have_clients_that_leave_and_return():
    """Some clients also leave permanently."""
    present = presence(T, N, 0)
    cohorts = {name: theirs("maxfl", present, rule)[1] for name, rule in OPTING.items()}
    sizes = {name: [len(c) for c in found] for name, found in cohorts.items()}
    assert sum(sizes["stay"]) > sum(sizes["opt in and out"]) > sum(sizes["leave for good"]) > sum(sizes["stay"][:6])


def test_requirements_equal_the_transcription():
    run = Experiment(
        DATA, model(), maxfl(LOCAL, also=ALL), Population(requirement=WarmUp(WARM_UP)), rounds=1, seed=SEED
    )
    requirement = Simulation(run).opt_in.requirement
    assert requirement is not None
    np.testing.assert_allclose(requirement.train, required(), rtol=0, atol=1e-12)
    slow = replace(run, population=Population(requirement=WarmUp(WARM_UP, lr=0.01)))
    assert (Simulation(slow).opt_in.requirement.train > requirement.train).all()  # type: ignore[union-attr]
