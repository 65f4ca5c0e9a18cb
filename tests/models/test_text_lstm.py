"""The LSTM for texts."""

import pytest
import torch
from torch import nn

from turnout.core.checks import ConfigurationError
from turnout.models import TextLstm


def test_equals_torch_with_the_same_weights():
    module = TextLstm().build((25, 300), 2)
    reference = nn.LSTM(300, 100, 2)
    reference.load_state_dict({k.removeprefix("lstm."): v for k, v in module.state_dict().items() if "lstm" in k})
    x = torch.randn(3, 25, 300)
    with torch.no_grad():
        last = reference(x.transpose(0, 1))[0][-1]
        dense = last @ module.get_parameter("dense.weight").T + module.get_parameter("dense.bias")
        expected = dense @ module.get_parameter("output.weight").T + module.get_parameter("output.bias")
        torch.testing.assert_close(module(x), expected, rtol=1e-5, atol=1e-5)


def test_parameter_count_of_the_sent140_network():
    first, second = 4 * 100 * (300 + 100 + 2), 4 * 100 * (100 + 100 + 2)
    module = TextLstm().build((25, 300), 2)
    assert sum(p.numel() for p in module.parameters()) == first + second + 101 * 30 + 31 * 2


def test_forget_gates_start_open():
    module = TextLstm(hidden=50).build((4, 3), 2)
    for layer in (0, 1):
        bias = module.get_parameter(f"lstm.bias_ih_l{layer}")
        assert bias[50:100].mean().item() == pytest.approx(1.0, abs=0.1)
        assert bias[:50].mean().item() == pytest.approx(0.0, abs=0.1)


def test_output_depends_on_every_word():
    module = TextLstm(hidden=8, dense=4).build((5, 3), 2)
    x = torch.zeros(1, 5, 3)
    plain = module(x)
    for word in range(5):
        changed = x.clone()
        changed[0, word] = 2.0
        assert not torch.allclose(module(changed), plain, atol=1e-7)


@pytest.mark.parametrize("option", ["hidden", "layers", "dense"])
@pytest.mark.parametrize("value", [0, 1.5, (30,)])
def test_invalid_sizes_are_refused(option, value):
    with pytest.raises(ConfigurationError, match=f"{option}: got .*, needed a whole number >= 1"):
        TextLstm(**{option: value})


def test_negative_forget_bias_is_refused():
    with pytest.raises(ConfigurationError, match=r"forget_bias: got -0\.5, needed a finite number >= 0"):
        TextLstm(forget_bias=-0.5)


@pytest.mark.parametrize("shape", [(300,), (25,), (1, 28, 28)])
def test_non_text_inputs_are_refused(shape):
    with pytest.raises(
        ConfigurationError, match=r"input_shape of TextLstm: got .*\(T, D\).*averaged vectors write Mlp"
    ):
        TextLstm().build(shape, 2)
