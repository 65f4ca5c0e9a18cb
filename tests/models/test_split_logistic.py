"""Logistic regression in a shared and a personal part."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout import ConfigurationError, Experiment, Sgd, average_participating
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.engine.cohort import Clients
from turnout.engine.full_batch import full_gradient
from turnout.engine.objective import Objective
from turnout.models import SplitLogistic
from turnout.models.linear import regularized_logistic_loss

D_U, D_V = 3, 2


def data(seed=0, sizes=(7, 12, 5)):
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    x, y = torch.from_numpy(rng.normal(size=(n, D_U + D_V))), torch.from_numpy(rng.integers(2, size=n))
    return FederatedData("two", Shards(x, y, np.concatenate([[0], np.cumsum(sizes)])), num_classes=2)


def by_hand(w, x, y, rho):
    """Loss and gradient at (u, v), entry by entry, as the paper writes them."""
    u, v, c = w[:D_U], w[D_U:], np.where(y == 1, 1.0, -1.0)
    margin = c * (x[:, :D_U] @ u + x[:, D_U:] @ v)
    loss = np.mean([math.log(1 + math.exp(-each)) for each in margin])
    loss += rho * (u @ u / (1 + u @ u) + v @ v / (1 + v @ v))
    slope = -c / (1 + np.exp(margin))
    gradient = (slope[:, None] * x).mean(axis=0)
    gradient[:D_U] += rho * 2 * u / (1 + u @ u) ** 2
    gradient[D_U:] += rho * 2 * v / (1 + v @ v) ** 2
    return loss, gradient


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-2, 2), min_size=D_U + D_V, max_size=D_U + D_V), st.sampled_from([0.0, 0.01, 1.0]))
def test_loss_and_gradient_equal_those_of_the_paper(numbers, rho):
    federated, w = data(), np.array(numbers)
    module = SplitLogistic(num_shared=D_U, rho=rho).build((D_U + D_V,), 2).double()
    objective = Objective(module, regularized_logistic_loss, personal={"personal"})
    assert objective.layout.names == ("shared", "personal")
    clients = Clients(np.arange(3), np.arange(3), federated.train, objective)
    losses, gradients = full_gradient(clients, torch.from_numpy(w))
    for k in range(3):
        x, y = (part.numpy() for part in federated.train.client(k))
        loss, gradient = by_hand(w, x, y, rho)
        assert float(losses[k]) == pytest.approx(loss, rel=1e-9, abs=1e-12)
        np.testing.assert_allclose(gradients[k], gradient, rtol=1e-9, atol=1e-12)


def test_experiment_uses_the_models_own_loss():
    federated = data()
    federated = replace(federated, train=replace(federated.train, x=federated.train.x.float()))
    local = Sgd(lr=0.5, steps=50, batch_size=12)
    run = Experiment(federated, SplitLogistic(num_shared=D_U), average_participating(local), rounds=8, evaluate_every=8)
    assert run.loss is regularized_logistic_loss
    history = run.run().history
    assert history.final("train_loss") < 0.65
    assert history.final("train_accuracy") > 0.6
    assert Experiment(federated, SplitLogistic(), loss=cross_entropy_of_mine).loss is cross_entropy_of_mine


def cross_entropy_of_mine(outputs, targets):
    return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")


def test_accuracy_uses_the_sign_of_the_score():
    federated = data()
    module = SplitLogistic(num_shared=D_U, rho=5.0).build((D_U + D_V,), 2).double()
    w = torch.tensor([1.0, -2.0, 0.5, 0.3, 0.8], dtype=torch.float64)
    objective = Objective(module, regularized_logistic_loss)
    x, y = federated.train.x, federated.train.y
    _, correct = objective.evaluate(w, iter([(x, y)]))
    assert correct.bool().tolist() == ((x @ w > 0) == (y == 1)).tolist()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 50), st.floats(0.001, 3))
def test_gradient_is_lipschitz_with_the_declared_smoothness(seed, distance):
    rng, federated, model = np.random.default_rng(seed), data(seed), SplitLogistic(num_shared=D_U, rho=0.3)
    bound = model.smoothness(federated.train)
    one = rng.normal(size=D_U + D_V)
    step = rng.normal(size=D_U + D_V)
    other = one + distance * step / np.linalg.norm(step)
    for k in range(3):
        x, y = (part.numpy() for part in federated.train.client(k))
        change = by_hand(one, x, y, 0.3)[1] - by_hand(other, x, y, 0.3)[1]
        assert np.linalg.norm(change) <= bound * distance * (1 + 1e-9)


def test_smoothness_is_tight_at_maximal_curvature():
    """At zero, without a regularizer, the Hessian is X^T X / (4 n)."""
    federated = data()
    hessians = [x.T @ x / (4 * len(x)) for x, _ in map(federated.train.client, range(3))]
    assert SplitLogistic(rho=0.0).smoothness(federated.train) == pytest.approx(
        max(float(torch.linalg.matrix_norm(h, 2)) for h in hessians)
    )


def test_default_shares_half_of_the_inputs():
    sizes = {name: p.numel() for name, p in SplitLogistic().build((1, 28, 28), 2).named_parameters()}
    assert sizes == {"shared": 392, "personal": 392}
    sizes = {name: p.numel() for name, p in SplitLogistic(num_shared=5).build((7,), 2).named_parameters()}
    assert sizes == {"shared": 5, "personal": 2}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SplitLogistic(num_shared=0), "num_shared: got 0"),
        (lambda: SplitLogistic(rho=-1), "rho: got -1"),
        (lambda: SplitLogistic().build((4,), 10), "num_classes of SplitLogistic: got 10, needed 2"),
        (lambda: SplitLogistic(num_shared=4).build((4,), 2), "num_shared: got 4, needed a number from 1 to 3"),
    ],
)
def test_invalid_options_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
