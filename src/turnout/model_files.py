"""Write trained models to files: ONNX, ExecuTorch for training on devices, and the card that goes with a model."""

from __future__ import annotations

import json
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from turnout.core.checks import ConfigurationError
from turnout.core.display import markdown_cell
from turnout.core.extras import imported
from turnout.protocol.published import published_settings
from turnout.version import __version__

if TYPE_CHECKING:
    from turnout.record.query import History

CARD = "model-card.md"
"""The name of a model card beside an exported model."""

_BATCHES = (2, 1, 5)  # the first is traced, the others show that the size of a batch is free


def onnx_bytes(model: nn.Module, example: torch.Tensor) -> bytes:
    """Return a model in evaluation mode as ONNX, with inputs ``input [M, ...]`` and outputs ``output [M, ...]`` for any M.

    What onnxruntime computes is compared with the model on the example and on other sizes of batches.

    Args:
        model: on the CPU, in evaluation mode.
        example: an input of the model, ``[M, ...]`` with M >= 1.

    Raises:
        ConfigurationError: where the extra ``onnx`` is missing, the model cannot be exported, or onnxruntime computes other
            outputs.
    """
    for package in ("onnx", "onnxscript", "onnxruntime"):
        _needed(package)
    inputs = [example[torch.arange(size) % len(example)] for size in _BATCHES]
    with tempfile.TemporaryDirectory() as folder, _quiet():
        path = Path(folder) / "model.onnx"
        try:
            program = torch.onnx.export(
                model,
                (inputs[0],),
                dynamo=True,
                input_names=["input"],
                output_names=["output"],
                dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
                verbose=False,
            )
            assert program is not None
            program.save(path, external_data=False)
        except Exception as error:  # the exporter raises many kinds, and what its dependencies raise
            raise ConfigurationError(
                f"{type(model).__name__} cannot be exported to ONNX: {_first_line(error)}. Export it to safetensors"
            ) from error
        content = path.read_bytes()
    _compare(model, content, inputs)
    return content


def _compare(model: nn.Module, content: bytes, inputs: list[torch.Tensor]) -> None:
    """Refuse an ONNX model whose outputs differ from those of the model."""
    runtime = _needed("onnxruntime")
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for x in inputs:
        with torch.no_grad():
            expected = model(x).numpy()
        outputs = session.run(None, {"input": x.numpy()})[0]
        if outputs.shape != expected.shape or not np.allclose(outputs, expected, rtol=1e-3, atol=1e-4):
            raise ConfigurationError(
                f"{type(model).__name__}: onnxruntime computes other outputs than torch for a batch of {len(x)}, so nothing "
                "was written: export it to safetensors"
            )


def executorch_bytes(model: nn.Module, example: torch.Tensor, classes: int | None) -> bytes:
    """Return a program of ExecuTorch that computes the loss of a minibatch and its gradients, to train on a device.

    Its method ``forward`` takes inputs ``[M, ...]`` and targets ``[M]``, with M that of the example, and returns the mean
    loss and the outputs. Loss and gradients are compared with those of torch before the program is returned.

    Args:
        model: on the CPU.
        example: inputs ``[M, ...]``.
        classes: C, of cross entropy; None is the mean squared error of numbers to predict.

    Raises:
        ConfigurationError: where the extra ``executorch`` is missing, the model cannot be exported, or ExecuTorch computes
            other gradients than torch.
    """
    exir = _needed("executorch.exir", "executorch")
    training = _needed("executorch.extension.training", "executorch")
    joint = imported("torch.export.experimental", "exporting to ExecuTorch", "turnout[executorch]", "torch")
    net = _WithLoss(model.train(), classes)
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(len(example)) % classes if classes else torch.randn(net.net(example).shape, generator=generator)
    try:
        with _quiet():
            program = torch.export.export(net, (example, y), strict=True)
            content: bytes = exir.to_edge(joint._export_forward_backward(program)).to_executorch().buffer
        module = training._load_for_executorch_for_training_from_buffer(content)
        loss, gradients = float(module.forward_backward("forward", (example, y))[0]), module.named_gradients()
    except Exception as error:  # the exporter and the runtime raise many kinds
        raise ConfigurationError(
            f"{type(model).__name__} cannot be exported to ExecuTorch: {_first_line(error)}"
        ) from error
    net.zero_grad()
    expected = net(example, y)[0]
    expected.backward()
    wrong = [name for name, value in net.named_parameters() if not _alike(gradients.get(name), value.grad)]
    if wrong or not np.isclose(loss, expected.item(), rtol=1e-4):
        raise ConfigurationError(
            f"{type(model).__name__}: ExecuTorch computes another loss or other gradients than torch "
            f"({', '.join(wrong[:3])}), so nothing was written: use linear layers, convolutions with strides, ReLU and "
            "LayerNorm, no pooling"
        )
    return content


class _WithLoss(nn.Module):
    """A model whose first output is the loss of a minibatch."""

    def __init__(self, net: nn.Module, classes: int | None) -> None:
        super().__init__()
        self.net, self._loss = net, nn.functional.cross_entropy if classes else nn.functional.mse_loss

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = self.net(x)
        return self._loss(outputs, y), outputs.detach()


def _alike(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Return whether two gradients are the same up to rounding."""
    return one is not None and other is not None and torch.allclose(one, other, rtol=1e-3, atol=1e-5)


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message, or else its kind."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def example_input(model: nn.Module, shape: tuple[int, ...]) -> torch.Tensor:
    """Return two inputs of a model for examples of a shape: random numbers, or tokens 0 and 1 of a model with embeddings."""
    first = next(iter(model.parameters()), torch.zeros(()))
    generator = torch.Generator().manual_seed(0)
    if any(isinstance(module, nn.Embedding) for module in model.modules()):
        return torch.randint(0, 2, (2, *shape), generator=generator)
    return torch.randn((2, *shape), generator=generator).to(first.dtype)


def card(
    name: str,
    history: History,
    tensors: Mapping[str, torch.Tensor],
    config: Mapping[str, Any] | None,
    file: str,
    format: str,
    client: int | None = None,
) -> str:
    """Return a model card in Markdown: what was trained, on what, how well it does, and how to load it.

    Args:
        name: of the run.
        history: what the run recorded.
        tensors: the model's state dict.
        config: the run's configuration as plain values; None where it is not known.
        file: the name of the model's file.
        format: of the file, ``"safetensors"``, ``"onnx"``, ``"executorch"`` or, of a folder, ``"peft"``.
        client: whose model it is; None is the shared one.
    """
    config = config or {}
    config = published_settings(config) if history.is_private else config
    algorithm = config.get("algorithm", {}).get("name")
    facts = {
        "Algorithm": algorithm,
        "Model": _kind(config.get("model")),
        "Serves": None if client is None else f"client {client}",
        "Parameters": f"{sum(tensor.numel() for tensor in tensors.values()):,} in {len(tensors)} tensors",
        "Data": _data(config.get("data", {})),
        "Rounds": f"{history.last_round:,}",
        "Seed": config.get("seed"),
        "Written by": f"turnout {__version__}",
    }
    settings = {key: value for key, value in config.items() if key != "data"}  # which may name files of this machine
    by = markdown_cell(algorithm or "an algorithm")
    lines = ["---", "library_name: pytorch", "tags:", "- federated-learning", "- turnout", "---", ""]
    lines += [f"# {markdown_cell(name)}", "", f"A model trained by federated learning with turnout: {by}.", ""]
    lines += _table(("", ""), {key: value for key, value in facts.items() if value is not None})
    lines += ["", "## Evaluation", "", *_evaluation(history)]
    lines += ["", "## How to load it", "", *_loading(file, format)]
    lines += ["", "## Settings", "", "```json", json.dumps(settings, indent=2), "```", ""]
    return "\n".join(lines)


def _evaluation(history: History) -> list[str]:
    """Return lines on the final figures of a run."""
    summary = {key: value for key, value in history.summary().items() if isinstance(value, int | float)}
    scores = {key: value for key, value in summary.items() if key.startswith(("test_", "train_"))}
    return [
        *_table(("metric", "value"), {key.replace("_", " "): f"{value:.4g}" for key, value in scores.items()}),
        "",
        f"Means over the last tenth of the {history.last_round:,} rounds.",
        *_fairness(history),
        *_privacy(summary),
    ]


def _fairness(history: History) -> list[str]:
    """Return lines on the distribution of accuracy over clients, where it was recorded."""
    fairness = history.summary().get("fairness")
    if fairness is None:
        return []
    return [
        "",
        f"Over clients, the mean {fairness['of'].replace('_', ' ')} is {fairness['mean']:.4g}, its standard deviation "
        f"{fairness['spread']:.4g}, and the mean of the worst tenth {fairness['worst']:.4g}.",
    ]


def _privacy(summary: Mapping[str, float]) -> list[str]:
    """Return lines on the differential privacy of the run."""
    if "epsilon" not in summary:
        return ["", "The run had no differential privacy."]
    return ["", f"The run had client-level differential privacy with epsilon {summary['epsilon']:.4g}."]


def _loading(file: str, format: str) -> list[str]:
    """Return lines of Markdown with code that loads the file."""
    code = {
        "onnx": [
            "import onnxruntime",
            "",
            f'session = onnxruntime.InferenceSession("{file}")',
            '(output,) = session.run(None, {"input": x})  # x: a NumPy array [M, ...]',
        ],
        "executorch": [
            "from executorch.extension.training import _load_for_executorch_for_training_from_buffer as load",
            "",
            f'buffer = open("{file}", "rb").read()',
            "module = load(buffer)",
            'loss, outputs = module.forward_backward("forward", (x, y))',
        ],
        "peft": ["from peft import PeftModel", "", f'model = PeftModel.from_pretrained(base, "{file}")'],
        "safetensors": [
            "from safetensors.torch import load_file",
            "",
            f'model.load_state_dict(load_file("{file}"))',
        ],
    }
    return ["```python", *code[format], "```"]


def _data(data: Mapping[str, Any]) -> str | None:
    """Return a description of the training data."""
    if not data:
        return None
    known = data.get("num_examples") is not None  # it is left out of private runs
    examples = f"{data['num_examples']:,} examples of " if known else ""
    clients = f"{data['num_clients']:,} clients" if data.get("num_clients") is not None else "unknown clients"
    return f"{data.get('name')}: {examples}{clients}"


def _kind(value: Any) -> str | None:
    """Return the class name in a description."""
    return value.get("kind") if isinstance(value, Mapping) else None if value is None else str(value)


def _table(titles: tuple[str, str], rows: Mapping[str, Any]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [" | ".join(map(markdown_cell, row)) for row in rows.items()]
    return [f"| {titles[0]} | {titles[1]} |", "|---|---|", *(f"| {line} |" for line in lines)]


def _needed(package: str, extra: str = "onnx") -> Any:
    """Import a package of an extra that exports need."""
    what = {"onnx": "ONNX", "executorch": "ExecuTorch"}[extra]
    return imported(package, f"exporting to {what}", f"turnout[{extra}]", package.partition(".")[0])


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's notes about operators of other packages, and deprecation warnings within torch."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
