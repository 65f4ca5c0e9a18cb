"""Export a model to ExecuTorch, to train it on devices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from turnout.core.checks import ConfigurationError
from turnout.core.extras import imported
from turnout.export.exporter import first_line, needed, quiet


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
