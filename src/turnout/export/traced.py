"""Export a model in a format that needs an example input: ONNX, or ExecuTorch for training on devices."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from turnout.core.checks import ConfigurationError
from turnout.core.extras import imported


def needed(package: str, extra: str = "onnx") -> Any:
    """Import a package of an extra that exports need."""
    what = {"onnx": "ONNX", "executorch": "ExecuTorch"}[extra]
    return imported(package, f"exporting to {what}", f".[{extra}]", package.partition(".")[0])


@contextmanager
def quiet() -> Iterator[None]:
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


def first_line(error: Exception) -> str:
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
    exir = needed("executorch.exir", "executorch")
    training = needed("executorch.extension.training", "executorch")
    joint = imported("torch.export.experimental", "exporting to ExecuTorch", ".[executorch]", "torch")
    net = _WithLoss(model.train(), classes)
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(len(example)) % classes if classes else torch.randn(net.net(example).shape, generator=generator)
    try:
        with quiet():
            program = torch.export.export(net, (example, y), strict=True)
            content: bytes = exir.to_edge(joint._export_forward_backward(program)).to_executorch().buffer
        module = training._load_for_executorch_for_training_from_buffer(content)
        loss, gradients = float(module.forward_backward("forward", (example, y))[0]), module.named_gradients()
    except Exception as error:  # the exporter and the runtime raise many kinds
        raise ConfigurationError(
            f"{type(model).__name__} cannot be exported to ExecuTorch: {first_line(error)}"
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
        self.net, self._loss = net, _loss_of(classes)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = self.net(x)
        return self._loss(outputs, y), outputs.detach()


def _loss_of(classes: int | None) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the loss of outputs and targets of a minibatch."""
    if classes is None:
        return nn.functional.mse_loss

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if outputs.dim() == targets.dim() or outputs.shape[-1] == 1:
            labels = targets.reshape(outputs.shape).to(outputs.dtype)
            return nn.functional.binary_cross_entropy_with_logits(outputs, labels)
        return nn.functional.cross_entropy(outputs, targets)

    return loss


def _alike(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Return whether two gradients are the same up to rounding."""
    return one is not None and other is not None and torch.allclose(one, other, rtol=1e-3, atol=1e-5)


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
        needed(package)
    inputs = [example[torch.arange(size) % len(example)] for size in _BATCHES]
    with tempfile.TemporaryDirectory() as folder, quiet():
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
                f"{type(model).__name__} cannot be exported to ONNX: {first_line(error)}. Export it to safetensors"
            ) from error
        content = path.read_bytes()
    _compare(model, content, inputs)
    return content


def _compare(model: nn.Module, content: bytes, inputs: list[torch.Tensor]) -> None:
    """Refuse an ONNX model whose outputs differ from those of the model."""
    runtime = needed("onnxruntime")
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
                "example: the run folder does not say what inputs a module of one's own takes: write "
                "result.export(path, example=x) with inputs x of shape [M, ...]"
            )
        example = example_input(model, input_shape)
        example = example.repeat(_TO_TRAIN // 2, *[1] * (example.dim() - 1)) if format == "executorch" else example
    return onnx_bytes(model, example) if format == "onnx" else executorch_bytes(model, example, classes)
