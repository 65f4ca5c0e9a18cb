"""Adaptive server optimizers."""

import pytest
import torch
from tests.tiny import federation

from turnout import ConfigurationError, fedadam, fedasync, fedau, mifa
from turnout.core.schedule import Halving
from turnout.pieces.server_optimizer.adaptive import ServerAdagrad, ServerAdam, ServerYogi
from turnout.pieces.server_optimizer.amsgrad import ServerAmsgrad
from turnout.pieces.server_optimizer.momentum import ServerMomentum
from turnout.pieces.server_optimizer.sgd import FedExP

KINDS = (ServerAdagrad, ServerAdam, ServerMomentum, ServerYogi)


@pytest.mark.parametrize("kind", KINDS)
def test_schedule_follows_the_round_and_nothing_changes_in_place(kind):
    params, direction = torch.zeros(3, dtype=torch.float64), torch.tensor([1.0, -2.0, 0.0], dtype=torch.float64)
    state = kind().init(federation(4, 3))
    before = {name: value.clone() for name, value in state.items()}
    steps = [kind(Halving(1.0, start=1, every=1, most=1)).apply(params, direction, t, state)[0] for t in (0, 1, 5)]
    assert torch.equal(steps[1], steps[0] / 2)
    assert torch.equal(steps[2], steps[1])
    assert (params == 0).all()
    assert all(torch.equal(before[name], state[name]) for name in before)


@pytest.mark.parametrize("kind", [*KINDS, FedExP])
def test_non_finite_state_is_undone(kind):
    """A direction that overflows leaves the optimizer unchanged."""
    from tests.tiny import report

    from turnout.base.server_step import server_step

    algorithm, known = fedau(also=(kind(),)), federation(4, 5)
    state = algorithm.init(torch.zeros(5, dtype=torch.float64), known)
    after, info = server_step(algorithm, state, report([0, 1], torch.full((2, 5), 1e308, dtype=torch.float64)), known)
    assert info["num_dropped"] == 2
    assert after.slots["server"] is state.slots["server"]
    assert (after.params == 0).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ServerAdam(lr=0), r"lr: got 0, needed a finite number > 0"),
        (lambda: ServerAdam(beta1=1.0), r"beta1: got 1.0, needed a number >= 0 and < 1"),
        (lambda: ServerYogi(beta2=-0.1), r"beta2: got -0.1, needed a number >= 0 and < 1"),
        (lambda: ServerAdagrad(tau=0.0), r"tau: got 0.0, needed a finite number > 0"),
        (lambda: ServerAdam(tau=1e-300), r"tau: got 1e-300, needed a number from 1.1e-19 to 9.2e\+18, whose square single"),
        (lambda: ServerYogi(tau=1e30), r"tau: got 1e\+30, needed a number from 1.1e-19"),
        (lambda: ServerAmsgrad(epsilon=1e-300), r"epsilon: got 1e-300, needed a number from 1.1e-19"),
        (lambda: ServerMomentum(beta=True), r"beta: got True, needed a number >= 0 and < 1"),
        (lambda: FedExP(epsilon=-1), r"epsilon: got -1, needed a finite number > 0"),
        (lambda: mifa(also=(FedExP(),)), "FedExP's step is the ratio .* Mifa has another direction"),
        (lambda: fedau(server_lr=0.5, also=(ServerAdam(),)), "ServerAdam would replace .* its step size 0.5"),
        (lambda: fedasync(also=(ServerYogi(),)), "step of fedasync .* size 0.6: .* write lr=... in ServerYogi"),
        (lambda: fedadam(also=(ServerYogi(),)), "fedadam is defined by ServerAdam, which ServerYogi would replace"),
    ],
)  # fmt: skip
def test_invalid_arguments_raise(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_server_optimizer_replaces_the_plain_step():
    assert fedau(also=(ServerAdam(0.3),)).server == ServerAdam(0.3)
    assert fedadam(server_lr=0.2, tau=0.1).server == ServerAdam(0.2, tau=0.1)
    assert fedasync(alpha=1.0, also=(ServerMomentum(0.6),)).server == ServerMomentum(0.6)
