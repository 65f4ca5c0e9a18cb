"""Exported models: ONNX, refusals, and model cards."""

import importlib
import importlib.util
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load
from torch import nn

import turnout as to
from turnout import ConfigurationError, Experiment, models
from turnout.export.state import STATES

from ..tiny import classification

HAS_ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
needs_onnx = pytest.mark.skipif(not HAS_ONNX, reason=".[onnx]")
DATA = classification()


def inputs(number):
    return torch.from_numpy(np.random.default_rng(number).normal(size=(number, 16))).float()


def outputs(path, x):
    runtime = importlib.import_module("onnxruntime")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"input": x.numpy()})[0]


@needs_onnx
def test_onnx_model_equals_the_model_for_any_batch(tmp_path):
    Experiment(DATA, models.Mlp(hidden=(8,)), rounds=2).run(tmp_path / "run")
    result = to.load(tmp_path / "run")
    path = result.export(tmp_path / "model.onnx")
    for number in (1, 2, 7):
        x = inputs(number)
        np.testing.assert_allclose(outputs(path, x), result.model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


@needs_onnx
def test_personal_models_and_user_modules_are_exported(tmp_path):
    net = nn.Sequential(nn.Linear(16, 6), nn.Tanh(), nn.Linear(6, 4))
    run = Experiment(DATA, net, to.fedavg_p(personal="2.*", cohort_size=3), rounds=2)
    result = run.run(tmp_path / "run")
    path = result.export(tmp_path / "client", client=3, format="onnx")
    x = inputs(3)
    np.testing.assert_allclose(outputs(path, x), result.personal_model(3)(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    loaded = to.load(tmp_path / "run", model=net)
    with pytest.raises(
        ConfigurationError, match=r"example: the run folder does not say .* result.export\(path, example=x\)"
    ):
        loaded.export(tmp_path / "model.onnx")
    assert loaded.export(tmp_path / "model.onnx", example=inputs(2)).exists()


class Branching(nn.Module):
    """Its output depends on an `if` that tracing cannot follow."""

    def __init__(self):
        super().__init__()
        self.output = nn.Linear(16, 4)

    def forward(self, x):
        return self.output(x) if float(x.sum()) > 0 else -self.output(x)


@needs_onnx
def test_unsupported_export_is_refused_without_a_file(tmp_path, monkeypatch):
    result = Experiment(DATA, models.Logistic(), rounds=1).run()
    monkeypatch.setattr(type(result), "_with", lambda *_: Branching().eval())
    with pytest.raises(ConfigurationError, match=r"Branching cannot be exported to ONNX: .* Export it to safetensors"):
        result.export(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@needs_onnx
def test_file_with_other_results_is_not_written(tmp_path, monkeypatch):
    """The exporter is replaced by one that writes another model."""
    result, export = Experiment(DATA, models.Logistic(), rounds=1).run(), torch.onnx.export
    other = nn.Sequential(nn.Flatten(), nn.Linear(16, 4)).eval()
    monkeypatch.setattr(torch.onnx, "export", lambda _, *arguments, **options: export(other, *arguments, **options))
    with pytest.raises(ConfigurationError, match="onnxruntime computes other outputs than torch for a batch of 2"):
        result.export(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_missing_onnx_names_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    result = Experiment(DATA, models.Logistic(), rounds=1).run()
    with pytest.raises(ConfigurationError, match=r"needs onnx, .* pip install '\.\[onnx\]'"):
        result.export(tmp_path / "model.onnx")
    with pytest.raises(ConfigurationError, match="unknown format 'pickle'"):
        result.export(tmp_path / "model", format="pickle")


@pytest.mark.parametrize("ending", [".pt", ".pth"])
def test_torch_file_is_loaded_with_weights_only(tmp_path, ending):
    net = nn.Sequential(nn.Linear(16, 6), nn.Tanh(), nn.Linear(6, 4))
    result = Experiment(DATA, net, to.fedavg_p(personal="2.*", cohort_size=3), rounds=2).run()
    path = result.export(tmp_path / f"model{ending}", client=3, card=True)
    net.load_state_dict(torch.load(path, weights_only=True))
    x = inputs(3)
    assert torch.equal(net(x), result.personal_model(3)(x))
    assert f'torch.load("model{ending}", weights_only=True)' in (tmp_path / "model-card.md").read_text()
    assert path.stat().st_size < 8_000  # 130 numbers, not the storage of all clients


@pytest.mark.parametrize(
    ("name", "format", "message"),
    [
        ("m.bin", None, r"m.bin: got a name that ends in '.bin', needed one of .safetensors, .pt, .pth, .onnx, .pte: write "
         r"m.safetensors, or give the format"),
        ("m", None, "got a name that ends in 'nothing', needed one of .safetensors, .pt"),
        ("m.pt", "safetensors", "got format 'safetensors' and a name that ends in .pt, which is for 'torch': write a name "
         "that ends in .safetensors"),
        ("m.onnx", "torch", "which is for 'onnx': write a name that ends in .pt or .pth"),
        ("m.PT", "peft", "got format 'peft' and a name that ends in .pt, which is for 'torch': write a name without .pt"),
    ],
)  # fmt: skip
def test_ending_without_a_format_is_refused(tmp_path, name, format, message):
    result = Experiment(DATA, models.Logistic(), rounds=1).run()
    with pytest.raises(ConfigurationError, match=message):
        result.export(tmp_path / name, format=format)
    assert not list(tmp_path.iterdir())


def test_model_card_has_training_and_loading_instructions(tmp_path):
    Experiment(DATA, models.Logistic(), to.fedau(), rounds=2).run(tmp_path / "run")
    result = to.load(tmp_path / "run")
    result.export(tmp_path / "out" / "model.safetensors", card=True)
    text = (tmp_path / "out" / "model-card.md").read_text()
    score = result.summary()["test_accuracy"]
    for expected in (
        "# run", "| Algorithm | fedau |", "| Parameters | 68 in 2 tensors |", "| Data | tiny: 235 examples of 8 clients |",
        f"| test accuracy | {score:.4g} |", 'model.load_state_dict(load_file("model.safetensors"))', '"rounds": 2',
        "The run had no differential privacy.", "the mean of the worst tenth",
    ):  # fmt: skip
        assert expected in text
    assert '"data"' not in text, "its recipe may name files of the machine"


def test_model_card_has_the_transforms_of_inputs(tmp_path):
    """Without them, whoever loads the model gets other outputs."""
    images = to.data.from_arrays(np.zeros((20, 1, 4, 4), np.uint8), np.arange(20) % 2)
    data = replace(
        images.split(to.partition.Iid(), 2), transforms=(to.data.Normalize(0.5, 0.25), to.data.RandomCrop(4, 1))
    )
    for of, line in (
        (data, "| Transforms of inputs | Normalize(mean=0.5, std=0.25), then RandomCrop(size=4, padding=1) |"),
        (to.data.digits().split(to.partition.Iid(), 2), None),
    ):
        to.Experiment(of, to.models.Logistic(), rounds=1).run().export(tmp_path / "model.safetensors", card=True)
        text = (tmp_path / "model-card.md").read_text()
        assert line in text if line else "Transforms" not in text


def test_model_card_of_a_private_run_has_epsilon_and_no_client_figures(tmp_path):
    private = to.average_participating(also=(to.aggregation.PrivateSum(norm=1.0, noise_multiplier=1.0, cohort=8),))
    result = Experiment(DATA, models.Logistic(), private, rounds=2).run()
    result.export(tmp_path / "model.safetensors", card=True)
    text = (tmp_path / "model-card.md").read_text()
    assert f"client-level differential privacy with epsilon {result.summary()['epsilon']:.4g}" in text
    assert "train" not in text.split("## How to load it")[0].replace("trained", "")


def test_files_of_the_same_model_have_the_same_bytes():
    """Names and metadata are in one order, in which non-ASCII texts keep their length."""
    state = {"b": torch.arange(3.0), "a": torch.ones(2, 2)}
    facts = {
        "format": "pt",
        "module": "nn.Linear(2, 2)",
        "preprocessing": '{"classes": ["größer", "\\u2028"]}',
        "x": "y",
    }
    written = {STATES["safetensors"](state, facts) for _ in range(20)}
    assert len(written) == 1
    (data,) = written
    assert {name: tensor.tolist() for name, tensor in load(data).items()} == {n: t.tolist() for n, t in state.items()}
    end = 8 + int.from_bytes(data[:8], "little")
    assert json.loads(data[8:end])["__metadata__"] == facts
