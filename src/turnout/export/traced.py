"""Export a model to ONNX, or to ExecuTorch to train it on devices, which trace it with an example input."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from turnout.core.checks import ConfigurationError
from turnout.core.extras import imported


def _imported(module: str, what: str) -> Any:
    """Import a module that an export to ONNX or ExecuTorch needs."""
    return imported(module, f"exporting to {what}", f".[{what.lower()}]", module.partition(".")[0])


@contextmanager
def _exporting(model: nn.Module, what: str, instead: str = "") -> Iterator[None]:
    """Silence notes about operators of other packages and deprecation warnings, and convert the exporter's errors."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except Exception as error:  # exporters and runtimes raise many kinds, and what their dependencies raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigurationError(f"{type(model).__name__} cannot be exported to {what}: {reason}{instead}") from error
    finally:
        logger.setLevel(level)


def _example_input(model: nn.Module, shape: tuple[int, ...]) -> torch.Tensor:
    """Return two inputs of a model for examples of a shape: random numbers, or tokens 0 and 1 of a model with embeddings."""
    first = next(iter(model.parameters()), torch.zeros(()))
    generator = torch.Generator().manual_seed(0)
    if any(isinstance(module, nn.Embedding) for module in model.modules()):
        return torch.randint(0, 2, (2, *shape), generator=generator)
    return torch.randn((2, *shape), generator=generator).to(first.dtype)


_BATCHES = (2, 1, 5)  # the first is traced, the others show that the size of a batch is free


def onnx_bytes(model: nn.Module, example: torch.Tensor) -> bytes:
    """Return a model in evaluation mode as ONNX, with inputs ``input [M, ...]`` and outputs ``output [M, ...]`` for any M.

    What onnxruntime computes is compared with the model on the example and on other sizes of batches.

    Args:
        model: model on the CPU, in evaluation mode.
        example: an input of the model, ``[M, ...]`` with M >= 1.

    Raises:
        ConfigurationError: if the extra ``onnx`` is missing, the model cannot be exported, or onnxruntime computes
            other outputs.
    """
    for package in ("onnx", "onnxscript", "onnxruntime"):
        _imported(package, "ONNX")
    inputs = [example[torch.arange(size) % len(example)] for size in _BATCHES]
    with _exporting(model, "ONNX", ". Export it to safetensors"), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
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
        content = path.read_bytes()
    _compare(model, content, inputs)
    return content


def _compare(model: nn.Module, content: bytes, inputs: list[torch.Tensor]) -> None:
    """Refuse an ONNX model whose outputs differ from those of the model."""
    session = _imported("onnxruntime", "ONNX").InferenceSession(content, providers=["CPUExecutionProvider"])
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
        model: model on the CPU.
        example: inputs ``[M, ...]``.
        classes: C, of cross entropy, which is binary cross entropy of logits for a model with one output; None is the mean
            squared error of numbers to predict.

    Raises:
        ConfigurationError: if the extra ``executorch`` is missing, the model cannot be exported, or ExecuTorch computes
            other gradients than torch.
    """
    exir, training, joint = (
        _imported(module, "ExecuTorch")
        for module in ("executorch.exir", "executorch.extension.training", "torch.export.experimental")
    )
    net = _WithLoss(model.train(), classes)
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(len(example)) % classes if classes else torch.randn(net.net(example).shape, generator=generator)
    with _exporting(model, "ExecuTorch"):
        program = torch.export.export(net, (example, y), strict=True)
        content: bytes = exir.to_edge(joint._export_forward_backward(program)).to_executorch().buffer
        module = training._load_for_executorch_for_training_from_buffer(content)
        loss, gradients = float(module.forward_backward("forward", (example, y))[0]), module.named_gradients()
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
        self.net, self._classes = net, classes

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = self.net(x)
        if self._classes is None:
            loss = nn.functional.mse_loss(outputs, y)
        elif outputs.dim() == y.dim() or outputs.shape[-1] == 1:
            loss = nn.functional.binary_cross_entropy_with_logits(outputs, y.reshape(outputs.shape).to(outputs.dtype))
        else:
            loss = nn.functional.cross_entropy(outputs, y)
        return loss, outputs.detach()


def _alike(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Return whether two gradients are the same up to rounding."""
    return one is not None and other is not None and torch.allclose(one, other, rtol=1e-3, atol=1e-5)


_TO_TRAIN = 16  # examples of a minibatch of a model that is trained further


def traced(
    model: nn.Module,
    format: str,
    example: torch.Tensor | None,
    input_shape: tuple[int, ...] | None,
    classes: int | None,
) -> bytes:
    """Return a model as an ONNX or ExecuTorch file.

    Args:
        model: model on the CPU, in evaluation mode.
        format: ``"onnx"`` or ``"executorch"``.
        example: inputs ``[M, ...]``; None makes some.
        input_shape: shape of an example; None if it is unknown.
        classes: number of classes; None for numbers to predict.

    Raises:
        ConfigurationError: if neither an example nor its shape is known, and as `onnx_bytes` and `executorch_bytes`.
    """
    if example is None:
        if input_shape is None:
            raise ConfigurationError(
                "example: the run folder does not say what inputs your own module takes: write "
                "result.export(path, example=x) with inputs x of shape [M, ...]"
            )
        example = _example_input(model, input_shape)
        example = example.repeat(_TO_TRAIN // 2, *[1] * (example.dim() - 1)) if format == "executorch" else example
    return onnx_bytes(model, example) if format == "onnx" else executorch_bytes(model, example, classes)
