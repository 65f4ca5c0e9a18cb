"""Nesterov momentum on the server."""

import pytest
import torch
from tests.tiny import federation

from turnout import ConfigurationError
from turnout.pieces.server_optimizer.momentum import ServerNesterov

DIRECTIONS = torch.randn(12, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def after(server, directions=DIRECTIONS):
    """The model after each step."""
    params, state, found = torch.zeros(5, dtype=torch.float64), server.init(federation(4, 5)), []
    for version, direction in enumerate(directions):
        params, state = server.apply(params, direction, version, state)
        found.append(params)
    return torch.stack(found)


def test_equals_torchs_sgd():
    x = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    optimizer, found = torch.optim.SGD([x], lr=0.7, momentum=0.9, nesterov=True), []
    for direction in DIRECTIONS:
        x.grad = -direction
        optimizer.step()
        found.append(x.detach().clone())
    torch.testing.assert_close(after(ServerNesterov()), torch.stack(found), rtol=0, atol=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.1, 1 / 3])
def test_delayed_nesterov_equals_algorithm_3(share):
    """Algorithm 3 of Liu et al., with share c: all N of a period have c of the momentum, the last one the remainder."""
    n, eps, beta = 3, 0.7, 0.9
    x, m, total = (torch.zeros(5, dtype=torch.float64) for _ in range(3))
    expected = []
    for t, g in enumerate(-DIRECTIONS):
        total = total + g
        if (t + 1) % n == 0:
            m = beta * m + total / n
            x = x - eps * ((1 - share * n + share) * beta * m + g / n)
            total = torch.zeros_like(total)
        else:
            x = x - eps * (share * beta * m + g / n)
        expected.append(x)
    found = after(ServerNesterov(every=n, share=share))
    torch.testing.assert_close(found, torch.stack(expected), rtol=0, atol=1e-12)


def test_delayed_nesterov_without_delay_is_nesterov_and_n_steps_equal_one_of_their_mean():
    assert torch.equal(after(ServerNesterov(every=1)), after(ServerNesterov()))
    means = DIRECTIONS.view(3, 4, 5).mean(dim=1)
    torch.testing.assert_close(after(ServerNesterov(every=4))[3::4], after(ServerNesterov(), means), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0}, "lr: got 0, needed a finite number > 0"),
        ({"beta": 1.0}, "beta: got 1.0, needed a number >= 0 and < 1"),
        ({"every": 0}, "every: got 0, needed a whole number >= 1"),
        ({"every": 4, "share": 0.3}, "share: got 0.3, needed a number from 0 to 1/every = 0.25"),
    ],
)
def test_invalid_arguments_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        ServerNesterov(**options)
