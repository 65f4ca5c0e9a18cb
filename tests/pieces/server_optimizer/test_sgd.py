"""The plain server step."""

import pytest
import torch

from turnout import ConfigurationError
from turnout.core.schedule import Halving
from turnout.pieces.server_optimizer.sgd import ServerSgd


def test_step_adds_the_scaled_direction():
    params, direction = torch.tensor([1.0, 2.0]), torch.tensor([10.0, -10.0])
    moved, state = ServerSgd(0.5).apply(params, direction, 3, {})
    assert moved.tolist() == [6.0, -3.0]
    assert params.tolist() == [1.0, 2.0]
    assert state == {}


def test_schedule_follows_the_round():
    server = ServerSgd(Halving(1.0, start=2, every=1, most=2))
    steps = [server.apply(torch.zeros(1), torch.ones(1), version, {})[0].item() for version in range(6)]
    assert steps == [1.0, 1.0, 0.5, 0.25, 0.25, 0.25]


@pytest.mark.parametrize("lr", [0, -1.0, "1", None, float("inf")])
def test_invalid_arguments_raise(lr):
    with pytest.raises(ConfigurationError, match=r"server_lr: got .*, needed a finite number > 0"):
        ServerSgd(lr)
