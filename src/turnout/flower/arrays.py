"""Name the numbers of a vector as the arrays of a Flower model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

from turnout.core.checks import ConfigurationError
from turnout.deployment.wire.format import WireError, encode
from turnout.engine.parameters import Layout
from turnout.pieces.base import Personalization
from turnout.record.storage import replace_files
from turnout.simulation.trained import Trained


@dataclass(frozen=True, eq=False)
class Arrays:
    """The arrays of a model as a vector ``[P]``, in the smallest type that holds all of them.

    Floating-point arrays are in the vector: parameters, and running statistics of BatchNorm, which are averaged like them.
    Others, such as counts of batches, stay as they were. The vector begins with what is shared, ``[P_u]``.

    Attributes:
        first: the first model.
        personal: names of arrays that stay with their client.
    """

    first: dict[str, torch.Tensor]
    personal: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not any(value.is_floating_point() for value in self.first.values()):
            given = ", ".join(self.first) or "no arrays"
            raise ConfigurationError(
                f"initial_arrays: got {given}, needed floating-point numbers, as those of model.state_dict()"
            )

    @classmethod
    def of(cls, first: dict[str, torch.Tensor], personal: Personalization | None) -> Arrays:
        """Return the arrays of a first model, of which a personalization keeps some with every client."""
        return cls(first) if personal is None else cls(first, personal.chosen(_module(first)))

    @classmethod
    def of_run(cls, folder: Path, first: dict[str, torch.Tensor], personal: Personalization | None) -> Arrays:
        """Return the first model of the run in a folder: that in its file, or this one, which is written there."""
        path, arrays = folder / "initial.safetensors", cls.of(first, personal)
        if not path.exists():
            replace_files({path: lambda part: part.write_bytes(encode(first))})
            return arrays
        recorded = load_file(path)
        try:
            arrays.vector(recorded)
        except WireError as error:
            raise ConfigurationError(f"initial_arrays: {folder} holds a run of another model ({error})") from None
        return cls({name: recorded[name] for name in first}, arrays.personal)  # a file does not keep the order

    @cached_property
    def layout(self) -> Layout:
        """Which stretch of the vector is which array."""
        shapes = {name: tuple(value.shape) for name, value in self.first.items() if value.is_floating_point()}
        names = sorted(shapes, key=self.personal.__contains__)  # stable: the model's order within each part
        num_shared = sum(self.first[name].numel() for name in names if name not in self.personal)
        return Layout(tuple(names), tuple(shapes[name] for name in names), num_shared)

    def vector(self, arrays: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return arrays of this model as a vector.

        Raises:
            WireError: where names or shapes are others.
        """
        wrong = self.first.keys() ^ arrays.keys()
        wrong |= {name for name in arrays.keys() - wrong if arrays[name].shape != self.first[name].shape}
        if wrong:
            given = ", ".join(sorted(wrong)[:5])
            raise WireError(f"the arrays are not those that were sent, in name or shape: {given}")
        names = self.layout.names
        dtype = reduce(torch.promote_types, [self.first[name].dtype for name in names], torch.float32)
        return torch.cat([arrays[name].to(dtype).reshape(-1) for name in names])

    def tensors(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return a vector as arrays, in the types of the first model, whose personal ones stand in where it has none."""
        if len(vector) < self.layout.num_params:
            vector = torch.cat([vector, self.vector(self.first)[len(vector) :]])
        return self.first | {name: part.to(self.first[name].dtype) for name, part in self.layout.split(vector).items()}

    def trained(self) -> Trained:
        """Return what names the numbers in a checkpoint."""
        layout, vector = self.layout, self.vector(self.first)
        fixed = {name: value for name, value in self.first.items() if name not in layout.names}
        names, num_shared = {name: name for name in layout.names}, layout.num_shared
        return Trained(layout, vector[:num_shared], vector[num_shared:], None, 0, names, fixed, None)


def _module(arrays: Mapping[str, torch.Tensor]) -> nn.Module:
    """Return a module with these parameters, in layers as their names have them.

    A layer whose weight is a vector is a normalisation: those of linear layers, convolutions and embeddings are matrices.
    """
    root = nn.Module()
    for name, value in arrays.items():
        *path, last = name.split(".")
        module = root
        for part in path:
            if part not in dict(module.named_children()):
                norm = last == "weight" and value.dim() == 1 and part == path[-1]
                module.add_module(part, nn.GroupNorm(1, 1, affine=False) if norm else nn.Module())
            module = module.get_submodule(part)
        if value.is_floating_point():
            module.register_parameter(last, nn.Parameter(value))
    return root
