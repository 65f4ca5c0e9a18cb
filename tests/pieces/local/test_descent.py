"""Inputs of local steps: padding of minibatches, and a known first step."""

from typing import Any

import numpy as np
import pytest
import torch

from turnout.pieces.local.descent import Descent, StepState
from turnout.pieces.local.sgd import HeavyBall

COUNTS = np.array([[4, 4, 2, 4, 4, 2], [4, 4, 1, 0, 0, 0]])


def descent(counts, parts=1, known=False):
    mask = torch.from_numpy(np.arange(4) < counts.T[:, :, None]).float()[:, None].repeat(1, parts, 1, 1)
    return Descent(
        num_steps=np.array([6, 3]),
        start=torch.zeros(2, 3),
        lr=torch.full((6, 2, 1), 0.1),
        examples=torch.arange(6 * parts * 2 * 4).reshape(6, parts, 2, 4),
        mask=mask,
        counts=np.repeat(counts[:, :, None], parts, axis=2),
        keys=torch.zeros(6, parts, 2, dtype=torch.int64),
        first=(torch.ones(2), torch.ones(2, 3)) if known else None,
    )


def stretches(whole, row, alone=True) -> list[tuple[Any, ...]]:
    part = whole.part(
        slice(row, row + 1), StepState.of(whole, HeavyBall(), {}), torch.zeros(100, 2), torch.zeros(100), alone
    )
    return [(len(each.inputs.lr), *each.inputs[:2], each.first) for each in part.stretches]


@pytest.mark.parametrize(("row", "numbers", "widths"), [(0, [2, 1, 2, 1], [4, 2, 4, 2]), (1, [2, 1], [4, 1])])
def test_minibatches_of_one_client_have_no_padding(row, numbers, widths):
    whole = descent(COUNTS)
    found = stretches(whole, row)
    assert [number for number, *_ in found] == numbers
    assert [examples.shape[-1] for _, examples, *_ in found] == widths
    assert all(mask is None for _, _, mask, _ in found)
    rows = [own[0, 0].tolist() for _, examples, *_ in found for own in examples]
    assert rows == [whole.examples[i, 0, row, : COUNTS[row, i]].tolist() for i in range(whole.num_steps[row])]


def test_minibatches_of_several_clients_are_padded():
    ((number, _, mask, _),) = stretches(descent(COUNTS), 0, alone=False)
    assert number == 6
    assert mask.sum(dim=(1, 2, 3)).tolist() == [4, 4, 2, 4, 4, 2]


def test_unequal_minibatches_of_one_step_are_padded():
    whole = descent(COUNTS, parts=2)
    assert [number for number, *_ in stretches(whole, 0)] == [2, 1, 2, 1]
    whole.counts[0, 0, 1] = 3
    ((_, _, mask, _),) = stretches(whole, 0)
    assert mask is not None


@pytest.mark.parametrize("num_steps", [6, 1])
def test_known_first_step_is_computed_once(num_steps):
    whole = descent(COUNTS, known=True)
    whole.num_steps[:] = num_steps
    found = stretches(whole, 0)
    assert [first is not None for *_, first in found] == [True] + [False] * (len(found) - 1)
    assert sum(number for number, *_ in found) == num_steps - 1
