"""Find low-rank updates ``W + s B A`` of frozen layers, and add offsets to the frozen weights.

A layer is adapted if it has parameters called ``lora_A`` ``[r, n]`` and ``lora_B`` ``[m, r]``, or modules of these
names as in `peft`, and its output is ``W x + s B A x``. The scaling s is the layer's attribute ``scaling``, 1 by
default.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from turnout.core.adapter import BASE_OFFSET, Adapter
from turnout.core.checks import ConfigurationError
from turnout.engine.parameters import Layout

_DOWN = re.compile(r"^(?:(?P<layer>.+)\.)?lora_A(?P<rest>\..+)?$")


def adapters_of(module: nn.Module, layout: Layout) -> tuple[Adapter, ...]:
    """Return the adapters with two shared factors; none if one is of another kind (DoRA, convolutions).

    Example:
        >>> class Adapted(nn.Linear):
        ...     def __init__(self):
        ...         super().__init__(4, 3)
        ...         self.lora_A, self.lora_B = nn.Parameter(torch.ones(2, 4)), nn.Parameter(torch.zeros(3, 2))
        >>> model = nn.Sequential(Adapted())
        >>> adapters_of(model, Layout.of(model))
        (Adapter(layer='0', down=15, up=23, rank=2, inputs=4, outputs=3, scaling=1.0),)
    """
    ends = itertools.accumulate(layout.sizes, initial=0)
    positions = {name: (start, shape) for name, shape, start in zip(layout.names, layout.shapes, ends, strict=False)}
    adapters = []
    for name, (down, shape) in positions.items():
        if (match := _DOWN.match(name)) is None:
            continue
        layer = match["layer"] or ""
        up, up_shape = positions.get(f"{layer}.lora_B{match['rest'] or ''}".lstrip("."), (layout.num_params, ()))
        if max(down, up) >= layout.num_shared:
            continue
        is_dora = any("magnitude" in key for key in positions if key.startswith(layer))
        if is_dora or len(shape) != 2 or len(up_shape) != 2:
            return ()
        scaling = _scaling(module.get_submodule(layer))
        adapters.append(Adapter(layer, down, up, shape[0], shape[1], up_shape[0], scaling))
    return tuple(adapters)


def _scaling(layer: nn.Module) -> float:
    """Return the scaling s of a layer; `peft` stores it in a dictionary with an entry for each adapter."""
    scaling = getattr(layer, "scaling", 1.0)
    if isinstance(scaling, dict):
        (scaling,) = scaling.values()
    return float(scaling)


def add_offsets(
    module: nn.Module, adapters: tuple[Adapter, ...], dtype: torch.dtype, device: torch.device | None = None
) -> list[torch.Tensor]:
    """Add a buffer R ``[m, n]`` of zeros to each adapted layer, which then returns ``(W + R) x + s B A x``.

    Returns:
        The buffers.

    Raises:
        ConfigurationError: if the factors are in the model itself, and not in the layer that they adapt.
    """
    offsets = [torch.zeros(adapter.outputs, adapter.inputs, dtype=dtype, device=device) for adapter in adapters]
    for adapter, offset in zip(adapters, offsets, strict=True):
        if not adapter.layer:
            raise ConfigurationError(
                "the model holds lora_A and lora_B itself, so that it is unknown which layer they adapt: put them into a "
                "module that returns W x + s B A x"
            )
        layer: Any = module.get_submodule(adapter.layer)
        layer.register_buffer(BASE_OFFSET, offset)
        layer.register_forward_hook(_with_offset)
    return offsets


def split_offset(offset: torch.Tensor, adapters: tuple[Adapter, ...]) -> list[torch.Tensor]:
    """Split a vector of concatenated offsets into views ``[m, n]``, one for each adapter."""
    parts = offset.split([adapter.outputs * adapter.inputs for adapter in adapters])
    return [part.view(adapter.outputs, adapter.inputs) for part, adapter in zip(parts, adapters, strict=True)]


def _with_offset(layer: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
    """Add R x to the output of a layer; a forward hook."""
    offset = layer.base_offset
    if output.shape[-1] != offset.shape[0]:
        raise ConfigurationError(
            f"a {type(layer).__name__} has lora_B of {offset.shape[0]} rows and {output.shape[-1]} outputs: an adapted layer "
            "must return W x + s B A x"
        )
    # Convert the input and not R: a trace may keep the converted R, although R changes between rounds.
    return output + F.linear(inputs[0].to(offset.dtype), offset).to(output.dtype)
