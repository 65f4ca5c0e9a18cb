"""Simplified traces have fewer copies and views, and give the same values."""

import pytest
import torch
from torch._ops import OpOverload

from turnout.engine.compile.passes import simplify
from turnout.engine.compile.tracer import record
from turnout.engine.objective import Objective

from ..layers import convolution

_aten = torch.ops.aten


def transposed(x):
    return x.t().clone(memory_format=torch.contiguous_format)


def simplified(function, *arguments):
    """The simplified operations of a function, and the names of those that remain."""
    traced = record(function, [argument.clone() for argument in arguments])
    simplify(traced)
    return traced, [node.target._opname for node in traced.graph.nodes if isinstance(node.target, OpOverload)]


def check(function, names):
    x = torch.arange(6.0).view(2, 3)
    traced, found = simplified(function, x)
    assert found == names
    one, other = x.clone(), x.clone()
    values, expected = traced.module()(one), function(other)
    for value, right in zip([values, one], [expected, other], strict=True):
        torch.testing.assert_close(value, right, rtol=0, atol=0)


def test_equal_copies_are_shared():
    check(lambda x: transposed(x).sin() + transposed(x).cos(), ["t", "clone", "sin", "cos", "add"])


def test_views_of_equal_copies_are_shared():
    check(
        lambda x: _aten._unsafe_view(transposed(x), [6]) * _aten._unsafe_view(transposed(x), [6]),
        ["t", "clone", "_unsafe_view", "mul"],
    )


def test_copies_of_different_layouts_are_kept():
    def function(x):
        return x.clone(memory_format=torch.contiguous_format) + x.clone(memory_format=torch.preserve_format)

    check(function, ["clone", "clone", "add"])


def test_copies_from_before_and_after_a_change_are_kept():
    def function(x):
        before = x.clone()
        x.add_(1)
        return before * x.clone()

    check(function, ["clone", "add_", "clone", "mul"])


@pytest.mark.parametrize("first", [True, False])
def test_copies_that_change_are_kept(first):
    def function(x):
        copies = [x.clone(), x.clone()]
        copies[first].view(6)[:2].mul_(5)
        return copies[0] - copies[1]

    check(function, ["clone", "clone", "view", "slice", "mul_", "sub"])


def test_copies_that_are_returned_are_kept():
    traced, found = simplified(lambda x: [x.clone(), x.clone()], torch.ones(2, 3))
    assert found == ["clone", "clone"]
    one, other = traced.module()(torch.ones(2, 3))
    assert one.data_ptr() != other.data_ptr()


def test_results_that_are_computed_again_are_kept():
    check(lambda x: x.sin().clone() + x.sin().clone(), ["sin", "clone", "sin", "clone", "add"])


def test_views_that_change_nothing_are_left_out():
    check(lambda x: x.view(2, 3).expand(2, 3).permute(0, 1).t().transpose(0, 1).sin(), ["sin"])


def test_views_of_other_places_are_kept():
    check(lambda x: x[:1] - x[1:], ["slice", "slice", "sub"])


def test_views_see_changes():
    def function(x):
        before = x.t()
        x.mul_(2)
        return before.t() + x.t().t()

    check(function, ["mul_", "add"])


def test_no_layout_of_a_convolution_is_copied_twice():
    module, x = convolution()
    objective, y = Objective(module, engine="vectorized"), torch.randint(5, (3, 4))

    def gradient(params, x, keys):
        return objective.gradient(params, x, y, None, keys, replay=False)

    arguments = [objective.initial.repeat(3, 1), x, torch.arange(3)]
    expected = gradient(*arguments)
    before = record(gradient, arguments)
    traced, _ = simplified(gradient, *arguments)
    assert all(map(torch.equal, traced.module()(*arguments), expected))
    copies = [[node for node in of.graph.nodes if node.target is _aten.clone.default] for of in (before, traced)]
    assert len(copies[0]) > len(copies[1])
    assert len({(node.args, *node.kwargs.items()) for node in copies[1]}) == len(copies[1])
