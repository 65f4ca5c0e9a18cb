"""Keyed dropout."""

import pytest
import torch
from torch import nn
from torch.func import vmap

from turnout.core.random import fold, stream
from turnout.engine.dropout import KeyedDropout, with_keyed_dropout
from turnout.engine.objective import Objective


def dropped(layer, x, key=7):
    layer.key.fill_(key)
    layer.uses = 0
    return layer(x)


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_dropped_fraction_and_scale(p):
    out = dropped(KeyedDropout(p, channels=False, layer=0), torch.ones(200, 500))
    assert abs(float((out == 0).double().mean()) - p) < 0.01
    if p < 1:
        assert torch.allclose(out[out != 0], torch.tensor(1 / (1 - p)))
        assert abs(float(out.mean()) - 1) < 0.03


def test_evaluation_is_the_identity():
    x = torch.randn(5, 6)
    assert torch.equal(dropped(KeyedDropout(0.7, channels=False, layer=0).eval(), x), x)


def test_channel_dropout_drops_whole_channels():
    out = dropped(KeyedDropout(0.5, channels=True, layer=0), torch.ones(8, 16, 3, 3))
    by_channel = out.flatten(2)
    assert ((by_channel == 0).all(dim=2) | (by_channel != 0).all(dim=2)).all()
    assert 0.3 < float((by_channel[..., 0] == 0).float().mean()) < 0.7
    flat = dropped(KeyedDropout(0.5, channels=True, layer=0), torch.ones(8, 400))  # as nn.Dropout2d does
    assert 0.4 < float((flat == 0).float().mean()) < 0.6


def test_mask_depends_on_key_layer_and_use():
    x = torch.ones(4, 50)
    layer = KeyedDropout(0.5, channels=False, layer=0)
    first = dropped(layer, x)
    again_in_the_same_call = layer(x)
    assert torch.equal(dropped(layer, x), first)
    assert not torch.equal(first, again_in_the_same_call)
    assert not torch.equal(dropped(layer, x, key=8), first)
    other_layer = dropped(KeyedDropout(0.5, channels=False, layer=1), x)
    assert not torch.equal(other_layer, first)
    assert not torch.equal(other_layer, again_in_the_same_call)


def test_later_examples_do_not_change_masks():
    layer, x = KeyedDropout(0.5, channels=False, layer=2), torch.randn(9, 20)
    assert torch.equal(dropped(layer, x)[:4], dropped(layer, x[:4]))


def test_masks_are_independent_of_transforms():
    """Transforms of example e draw from fold(key, e); layer l must not draw from fold(key, l)."""
    x, key = torch.ones(1, 64), torch.tensor(stream("a key"))
    for number in range(3):
        mask = dropped(KeyedDropout(0.5, channels=False, layer=number), x, key=int(key))
        for example in range(3):
            places = fold(fold(key, torch.tensor(example)), torch.arange(64))
            same = (places >> 63 & 1).bool() == (mask[0] != 0)
            assert 0.2 < float(same.float().mean()) < 0.8


def test_lanes_have_their_own_masks_under_vmap():
    objective = Objective(nn.Sequential(nn.Linear(3, 40), nn.Dropout(0.5)), loss=lambda out, _: out.sum(dim=1))
    params, x = objective.initial.expand(3, -1), torch.ones(3, 5, 3)
    keys = torch.tensor([1, 2, 1])
    outputs = vmap(objective.network.outputs)(params, x, keys)
    assert torch.equal(outputs[0], outputs[2])
    assert not torch.equal(outputs[0], outputs[1])
    for k in range(3):
        assert torch.equal(objective.network.outputs(params[k], x[k], keys[k]), outputs[k])


def test_layer_used_twice_has_two_masks():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.drop = nn.Parameter(torch.ones(1)), nn.Dropout(0.5)

        def forward(self, x):
            return torch.stack([self.drop(x * self.weight), self.drop(x * self.weight)], dim=1)

    objective = Objective(Twice())
    out = objective.network.outputs(objective.initial, torch.ones(10, 40), torch.tensor(3))
    assert 0.35 < float((out[:, 0] == out[:, 1]).float().mean()) < 0.65
    assert torch.equal(objective.network.outputs(objective.initial, torch.ones(10, 40), torch.tensor(3)), out)


def test_every_dropout_layer_is_replaced_in_a_copy():
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1), nn.Sequential(nn.Dropout2d(0.2), nn.Dropout1d(0.3)))
    copy, buffers = with_keyed_dropout(module)
    assert buffers == ["1.key", "2.0.key", "2.1.key"]
    found = [m for m in copy.modules() if isinstance(m, KeyedDropout)]
    assert [(m.probability, m.channels, m.layer) for m in found] == [(0.1, False, 0), (0.2, True, 1), (0.3, True, 2)]
    assert not any(isinstance(m, KeyedDropout) for m in module.modules())
    alone, names = with_keyed_dropout(nn.Dropout(0.4))
    assert isinstance(alone, KeyedDropout)
    assert names == ["key"]
