"""Frozen layers in 4 bits, with stand-ins for the functions of `bitsandbytes`."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from turnout import AdamW, ConfigurationError, Experiment, fedavg, models
from turnout.models.layers import QuantizedLinear, quantize
from turnout.simulation import Simulation

from ..tiny import classification

NF4 = torch.tensor([
    -1.0, -0.6961928, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0.0,
    0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])  # fmt: skip
"""The quantiles of a normal distribution that QLoRA lists."""


def quantize_4bit(weight, blocksize, quant_type):
    """Two numbers of 4 bits to a byte, by the nearest code of a weight over the largest one of its block."""
    assert quant_type == "nf4"
    flat = nn.functional.pad(weight.reshape(-1).float(), (0, -weight.numel() % blocksize)).reshape(-1, blocksize)
    scales = flat.abs().amax(dim=1)
    codes = (flat / scales[:, None]).nan_to_num()[..., None].sub(NF4).abs().argmin(dim=-1).reshape(-1)[: weight.numel()]
    packed = (codes[::2] << 4 | nn.functional.pad(codes[1::2], (0, codes.numel() % 2))).to(torch.uint8)
    return packed[:, None], SimpleNamespace(absmax=scales, code=NF4)


def dequantize_4bit(packed, state):
    codes = torch.stack([packed[:, 0] >> 4, packed[:, 0] & 15], dim=1).reshape(-1)[: state.shape.numel()].long()
    scales = state.absmax.repeat_interleave(state.blocksize)[: codes.numel()]
    return (state.code[codes] * scales).reshape(state.shape).to(state.dtype)


def rounded(weight):
    packed, state = quantize_4bit(weight.reshape(-1), 64, "nf4")
    state.shape, state.dtype, state.blocksize = torch.Size([weight.numel()]), torch.float32, 64
    return dequantize_4bit(packed, state).reshape(weight.shape)


@pytest.fixture
def functions(monkeypatch):
    fake = SimpleNamespace(quantize_4bit=quantize_4bit, dequantize_4bit=dequantize_4bit, QuantState=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "bitsandbytes.functional", fake)


class Adapted(nn.Linear):
    """A frozen layer with a low-rank update."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.base = nn.Linear(inputs, outputs)
        self.lora_A, self.lora_B = nn.Parameter(torch.randn(2, inputs)), nn.Parameter(torch.zeros(outputs, 2))
        for parameter in (*self.base.parameters(), self.weight, self.bias):
            parameter.requires_grad_(False)

    def forward(self, input):
        return self.base(input) + input @ self.lora_A.T @ self.lora_B.T


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(Adapted(16, 24), nn.Tanh(), Adapted(24, 10)), nn.Linear(10, 4)
        self.head.requires_grad_(False)

    def forward(self, x):
        return self.head(self.body(x))

    def get_output_embeddings(self):
        return self.head


@pytest.mark.usefixtures("functions")
def test_layer_multiplies_by_4_bit_weights_without_storing_dequantized_ones():
    torch.manual_seed(0)
    weight, bias = torch.randn(24, 17), torch.randn(24)
    layer, x = QuantizedLinear(weight, bias), torch.randn(5, 17, requires_grad=True)
    assert layer.packed.nbytes == weight.numel() / 2
    assert 0.0 < (rounded(weight) - weight).abs().mean() < 0.1
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()) or tensor, lambda t: t):
        y = layer(x)
    assert max(kept) < weight.numel()
    torch.testing.assert_close(y, x @ rounded(weight).T + bias)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], rounded(weight).sum(dim=0).expand(5, -1))


@pytest.mark.usefixtures("functions")
def test_adapters_of_a_quantized_base_train_equally_with_both_engines():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Network()
    quantize(network)
    assert [type(m) for m in network.modules()].count(QuantizedLinear) == 2
    assert isinstance(network.head, nn.Linear)
    local, ends = AdamW(lr=0.05, steps=20, batch_size=8), []
    for engine in ("vectorized", "one_by_one"):
        simulation = Simulation(Experiment(classification(), network, fedavg(local), rounds=4, engine=engine))
        first = simulation.state.params.clone()
        for _ in range(4):
            simulation.round()
        ends.append(simulation.state.params)
    torch.testing.assert_close(*ends, rtol=0, atol=1e-4)
    assert (ends[0] - first).abs().max() > 0.1


@pytest.mark.usefixtures("functions")
def test_unsupported_layers_are_refused(monkeypatch):
    with pytest.raises(ConfigurationError, match="load_in_4bit: got True, needed low-rank updates"):
        models.HuggingFace(lora=None, load_in_4bit=True)
    network = Network()
    network.requires_grad_(True)
    with pytest.raises(ConfigurationError, match="load_in_4bit: Network has no frozen linear layer"):
        quantize(network)
    monkeypatch.setitem(sys.modules, "bitsandbytes.functional", None)
    with pytest.raises(
        ConfigurationError, match="load_in_4bit needs bitsandbytes, which is not installed: pip install"
    ):
        QuantizedLinear(torch.ones(4, 4), None)


def test_rounding_equals_bitsandbytes():
    pytest.importorskip("bitsandbytes", reason="no part of dev: pip install bitsandbytes")
    weight = torch.randn(24, 17, generator=torch.Generator().manual_seed(0))
    layer = QuantizedLinear(weight, None)
    torch.testing.assert_close(layer(torch.eye(17)).T, rounded(weight), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["gpt2", "qwen2"])
def test_hugging_face_base_is_quantized_below_its_adapters(kind):
    for package in ("transformers", "peft", "bitsandbytes"):
        pytest.importorskip(package, reason="no part of dev: pip install '.[transformers]' bitsandbytes")
    config = {"model_type": kind, "vocab_size": 32, "bos_token_id": 0, "eos_token_id": 0}
    sizes = {"gpt2": {"n_layer": 1, "n_embd": 32, "n_head": 2}, "qwen2": {"num_hidden_layers": 1, "hidden_size": 32}}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 64} if kind == "qwen2" else {}
    base = config | sizes[kind] | heads
    whole, held = (
        models.HuggingFace(json.dumps(base), lora=2, dtype="bfloat16", load_in_4bit=some).build((6,), 32).eval()
        for some in (False, True)
    )
    x = torch.arange(1, 7)[None]
    assert [type(m) for m in held.modules()].count(QuantizedLinear) == {"gpt2": 4, "qwen2": 7}[kind]
    assert sum(p.numel() for p in held.parameters() if p.requires_grad) == sum(
        p.numel() for p in whole.parameters() if p.requires_grad
    )
    difference = (held(x) - whole(x)).norm() / whole(x).norm()
    assert 0.0 < difference < 0.1
