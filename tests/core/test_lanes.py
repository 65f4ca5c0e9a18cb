"""Tests of the order in which a local rule processes clients."""

import numpy as np
import torch

from turnout.core.lanes import Lanes


def test_clients_with_more_steps_come_first_and_equal_ones_keep_their_order():
    lanes = Lanes.by_steps(np.array([2, 5, 2, 0, 5]))
    assert lanes.order.tolist() == [1, 4, 0, 2, 3]
    assert lanes.num_steps.tolist() == [5, 5, 2, 2, 0]


def test_rows_come_back_in_the_order_of_the_clients():
    lanes, rows = Lanes.by_steps(np.array([1, 4, 2])), torch.arange(6.0).view(3, 2)
    assert torch.equal(lanes.of(rows), rows[[1, 2, 0]])
    assert torch.equal(lanes.back(lanes.of(rows)), rows)


def test_rows_in_the_same_order_are_not_copied():
    rows = torch.zeros(3, 2)
    assert Lanes.by_steps(np.array([3, 3, 1])).back(rows) is rows


def test_part_is_a_slice_of_the_lanes():
    part = Lanes.by_steps(np.array([1, 4, 2])).part(slice(1, 3))
    assert part.order.tolist() == [2, 0]
    assert part.num_steps.tolist() == [2, 1]
