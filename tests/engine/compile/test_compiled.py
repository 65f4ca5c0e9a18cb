"""Traced and replayed functions."""

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.func import grad_and_value, vmap
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils._pytree import tree_leaves

from turnout.engine.compile import compiled as replay
from turnout.engine.compile import plain, torchscript
from turnout.engine.compile.backends import BACKENDS, SETTING
from turnout.engine.compile.compare import same_bits
from turnout.engine.compile.compiled import Compiled
from turnout.engine.objective import Objective
from turnout.pieces.local.descent import LaneTensors, StepInputs, Stretch
from turnout.pieces.local.local_step import LocalStep
from turnout.pieces.local.sgd import HeavyBall
from turnout.pieces.local.update import steepest

from ...logs import logged
from ..layers import convolution, normalized, recurrent


def counted():
    """A function that knows how often Python ran it."""
    calls = []

    def loss(w, x, mask):
        calls.append(1)
        z = torch.tanh(x @ w)
        return (z if mask is None else z * mask).square().sum()

    return vmap(grad_and_value(loss), in_dims=(0, 0, None)), calls


def repeat(replayed, fixed, each):
    """Repeat a function as a local step does."""
    for arguments in replayed.replay(fixed, each):
        replayed.function(*arguments)


def scripted_by(monkeypatch, build):
    """Replace TorchScript by another function, also if it is unavailable."""
    lacks_nothing = replace(BACKENDS["torchscript"], build=build, lacking=lambda: None)
    monkeypatch.setitem(BACKENDS, "torchscript", lacks_nothing)


def test_a_shape_is_traced_at_its_ninth_call_and_replayed_after_two_comparisons():
    function, calls = counted()
    replayed, ran = Compiled(function), []
    for _ in range(18):
        before = len(calls)
        replayed(torch.ones(3, 5), torch.ones(3, 7, 5), torch.ones(7))
        ran.append(len(calls) - before)
    assert ran[:8] == [1] * 8
    assert ran[8] > 1  # called for its value, and before and while it is traced
    assert ran[9:] == [1, 1] + [0] * 7


def test_replay_gives_the_same_bits_without_python(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)
    function, calls = counted()
    replayed = Compiled(function)
    ran = []
    for seed in range(5):
        torch.manual_seed(seed)
        w, x = torch.randn(3, 5), torch.randn(3, 7, 5)
        before = len(calls)
        gradient, value = replayed(w, x, None)
        ran.append(len(calls) - before)
        expected = function(w, x, None)
        assert torch.equal(gradient, expected[0])
        assert torch.equal(value, expected[1])
        assert not gradient.requires_grad
    # To see what comes out, to trace, and for the value; then twice to compare.
    assert ran == [3, 1, 1, 0, 0]


def test_untraceable_function_is_called(monkeypatch):
    """For example on a device that supports less in a trace."""
    monkeypatch.setattr(replay, "_CALLS", 0)

    def function(x):
        if _get_current_dispatch_mode() is not None:
            raise RuntimeError("this would change a captured tensor")
        return x * 2

    replayed = Compiled(function)
    with logged("cannot be traced: RuntimeError: this would change") as said:
        found = [replayed(torch.tensor([value])).tolist() for value in (2.0, 3.0, 4.0)]
    assert found == [[4.0], [6.0], [8.0]]
    assert len(said) == 1


def test_every_shape_has_its_own_trace(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)
    function, _ = counted()
    replayed = Compiled(function)
    for lanes in (3, 1, 3, 2, 1):
        for mask in (None, torch.tensor([1.0, 0.0, 1.0, 1.0])):
            w, x = torch.randn(lanes, 5), torch.randn(lanes, 4, 5)
            for _ in range(2):
                assert torch.equal(replayed(w, x, mask)[0], function(w, x, mask)[0])


def test_trace_replaces_the_function_after_a_number_of_calls():
    function, calls = counted()
    replayed, before = Compiled(function), replay._CALLS
    w, x = torch.randn(3, 5), torch.randn(3, 7, 5)
    for _ in range(before):
        replayed(w, x, None)
    assert len(calls) == before
    for _ in range(5):
        replayed(w, x, None)
    assert len(calls) == before + 5  # to see what comes out, to trace, and for the value; then twice to compare


def test_number_of_traces_is_bounded(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)
    monkeypatch.setattr(replay, "_MOST", 1)
    function, calls = counted()
    replayed = Compiled(function)
    for _ in range(3):
        replayed(torch.randn(3, 5), torch.randn(3, 7, 5), None)
    before = len(calls)
    for _ in range(3):
        replayed(torch.randn(2, 5), torch.randn(2, 7, 5), None)
    assert len(calls) == before + 3


@pytest.mark.parametrize(
    ("make", "masked"), [(convolution, True), (normalized, True), (recurrent, True), (normalized, False)]
)
def test_layers_of_every_kind_are_replayed_bit_for_bit(make, masked, monkeypatch):
    module, x = make()
    objective = Objective(module, engine="vectorized")
    params = objective.initial + 0.1 * torch.randn(3, objective.layout.num_params)
    mask = torch.tensor([[1.0, 1, 1, 1], [1, 0, 0, 0], [1, 1, 1, 0]]) if masked else None
    arguments = (params, x, torch.randint(5, (3, 4)), mask, torch.arange(3))
    eager = objective.gradient(*arguments)
    monkeypatch.setattr(replay, "_CALLS", 0)
    for _ in range(3):
        losses, gradients = objective.gradient(*arguments)
        assert torch.equal(losses, eager[0])
        assert torch.equal(gradients, eager[1])


def test_in_place_arguments_change_once_per_call(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)

    def step(total, x):
        return total.add_(x)

    replayed, total = Compiled(step, changes=(0,)), torch.zeros(3)
    for _ in range(4):
        replayed(total, torch.ones(3))
    assert total.tolist() == [4.0, 4.0, 4.0]


def test_constant_changed_in_place_is_recreated(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)

    def function(x):
        return torch.zeros_like(x).add_(x)

    replayed = Compiled(function)
    for value in (1.0, 2.0, 3.0):
        assert replayed(torch.full((2,), value)).tolist() == [value, value]


def test_random_numbers_are_not_constants(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)
    replayed = Compiled(lambda x: x + torch.rand_like(x))
    assert not torch.equal(replayed(torch.zeros(5)), replayed(torch.zeros(5)))
    assert not torch.equal(replayed(torch.zeros(5)), replayed(torch.zeros(5)))


def operations(monkeypatch, function, *arguments, changes=()):
    """The names of the operations that are replayed."""
    monkeypatch.setattr(replay, "_CALLS", 0)
    seen = []
    scripted_by(monkeypatch, lambda traced, *rest: seen.append(traced) or plain.build(traced, *rest))
    Compiled(function, changes)(*arguments)
    return [node.target.__name__ for node in seen[0].graph.nodes if node.op == "call_function"]


def test_gradient_parts_are_not_joined_before_an_update(monkeypatch):
    def step(params, a, b, lr):
        return params.addcmul_(torch.cat([a, b], dim=1), lr, value=-1)

    params, parts, lr = torch.randn(3, 7), (torch.randn(3, 5), torch.randn(3, 2)), torch.rand(3, 1)
    names = operations(monkeypatch, step, params.clone(), *parts, lr, changes=(0,))
    assert names == ["narrow.default", "addcmul_.default"] * 2
    replayed, one, other = Compiled(step, changes=(0,)), params.clone(), params.clone()
    for _ in range(3):
        step(one, *parts, lr)
        assert torch.equal(replayed(other, *parts, lr), one)
        assert torch.equal(other, one)


@pytest.mark.parametrize("part", [lambda p: p[:, :2], lambda p: p.view(-1).view(3, 4).split(2, dim=1)[0]])
def test_parameters_read_after_the_update_are_joined_first(part, monkeypatch):
    def step(params, a, lr):
        return params.addcmul_(torch.cat([a, part(params)], dim=1), lr)

    params, a, lr = torch.randn(3, 4), torch.randn(3, 2), torch.rand(3, 1)
    assert "cat.default" in operations(monkeypatch, step, params.clone(), a, lr, changes=(0,))
    monkeypatch.setenv(SETTING, "plain")
    replayed, one, other = Compiled(step, changes=(0,)), params.clone(), params.clone()
    for _ in range(3):
        assert torch.equal(replayed(other, a, lr), step(one, a, lr))


def test_gradients_joined_for_another_use_stay_joined(monkeypatch):
    def step(params, a, b, lr):
        whole = torch.cat([a, b], dim=1)
        return params.addcmul_(whole, lr), whole.norm()

    names = operations(monkeypatch, step, torch.ones(2, 3), torch.ones(2, 1), torch.ones(2, 2), torch.ones(2, 1))
    assert "cat.default" in names


def test_loop_repeats_steps_without_python(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)
    calls = []

    def step(total, scale, none, x, also_none):
        assert none is also_none is None
        calls.append(1)
        return total.add_(x * scale)

    replayed, total, expected = Compiled(step, changes=(0,)), torch.zeros(4), torch.zeros(4)
    for seed in range(4):
        x, scale, before = torch.randn(seed + 3, 4), torch.randn(4), len(calls)
        for row in x:
            expected.add_(row * scale)
        repeat(replayed, (total, scale, None), (x, None))
        assert torch.equal(total, expected)
        assert (len(calls) > before) == (seed == 0)
    assert len(replayed._traced) == 1


def test_loop_repeats_steps_with_views_of_changed_arguments(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)

    def step(params, x):
        w, b = params.split([3, 1], dim=1)
        return params.addcmul_(torch.cat([x * b, w.sum(dim=1, keepdim=True)], dim=1), b, value=-0.1)

    replayed = Compiled(step, changes=(0,))
    for seed in range(3):
        torch.manual_seed(seed)
        params, x = torch.randn(2, 4), torch.randn(5, 2, 3)
        expected = params.clone()
        for row in x:
            step(expected, row)
        repeat(replayed, (params,), (x,))
        assert torch.equal(params, expected)
    assert len(replayed._traced) == 1


def test_unused_layer_is_supported(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)

    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = nn.Linear(3, 2), nn.Linear(2, 2)

        def forward(self, x):
            return self.used(x)

    torch.manual_seed(0)
    objective = Objective(Partly(), engine="vectorized")
    step, state = LocalStep(objective, (), steepest, (), HeavyBall()), {}
    x, y, lr = torch.randn(20, 3), torch.randint(2, (20,)), torch.full((6, 4, 1), 0.1)
    params = objective.initial.repeat(4, 1)
    expected = params.clone()
    examples, keys = torch.randint(20, (6, 1, 4, 5)), torch.zeros(6, 1, 4, dtype=torch.int64)
    for i in range(6):
        before = LaneTensors(expected, objective.initial.repeat(4, 1), torch.zeros(4), x, y)
        step(before, state, StepInputs(examples[i], None, keys[i], lr[i]))
    here = LaneTensors(params, objective.initial.repeat(4, 1), torch.zeros(4), x, y)
    for rows in (slice(0, 2), slice(2, 4), slice(4, 6)):
        step.repeat(Stretch(here, state, None, StepInputs(examples[rows], None, keys[rows], lr[rows])))
    (replayed,) = objective._compiled.values()
    assert len(replayed._traced) == 1
    assert torch.equal(params, expected)


def alone(module, x, masked=False, **more):
    """Steps of one client: as a function of minibatches that takes them, and its objective."""
    objective = Objective(module, engine="one_by_one")
    step = LocalStep(objective, (), steepest, (), HeavyBall(**more))
    params, start = objective.initial[None].clone(), objective.initial[None]
    total, y = torch.zeros(1), torch.arange(len(x)) % 5
    here, state = LaneTensors(params, start, total, x, y), step.update.init(params)
    examples, keys = torch.randint(len(x), (9, 1, 1, 4)), torch.arange(9)[:, None, None]
    mask = torch.ones(9, 1, 1, 4) if masked else None
    if mask is not None:
        mask[::2, ..., 3:] = 0
    return objective, step, here, state, StepInputs(examples, mask, keys, torch.full((9, 1, 1), 0.1))


@pytest.mark.parametrize("make", [convolution, normalized, recurrent])
@pytest.mark.parametrize("more", [{}, {"momentum": 0.9, "weight_decay": 0.01}])
def test_steps_of_single_clients_are_replayed_bit_for_bit(make, more, monkeypatch):
    torch.manual_seed(0)
    module, x = make()
    x = x.flatten(0, 1)
    torch.manual_seed(1)
    _, step, expected, state, (examples, _, keys, lr) = alone(module, x, **more)
    for i in range(9):
        step(expected, state, StepInputs(examples[i], None, keys[i], lr[i]))
    torch.manual_seed(1)
    objective, step, here, state, inputs = alone(module, x, **more)
    monkeypatch.setattr(replay, "_CALLS", 0)
    for rows in (slice(0, 2), slice(2, 5), slice(5, 9)):
        step.repeat(
            Stretch(here, state, None, StepInputs(inputs.examples[rows], None, inputs.keys[rows], inputs.lr[rows]))
        )
    (replayed,) = objective._compiled.values()
    assert len(replayed._traced) == 1
    assert torch.equal(here[0], expected[0])
    assert torch.equal(here[2], expected[2])
    assert not torch.equal(here[0], here[1])


def test_traced_steps_are_no_cycle_that_keeps_the_model_in_memory(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)
    module, x = convolution()
    objective, step, here, state, inputs = alone(module, x.flatten(0, 1))
    step.repeat(Stretch(here, state, None, inputs))
    assert objective._compiled
    freed, was_enabled = weakref.ref(objective), gc.isenabled()
    gc.disable()
    try:
        del objective, step
        assert freed() is None
    finally:
        if was_enabled:
            gc.enable()


def test_padding_of_single_clients_is_removed_in_every_step(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)
    torch.manual_seed(0)
    module, x = convolution()
    objective, step, here, state, (examples, mask, keys, lr) = alone(module, x.flatten(0, 1), masked=True)
    expected = here[0].clone()
    for i, real in enumerate([3, 4] * 4 + [3]):
        before = here._replace(params=expected, total=torch.zeros(1))
        step(before, state, StepInputs(examples[i][..., :real], None, keys[i], lr[i]))
    step.repeat(Stretch(here, state, None, StepInputs(examples, mask, keys, lr)))
    assert torch.equal(here[0], expected)
    assert not objective._compiled


@pytest.mark.skipif(torchscript.lacking() is not None, reason=str(torchscript.lacking()))
def test_product_and_sum_of_a_layer_stay_one_operation(monkeypatch):
    """TorchScript would separate them after the first call, and round in between."""
    monkeypatch.setattr(replay, "_CALLS", 0)
    torch.manual_seed(0)
    bias, x, weight = torch.randn(40), torch.randn(30, 500), torch.randn(500, 40)
    replayed = Compiled(torch.addmm)
    assert not torch.equal(torch.addmm(bias, x, weight), x @ weight + bias)
    for _ in range(4):
        assert torch.equal(replayed(bias, x, weight), torch.addmm(bias, x, weight))
    assert len(replayed._known) == 1


@pytest.mark.skipif(torchscript.lacking() is not None, reason=str(torchscript.lacking()))
@pytest.mark.parametrize(
    "function",
    [
        vmap(lambda x: 1 + x.norm()),  # hands a number to an operation of tensors
        lambda x: x.expand([3, 4]).sum([]),  # an empty list
        lambda x: x.clamp(min=-float("inf")) * float("nan"),
        lambda x: (x[None, :, [1, 0]], [x.split([1, 2])[1], x.to(torch.float64)]),  # no index; lists, and a type
        lambda x: torch.native_layer_norm(x, [4], None, None, 1e-5)[0],
        lambda x: x.new_zeros(2, device=x.device) + 0.1,
        lambda x: x + torch.ones(4, dtype=torch.float64),  # a tensor outside of the arguments
    ],
)
def test_arguments_of_every_kind_are_written_as_source(function, monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)
    replayed = Compiled(function)
    for seed in range(5):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
        assert same_bits(tree_leaves(replayed(x)), tree_leaves(function(x)))
    assert list(replayed.backends.values()) == ["torchscript"]


def test_list_of_operations_with_other_bits_is_not_used(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)
    calls = []

    def other(*_):
        def differs_later(x):
            calls.append(1)
            return x * 2 if len(calls) == 1 else x * 2 + 1e-6

        return differs_later

    scripted_by(monkeypatch, other)
    replayed = Compiled(lambda x: x * 2)
    for _ in range(3):
        assert replayed(torch.ones(2)).tolist() == [2.0, 2.0]
    assert len(calls) == 2
    assert not replayed._known


def off(*_):
    """A loop that makes a small mistake."""

    def loop(stays, each):
        for row in each[0]:
            stays[0].add_(row + 1e-6)

    return loop


@pytest.mark.parametrize("instead", [off, lambda *_: None], ids=["rounds differently", "cannot be listed"])
def test_steps_are_replayed_one_by_one_if_the_loop_has_other_bits(instead, monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)
    scripted_by(monkeypatch, instead)
    calls = []

    def step(total, x):
        calls.append(1)
        return total.add_(x)

    replayed, total = Compiled(step, changes=(0,)), torch.zeros(2)
    repeat(replayed, (total,), (torch.ones(4, 2),))
    before = len(calls)
    repeat(replayed, (total,), (torch.ones(8, 2),))
    assert total.tolist() == [12.0, 12.0]
    assert len(calls) == before
    assert not replayed._known


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_bitwise_comparison(dtype):
    value = torch.tensor([0, 1, 1], dtype=dtype)
    assert same_bits([value], [value.clone()])
    assert not same_bits([value], [1 - value if dtype != torch.bool else ~value])
    assert not same_bits([value], [value[:2]])


def test_signed_zeros_differ_and_nans_are_equal():
    zero, nan = torch.tensor([0.0]), torch.tensor([float("nan")])
    assert not same_bits([zero], [-zero])
    assert same_bits([nan], [-nan])
    assert not same_bits([nan], [zero])
