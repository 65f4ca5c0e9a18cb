"""APFL and pFedMe compared with NumPy: the shared model and the personal ones."""

from functools import partial

import numpy as np
import pytest
import torch

from turnout import ALGORITHMS, ConfigurationError, Sgd, compose
from turnout.core.schedule import Halving
from turnout.pieces.local import MixtureSteps, MoreauSteps, Prox
from turnout.pieces.personalization import Mixture, MoreauModel
from turnout.pieces.selection import PowerOfChoice

from ..tiny import presence
from .clients import Clients, simulation
from .test_rules import N

LR, STEPS, T = 0.1, 4, 14
LOCAL = Sgd(lr=LR, steps=STEPS, batch_size=16)


def of_apfl(clients, w, n, kept, adaptive):
    """Algorithm 1, with the equation of the share, in these local steps."""
    v, a = kept
    for step in range(STEPS):
        batch = clients.minibatch(n)
        slope = clients.gradient(a * v + (1 - a) * w, batch)
        w, v, a = (
            w - LR * clients.gradient(w, batch),
            v - LR * a * slope,
            np.clip(a - LR * slope @ (v - w), 0.0, 1.0) if step in adaptive else a,
        )
    return w, (v, a)


def of_pfedme(clients, w, n, kept, proximal=3.0, K=3, inner_lr=0.07):
    """Algorithm 1, the inner problem as the authors' code solves it."""
    del kept
    theta = w
    for _ in range(STEPS):
        batch = clients.minibatch(n)
        for _ in range(K):
            theta = theta - inner_lr * (clients.gradient(theta, batch) + proximal * (theta - w))
        w = w - LR * proximal * (w - theta)
    return w, theta


CASES = {
    "apfl": ("apfl", {"alpha": 0.3}, partial(of_apfl, adaptive=())),
    "apfl that adapts": ("apfl", {"alpha": 0.7, "adaptive": True}, partial(of_apfl, adaptive=range(STEPS))),
    "apfl that adapts once a round": (
        "apfl",
        {"alpha": 0.7, "adaptive": True, "adapts_every": "round"},
        partial(of_apfl, adaptive=(0,)),
    ),
    "pfedme": ("pfedme", {"proximal": 3.0, "inner_steps": 3, "inner_lr": 0.07, "server_lr": 0.8}, of_pfedme),
}


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
@pytest.mark.parametrize("case", CASES)
def test_recipe_equals_its_transcription(case, engine):
    name, options, local = CASES[case]
    present, clients = presence(T, N, seed=1), Clients()
    run = simulation(ALGORITHMS[name](LOCAL, cohort_size=N, **options), present, engine)
    w, beta = clients.first, options.get("server_lr", 1.0)
    kept = [(w, options["alpha"]) if name == "apfl" else w for _ in range(N)]
    for row in present:
        ends = []
        for n in np.flatnonzero(row):
            end, kept[n] = local(clients, w, n, kept[n])
            ends.append(end)
        w = (1 - beta) * w + beta * sum(ends) / len(ends) if ends else w
        run.round()
        np.testing.assert_allclose(run.state.params, w, rtol=0, atol=1e-10)
        served = [a * v + (1 - a) * w for v, a in kept] if name == "apfl" else kept
        np.testing.assert_allclose(run.models.serving(np.arange(N)), served, rtol=0, atol=1e-10)
    assert np.abs(w - clients.first).max() > 0.1
    if name == "apfl":
        assert (len({float(a) for _, a in kept}) > N // 2) == bool(options.get("adaptive"))


def test_shares_of_zero_and_one_give_the_shared_and_a_purely_local_model():
    present = np.ones((5, N), dtype=bool)
    runs = [simulation(ALGORITHMS["apfl"](LOCAL, alpha=alpha, cohort_size=N), present) for alpha in (0.0, 1.0)]
    plain = simulation(ALGORITHMS["average_participating"](LOCAL), present)
    for run in (*runs, plain):
        for _ in range(5):
            run.round()
    shared, own = (run.models.serving(np.arange(N)) for run in runs)
    torch.testing.assert_close(shared, plain.state.params.expand(N, -1), rtol=0, atol=1e-12)
    clients = Clients()
    for n in range(N):
        v = clients.first
        for _ in range(5 * STEPS):
            v = v - LR * clients.gradient(v, clients.minibatch(n))
        np.testing.assert_allclose(own[n], v, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: ALGORITHMS["apfl"](Sgd(momentum=0.5)), "MixtureSteps: got .* use Sgd without momentum"),
        (lambda: ALGORITHMS["pfedme"](Sgd(weight_decay=0.5)), "MoreauSteps: got .* use Sgd without momentum"),
        (lambda: ALGORITHMS["apfl"](Sgd(lr=Halving(0.3, 7, 5)), adaptive=True), "because the share is clipped"),
        (lambda: ALGORITHMS["pfedme"](Sgd(lr=Halving(0.3, 7, 5))), "by which the personal model's step is divided"),
        (lambda: Mixture(alpha=1.5), "alpha: got 1.5"),
        (lambda: Mixture(adaptation_steps=0), "adaptation_steps"),
        (lambda: MoreauSteps(proximal=0.0), "proximal"),
        (lambda: MoreauSteps(inner_lr=0.0), "inner_lr"),
        (lambda: MoreauSteps(inner_steps=0), "inner_steps"),
        (lambda: compose(Mixture()), r"Mixture requires MixtureSteps, got Sgd.* write MixtureSteps.of\(Sgd"),
        (lambda: compose(MixtureSteps()), r"MixtureSteps trains two models: add Mixture\(\) to the pieces"),
        (lambda: compose(MixtureSteps(), MoreauModel()), "MixtureSteps trains two models"),
        (lambda: ALGORITHMS["apfl"](also=(Prox(),)), "Prox applies to one model"),
        (lambda: ALGORITHMS["pfedme"](also=(PowerOfChoice(),)), "StartLoss applies to one model"),
    ],
)
def test_invalid_pairs_of_models_are_refused(make, why):
    with pytest.raises(ConfigurationError, match=why):
        make()
