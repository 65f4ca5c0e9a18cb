"""Tests of the copies of a module for threads."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from turnout.engine.dropout import KeyedDropout
from turnout.engine.network import ThreadCopies


class Layer(nn.Linear):
    """A layer that asks whether it is called for one client at a time."""

    alone = False


def test_each_thread_has_one_copy_that_shares_the_tensors():
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    copies = ThreadCopies(module, alone=False)
    here = copies.of_thread()
    with ThreadPoolExecutor(1) as pool:
        there = pool.submit(copies.of_thread).result()
    assert copies.of_thread() is here
    assert len({module, here.module, there.module}) == 3
    for copy in (here.module, there.module):
        assert all(a is b for a, b in zip(copy.parameters(), module.parameters(), strict=True))
        assert all(a is b for a, b in zip(copy.buffers(), module.buffers(), strict=True))


@pytest.mark.parametrize("alone", [False, True])
def test_layers_of_a_copy_know_whether_clients_come_alone(alone):
    module = nn.Sequential(Layer(2, 1), KeyedDropout(0.5, channels=False, layer=0))
    copy = ThreadCopies(module, alone).of_thread()
    layer, dropout = copy.module.children()
    assert layer.alone is alone
    assert module[0].alone is False
    assert copy.dropouts == [dropout]
    assert copy.module(torch.ones(4, 2)).shape == (4, 1)
