"""Export a model in a format that needs an example input."""

from __future__ import annotations

import torch
from torch import nn

from turnout.core.checks import ConfigurationError
from turnout.export.executorch_file import executorch_bytes
from turnout.export.exporter import example_input
from turnout.export.onnx_file import onnx_bytes

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
        example = example_input(model, input_shape)
        example = example.repeat(_TO_TRAIN // 2, *[1] * (example.dim() - 1)) if format == "executorch" else example
    return onnx_bytes(model, example) if format == "onnx" else executorch_bytes(model, example, classes)
