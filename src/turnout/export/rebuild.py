"""Rebuild the ready-made model of a run folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import nn

from turnout import models
from turnout.core.numerics import default_settings
from turnout.record import checkpoint, contents
from turnout.record.trained import Trained


def builder(folder: Path, trained: Trained) -> Callable[[], nn.Module] | None:
    """Return a function that builds a ready-made model by its specification, before its parameters are loaded."""
    if (spec := trained.spec) is None:
        return None
    file = folder / checkpoint.FILE
    with contents.restoring(file, "model.spec"):
        made = models.model(spec["name"], **spec["options"])

    @default_settings()
    def build() -> nn.Module:
        with contents.restoring(file, "model.spec"):
            module = made.build(tuple(spec["input_shape"]), spec["num_outputs"], spec.get("seed", 0))
            shapes = dict(zip(trained.layout.names, trained.layout.shapes, strict=True))
            for name, tensor in module.state_dict().items():
                if name in trained.names and tuple(tensor.shape) != shapes[trained.names[name]]:
                    raise ValueError(
                        f"{name} would have shape {tuple(tensor.shape)}, not {shapes[trained.names[name]]}"
                    )
        return module

    return build
