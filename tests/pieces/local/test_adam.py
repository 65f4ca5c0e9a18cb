"""Adam, AdamW and shared options of solvers, compared with torch's optimizers for each client."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from turnout import ALGORITHMS, AdamW, ConfigurationError, Sgd, compose, fednova, models
from turnout.base.client_step import client_step
from turnout.core.schedule import ByStep, Cosine, LinearWarmup, Schedule
from turnout.core.types import Federation, Task
from turnout.engine.cohort import Clients
from turnout.engine.compile import compiled as replay
from turnout.engine.compile import fused
from turnout.engine.objective import Objective
from turnout.pieces.local import Adam, Prox, Scaffold, Solver, StartLoss
from turnout.pieces.personalization import Ditto, Personal
from turnout.pieces.weighting import DivideByCurvature

from ...tiny import classification

MODEL = models.Mlp(hidden=(7,))
DATA = classification(dtype=torch.float64)
IDS = np.array([7, 1, 0])  # 64, 5 and 40 examples
OPTIMIZERS = {Sgd: torch.optim.SGD, Adam: torch.optim.Adam, AdamW: torch.optim.AdamW}


def clients_of(engine: Any = "vectorized", ids=IDS):
    module = MODEL.build((16,), 4).double()
    return Clients(ids, ids, DATA.train, Objective(module, engine=engine))


def memory_of(algorithm, clients):
    federation = Federation(len(DATA.train.sizes), clients.objective.layout.num_params, dtype=torch.float64)
    row = algorithm.memory(federation, clients.objective.initial)
    return {name: value.expand(len(clients), *value.shape).clone() for name, value in row.items()}


def by_torch(local: Any, clients, row, rounds, mu=0.0):
    """Return a client's models after several rounds with `torch.optim` on the same minibatches."""
    module = MODEL.build((16,), 4).double()
    start = [p.detach().clone() for p in module.parameters()]
    options = {"weight_decay": local.weight_decay}
    if isinstance(local, Sgd):
        options |= {"momentum": local.momentum}
    else:
        options |= {"betas": (local.beta1, local.beta2), "eps": local.epsilon}
    optimizer, done, deltas = None, np.zeros(len(clients), dtype=np.int64), []
    for version in range(rounds):
        with torch.no_grad():
            for p, first in zip(module.parameters(), start, strict=True):
                p.copy_(first)
        if optimizer is None or not local.keep_state:
            optimizer = OPTIMIZERS[type(local)](module.parameters(), 1.0, **options)
        task = Task(clients.objective.initial, version, seed=1)
        planned = local.plan(task, {"steps_done": torch.from_numpy(done)}, clients)
        done += planned.num_steps
        steps = planned.num_steps // local.accumulate
        sizes = local.lr.at_steps(np.array([version]), steps[[row]]) if isinstance(local.lr, Schedule) else None
        for step in range(steps[row]):
            now = slice(step * local.accumulate, (step + 1) * local.accumulate)
            rows = np.concatenate(
                [own[:n] for own, n in zip(planned.examples[row, now], planned.counts[row, now], strict=True)]
            )
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(DATA.train.x[rows]), DATA.train.y[rows]).backward()
            if local.max_norm is not None:
                nn.utils.clip_grad_norm_(module.parameters(), local.max_norm)
            if mu:
                for p, first in zip(module.parameters(), start, strict=True):
                    p.grad = mu * (p.detach() - first) + p.grad  # type: ignore[operator]
            optimizer.param_groups[0]["lr"] = local.lr if sizes is None else sizes[step, 0]
            optimizer.step()
        deltas.append(
            torch.cat([(p.detach() - f).reshape(-1) for p, f in zip(module.parameters(), start, strict=True)])
        )
    return torch.stack(deltas)


def deltas_of(local, clients, rounds, *corrections):
    """The updates of all clients in so many rounds, each from the first model, ``[rounds, B, P]``."""
    algorithm = compose(local, *corrections)
    memory, found = memory_of(algorithm, clients), []
    for version in range(rounds):
        shared = {name: torch.zeros_like(clients.objective.initial) for name in algorithm.keeps}
        task = Task(clients.objective.initial, version, seed=1, shared=shared)
        report, memory = client_step(algorithm, task, memory, clients)
        found.append(report.delta.clone())
    return torch.stack(found)


SOLVERS = {
    "adam": Adam(lr=0.01),
    "adam with a penalty, kept": Adam(lr=0.01, weight_decay=0.1, keep_state=True),
    "adamw": AdamW(lr=0.02, beta1=0.8, beta2=0.95, epsilon=1e-6, weight_decay=0.3),
    "adamw, kept": AdamW(lr=0.02, steps=4, keep_state=True),
    "adamw, epochs": AdamW(lr=0.02, steps=None, epochs=2, batch_size=8, keep_state=True),
    "adamw, clipped": AdamW(lr=0.02, max_norm=0.05),
    "adamw, accumulated": AdamW(lr=0.02, steps=3, batch_size=6, accumulate=3, max_norm=0.5),
    "adamw, accumulated epochs": AdamW(lr=0.02, steps=None, epochs=2, batch_size=6, accumulate=3),
    "adamw, warm-up by step": AdamW(lr=ByStep(LinearWarmup(Cosine(0.05, rounds=2), rounds=0.5)), steps=4),
    "sgd, a step by round": Sgd(lr=Cosine(0.1, 2), steps=1),
    "sgd, kept, clipped": Sgd(lr=0.1, momentum=0.9, weight_decay=0.1, max_norm=0.3, keep_state=True),
    "sgd, accumulated, restarting": Sgd(lr=ByStep(Cosine(0.1, 1), restarts=True), batch_size=5, accumulate=2),
}


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
@pytest.mark.parametrize("name", SOLVERS)
def test_equals_torchs_optimizer_for_each_client(name, engine):
    local, clients = SOLVERS[name], clients_of(engine)
    found = deltas_of(local, clients, 2)
    for row in range(len(IDS)):
        torch.testing.assert_close(found[:, row], by_torch(local, clients, row, 2), rtol=0, atol=1e-12)


def test_result_is_equal_without_the_fused_operation(monkeypatch):
    """As on devices without it."""
    local, clients = AdamW(lr=0.02, beta1=0.8, weight_decay=0.3), clients_of()
    whole = deltas_of(local, clients, 2)
    monkeypatch.setattr(fused, "has_adamw", lambda _: False)
    torch.testing.assert_close(deltas_of(local, clients, 2), whole, rtol=0, atol=1e-12)


def test_moments_include_the_proximal_gradient():
    local, clients = AdamW(lr=0.02, max_norm=0.05), clients_of()
    found = deltas_of(local, clients, 1, Prox(mu=0.5))
    for row in range(len(IDS)):
        torch.testing.assert_close(found[:, row], by_torch(local, clients, row, 1, mu=0.5), rtol=0, atol=1e-12)


def test_accumulated_minibatches_equal_one_large_minibatch():
    clients = clients_of()
    small = replace(AdamW(lr=0.02, steps=2), batch_size=4, accumulate=4)
    large = replace(small, batch_size=16, accumulate=1)
    rows = [0, 2]  # whose data make whole minibatches of both sizes
    both = [deltas_of(local, clients, 1)[0, rows] for local in (small, large)]
    torch.testing.assert_close(*both, rtol=0, atol=1e-12)


def test_trace_gives_the_same_bits(monkeypatch, by_python):
    local = AdamW(lr=ByStep(LinearWarmup(0.02, 1)), steps=3, batch_size=4, accumulate=2, max_norm=0.5, keep_state=True)
    expected = by_python(deltas_of, local, clients_of(), 3, Scaffold())
    monkeypatch.setattr(replay, "_CALLS", 0)
    clients = clients_of()
    assert torch.equal(deltas_of(local, clients, 3, Scaffold()), expected)
    assert {"plain", "torchscript"} & clients.objective.backends.keys()


def test_dropped_report_leaves_the_client_state_unchanged():
    algorithm, clients = compose(AdamW(keep_state=True)), clients_of()
    first = memory_of(algorithm, clients)
    start = clients.objective.initial.expand(len(IDS), -1).clone()
    start[1] = torch.nan
    report, memory = client_step(algorithm, Task(start, 0, seed=1), dict(first), clients)
    assert report.finite().tolist() == [True, False, True]
    for name in ("solver.m", "solver.v", "solver.count"):
        assert torch.equal(memory[name][1], first[name][1])
        assert (memory[name][[0, 2]] != first[name][[0, 2]]).any(dim=1).all()


def test_initial_gradients_are_at_the_first_model_for_any_weight_decay():
    decaying, resting = (
        compose(AdamW(weight_decay=decay, keep_state=True), Scaffold(initial="gradients")) for decay in (0.5, 0.0)
    )
    clients, found = clients_of(), []
    for algorithm in (decaying, resting):
        first = memory_of(algorithm, clients)
        task = Task(clients.objective.initial, 0, seed=1, phase="prepare", shared={"control": first["control"][0]})
        _, memory = client_step(algorithm, task, dict(first), clients)
        assert torch.equal(memory["solver.m"], first["solver.m"])
        found.append(memory["control"])
    assert torch.equal(*found)
    assert found[0].abs().sum() > 0


def test_common_optimum_is_stationary_with_control_variates():
    """With ``c_k = grad F_k(x*)`` and ``c = 0``, no client leaves x*; without them it does."""
    # Adam enlarges gradients that are smaller than epsilon, those of rounding included.
    local, clients = Adam(lr=0.1, steps=3, batch_size=64, epsilon=0.01), clients_of()
    algorithm, task = compose(local, Scaffold()), Task(clients.objective.initial, 0, seed=1)
    gradients = clients.at(task)[1].gradient
    task = replace(task, shared={"control": torch.zeros_like(gradients[0])})
    corrected, _ = client_step(algorithm, task, memory_of(algorithm, clients) | {"control": gradients}, clients)
    assert corrected.delta.abs().max() < 1e-12
    plain = deltas_of(local, clients, 1)
    assert plain.abs().max() > 0.1


def test_memory_covers_all_trained_parameters():
    algorithm = compose(AdamW(keep_state=True), Personal("head"))
    row = algorithm.memory(Federation(3, 10, dtype=torch.float32), torch.zeros(4))
    assert {name: tuple(value.shape) for name, value in row.items()} == {
        "steps_done": (), "solver.m": (14,), "solver.v": (14,), "solver.count": (1,), "personal": (4,),
    }  # fmt: skip
    assert algorithm.remembers == ("solver.m", "solver.v", "solver.count")


@pytest.mark.parametrize("solver", [Sgd, Adam, AdamW])
def test_solvers_share_options(solver):
    assert {field.name for field in fields(Solver)} <= {field.name for field in fields(solver)}
    alone = solver(epochs=2, steps=None, keep_state=solver is not Sgd).alone(3)
    assert (alone.steps, alone.epochs, alone.sampling, alone.keep_state) == (3, None, "fresh", False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta1": 1.0}, "beta1: got 1.0, needed a number >= 0 and < 1"),
        ({"beta2": -0.1}, "beta2: got -0.1"),
        ({"epsilon": 0.0}, "epsilon: got 0.0, needed a finite number > 0"),
        ({"weight_decay": -1.0}, "weight_decay: got -1.0"),
        ({"max_norm": 0.0}, "max_norm: got 0.0"),
        ({"max_norm": 1e200}, r"max_norm: got 1e\+200, needed a number <= 3.403e\+38"),
        ({"accumulate": 0}, "accumulate: got 0"),
        ({"steps": None}, r"write AdamW\(steps=None, epochs=1\)"),
    ],
)
def test_invalid_arguments_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        AdamW(**options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sgd(keep_state=True), "keep_state: SGD without momentum has no state .* write momentum=0.9"),
        (lambda: fednova(AdamW()), "right for plain SGD; with AdamW the gradients of a round have unequal weights"),
        (
            lambda: compose(Adam(), StartLoss(), DivideByCurvature(1.0, 1e-3)),
            "the length of a step of Adam does not depend on that of the gradient: use Sgd",
        ),
        (lambda: compose(AdamW(), Personal(alternate=0.5)), "with Adam the mean gradient of one part would change it"),
        (
            lambda: compose(AdamW(), Personal(lr_factor=2.0)),
            "lr_factor=2.0 multiplies the gradients .* use Sgd, or lr_",
        ),
        (lambda: compose(AdamW(keep_state=True), Ditto()), "a client trains two models, .* write keep_state=False"),
        (lambda: ALGORITHMS["perfedavg"](AdamW()), "Per-FedAvg's steps are those of Sgd, got AdamW"),
    ],
)
def test_incompatible_pieces_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
