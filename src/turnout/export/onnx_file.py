"""Export a model to ONNX."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

from turnout.core.checks import ConfigurationError
from turnout.export.exporter import first_line, needed, quiet

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
