"""Replacement of BatchNorm by GroupNorm."""

import pytest
import torch
from torch import nn

import turnout as to
from turnout.core.checks import ConfigurationError
from turnout.models import group_norm


def module():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3), nn.BatchNorm2d(12), nn.Sequential(nn.BatchNorm2d(12, affine=False)), nn.ReLU()
    )


def test_layers_are_replaced_in_a_copy_and_reported(capsys):
    before = module()
    torch.nn.init.constant_(before.get_parameter("1.weight"), 2.0)
    after = group_norm(before, groups=8)
    assert isinstance(before[1], nn.BatchNorm2d)
    assert [(g.num_groups, g.affine) for g in after.modules() if isinstance(g, nn.GroupNorm)] == [(4, True), (4, False)]
    assert torch.equal(after.get_parameter("1.weight"), before.get_parameter("1.weight"))
    told = "replaced 2 BatchNorm layers by GroupNorm: 1 (12 channels in 4 groups), 2.0 (12 channels in 4 groups)\n"
    assert capsys.readouterr().out == told


def test_nothing_is_reported_without_batch_norm(capsys):
    group_norm(module(), tell=False)
    assert capsys.readouterr().out == ""
    group_norm(nn.Linear(2, 2))
    assert capsys.readouterr().out == "replaced 0 BatchNorm layers by GroupNorm\n"


@pytest.mark.parametrize(
    ("channels", "groups", "expected"), [(64, 32, 32), (48, 32, 16), (7, 32, 1), (4, 32, 2), (1, 8, 1)]
)
def test_groups_have_at_least_two_channels(channels, groups, expected):
    made = group_norm(nn.BatchNorm1d(channels), groups, tell=False)
    assert isinstance(made, nn.GroupNorm)
    assert made.num_groups == expected


def test_num_groups_is_validated():
    with pytest.raises(ConfigurationError, match="groups: got 0"):
        group_norm(module(), groups=0)


def test_returned_model_trains():
    x = torch.randn(24, 1, 6, 6)
    data = to.data.from_arrays(x, torch.arange(24) % 2).split(to.partition.Iid(), 3)
    model = nn.Sequential(*module(), nn.Flatten(), nn.Linear(192, 2))
    to.Experiment(data=data, model=group_norm(model, tell=False), rounds=1).run()
