"""Import the exporters of models, silence their notes, and make inputs for them."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

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
