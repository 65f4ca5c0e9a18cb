"""The character LSTM."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from turnout.core.checks import ConfigurationError
from turnout.models import CharLstm
from turnout.models.lstm import Lstm

few = st.integers(1, 5)


@settings(deadline=None, max_examples=25)
@given(
    steps=few,
    rows=few,
    inputs=few,
    hidden=few,
    layers=st.integers(1, 3),
    alone=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_equals_torch_with_the_same_weights(steps, rows, inputs, hidden, layers, alone, seed):
    torch.manual_seed(seed)
    ours, theirs = Lstm(inputs, hidden, layers), nn.LSTM(inputs, hidden, layers)
    ours.alone = alone
    ours.eval()  # a gradient can be asked for in either mode
    theirs.load_state_dict(ours.state_dict())
    x, slope = torch.randn(steps, rows, inputs), torch.randn(steps, rows, hidden)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    out, (expected, _) = ours(a), theirs(b)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-6)
    (out * slope).sum().backward()
    (expected * slope).sum().backward()
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-5)
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(ours.get_parameter(name).grad, parameter.grad, rtol=1e-5, atol=1e-5)


def test_equals_torch_at_full_size():
    module = CharLstm().build((80,), 80)
    reference = nn.LSTM(8, 256, 2)
    reference.load_state_dict({k.removeprefix("lstm."): v for k, v in module.state_dict().items() if "lstm" in k})
    x = torch.randint(0, 80, (2, 80))
    with torch.no_grad():
        outputs, _ = reference(module.get_parameter("embedding.weight")[x.T])
        expected = outputs[-1] @ module.get_parameter("output.weight").T + module.get_parameter("output.bias")
        torch.testing.assert_close(module(x), expected, rtol=1e-5, atol=1e-5)


def test_initialization_equals_torch():
    torch.manual_seed(5)
    ours = Lstm(3, 4, 2)
    torch.manual_seed(5)
    theirs = nn.LSTM(3, 4, 2)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    for name, parameter in theirs.named_parameters():
        assert torch.equal(ours.get_parameter(name), parameter), name


def test_parameter_count_of_the_shakespeare_network():
    first, second = 4 * 256 * (8 + 256 + 2), 4 * 256 * (256 + 256 + 2)
    module = CharLstm().build((80,), 80)
    assert sum(p.numel() for p in module.parameters()) == 80 * 8 + first + second + 257 * 80


def test_integer_dtype_of_characters_is_irrelevant():
    module = CharLstm(embedding=2, hidden=4).build((6,), 9)
    x = torch.randint(0, 9, (3, 6))
    for dtype in (torch.uint8, torch.int32):
        assert torch.equal(module(x.to(dtype)), module(x))


def test_output_depends_on_every_character():
    module = CharLstm(embedding=4, hidden=8).build((5,), 7)
    x = torch.zeros(1, 5, dtype=torch.long)
    plain = module(x)
    for step in range(5):
        changed = x.clone()
        changed[0, step] = 3
        assert not torch.allclose(module(changed), plain, atol=1e-7)


def test_differentiates_twice():
    torch.manual_seed(0)
    module = Lstm(2, 3, 1).double()
    x = torch.randn(4, 1, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(module, (x,))


def test_forget_bias_changes_only_the_first_bias_of_the_forget_gate():
    plain, moved = CharLstm(hidden=5).build((4,), 6), CharLstm(hidden=5, forget_bias=1.5).build((4,), 6)
    for name, parameter in plain.named_parameters():
        change = moved.get_parameter(name) - parameter
        expected = torch.zeros_like(parameter)
        if "bias_ih" in name:
            expected[5:10] = 1.5
        torch.testing.assert_close(change, expected, atol=1e-6, rtol=0)


def test_forget_bias_extends_memory():
    torch.manual_seed(0)
    x = torch.zeros(20, 1, 3)
    x[0] = 1.0
    with torch.no_grad():
        for bias, lasts in ((0.0, False), (5.0, True)):
            torch.manual_seed(1)
            cell = Lstm(3, 8, 1, forget_bias=bias)
            assert ((cell(x)[-1] - cell(torch.zeros_like(x))[-1]).abs().max() > 1e-2) == lasts


def test_negative_forget_bias_is_refused():
    with pytest.raises(ConfigurationError, match=r"forget_bias: got -1\.0, needed a finite number >= 0"):
        CharLstm(forget_bias=-1.0)


@pytest.mark.parametrize("option", ["embedding", "hidden", "layers"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, (256,)])
def test_invalid_sizes_are_refused(option, value):
    with pytest.raises(ConfigurationError, match=f"{option}: got .*, needed a whole number >= 1"):
        CharLstm(**{option: value})


@pytest.mark.parametrize("shape", [(80, 8), (1, 28, 28)])
def test_non_sequence_inputs_are_refused(shape):
    with pytest.raises(ConfigurationError, match=r"input_shape of CharLstm: got .*not one-hot"):
        CharLstm().build(shape, 80)
