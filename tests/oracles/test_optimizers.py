"""Server optimizers compared with NumPy and torch, over random cohorts, including empty ones."""

import numpy as np
import pytest
import torch

from turnout import ALGORITHMS, fedau, folb
from turnout.base.server_step import server_step
from turnout.pieces.server_optimizer.adaptive import ServerAdagrad, ServerAdam
from turnout.pieces.server_optimizer.momentum import ServerMomentum

from ..tiny import federation, presence, report
from . import optimizers

N, P, T = 6, 7, 40


def rounds(seed):
    """Reports of clients with equal amounts of data; directions of very different size, and zeros."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-4, 0, size=P) * (rng.random(P) < 0.9)
    return [report(c, torch.from_numpy(rng.normal(size=(len(c), P)) * scale + 0.1 * scale))
            for c in map(np.flatnonzero, presence(T, N, seed))]  # fmt: skip


def stepped(algorithm, reports):
    """Parameters after every round."""
    known, params = federation(N, P), []
    state = algorithm.init(torch.zeros(P, dtype=torch.float64), known)
    for one in reports:
        state, _ = server_step(algorithm, state, one, known)
        params.append(state.params.numpy())
    return np.array(params)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", optimizers.METHODS)
def test_every_step_equals_its_transcription(name, seed):
    reports, step, x, expected = rounds(seed), optimizers.METHODS[name](), np.zeros(P), []
    for one in reports:
        if len(one):
            x = x + step(one.delta.numpy().mean(axis=0), np.linalg.norm(one.delta.numpy(), axis=1))
        expected.append(x)
    np.testing.assert_allclose(stepped(ALGORITHMS[name](), reports), expected, rtol=1e-10, atol=1e-15)
    assert np.abs(x).max() > 1e-4


@pytest.mark.parametrize(
    ("server", "optimizer"),
    [
        (ServerMomentum(lr=0.5, beta=0.7), lambda x: torch.optim.SGD([x], lr=0.5, momentum=0.7)),
        (ServerAdagrad(lr=0.3, tau=0.01),
         lambda x: torch.optim.Adagrad([x], lr=0.3, eps=0.01, initial_accumulator_value=1e-4)),
    ],
)  # fmt: skip
def test_server_optimizer_on_fedau_directions_equals_torch(server, optimizer):
    """The optimizer replaces the plain step."""
    reports = rounds(3)
    plain = np.diff(stepped(fedau(cutoff=3), reports), axis=0, prepend=np.zeros((1, P)))
    x = torch.zeros(P, dtype=torch.float64, requires_grad=True)
    torchs, expected = optimizer(x), []
    for one, direction in zip(reports, plain, strict=True):
        if len(one):
            x.grad = torch.from_numpy(-direction)
            torchs.step()
        expected.append(x.detach().numpy().copy())
    np.testing.assert_allclose(stepped(fedau(cutoff=3, also=(server,)), reports), expected, rtol=1e-9, atol=1e-15)


def test_adam_without_memory_steps_by_signs():
    """beta1 = beta2 = 0 and a tiny tau: every parameter moves by lr, for any size of its direction."""
    reports = [one for one in rounds(0) if len(one)][:1]
    moved = stepped(fedau(also=(ServerAdam(lr=0.25, beta1=0.0, tau=1e-12, beta2=0.0),)), reports)[0]
    mean = reports[0].delta.numpy().mean(axis=0)
    np.testing.assert_allclose(moved, 0.25 * np.sign(mean), rtol=1e-6)
    assert {-0.25, 0.0, 0.25} == set(np.round(moved, 6))


def test_fedexp_step_is_equal_for_negative_weights():
    """FOLB's weights may be negative; eta depends on the updates as they are added."""
    delta = torch.from_numpy(np.random.default_rng(1).normal(size=(3, P)))
    gradient = torch.tensor([1.0, -0.5, 1.0], dtype=torch.float64)[:, None].expand(3, P)
    algorithm = folb(cohort_size=3, also=(ALGORITHMS["fedexp"]().server,))
    one = report([0, 1, 2], delta, seen={"start_gradient": gradient})
    plain = stepped(folb(cohort_size=3), [one])[0]
    far = stepped(algorithm, [one])[0]
    eta = (far @ plain) / (plain @ plain)
    np.testing.assert_allclose(far, eta * plain, rtol=1e-12)
    assert eta > 1.2
    state = folb(cohort_size=3).init(torch.zeros(P, dtype=torch.float64), federation(N, P))
    weights = server_step(folb(cohort_size=3), state, one, federation(N, P))[1]
    w = weights["weights"].numpy()
    assert w.min() < 0
    expected = (abs(w) @ (delta.numpy() ** 2).sum(axis=1)) / (2 * (plain @ plain + 1e-3))
    assert eta == pytest.approx(max(1.0, expected))
