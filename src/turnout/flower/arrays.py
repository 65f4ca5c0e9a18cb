"""Name the numbers of a vector as the arrays of a Flower model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import torch
from torch import nn

from turnout.core.checks import ConfigurationError
from turnout.deployment.wire.format import WireError
from turnout.engine.parameters import Layout
from turnout.pieces.base.algorithm import Algorithm
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
            names = ", ".join(self.first) or "no arrays"
            raise ConfigurationError(
                f"initial_arrays: got {names}, needed floating-point numbers, as those of model.state_dict()"
            )

    @classmethod
    def of(cls, algorithm: Algorithm, record: Any) -> Arrays:
        """Return the arrays of an ``ArrayRecord``, as an algorithm divides them between server and clients.

        A personalization chooses parameters of a module: here one with layers as the names of the arrays have them. A layer
        whose weight is a vector is a normalisation, because linear layers, convolutions and embeddings have matrices.
        """
        first = dict(record.to_torch_state_dict())
        if algorithm.personal is None:
            return cls(first)
        root = nn.Module()
        for name, value in first.items():
            *path, last = name.split(".")
            module = root
            for part in path:
                if part not in dict(module.named_children()):
                    norm = last == "weight" and value.dim() == 1 and part == path[-1]
                    module.add_module(part, nn.GroupNorm(1, 1, affine=False) if norm else nn.Module())
                module = module.get_submodule(part)
            if value.is_floating_point():
                module.register_parameter(last, nn.Parameter(value))
        return cls(first, algorithm.personal.chosen(root))

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
            names = ", ".join(sorted(wrong)[:5])
            raise WireError(f"the arrays are not those that were sent, in name or shape: {names}")
        dtype = reduce(torch.promote_types, [self.first[name].dtype for name in self.layout.names], torch.float32)
        return torch.cat([arrays[name].to(dtype).reshape(-1) for name in self.layout.names])

    @cached_property
    def initial(self) -> torch.Tensor:
        """The first model, ``[P]``."""
        return self.vector(self.first)

    @property
    def shared(self) -> torch.Tensor:
        """The shared part of the first model, ``[P_u]``."""
        return self.initial[: self.layout.num_shared]

    def tensors(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return a vector as arrays in the types of the first model, whose personal part is added to a shared ``[P_u]``."""
        whole = torch.cat([vector, self.initial[len(vector) :]])
        return self.first | {name: part.to(self.first[name].dtype) for name, part in self.layout.split(whole).items()}

    def trained(self) -> Trained:
        """Return what names the numbers in a checkpoint."""
        names, personal = self.layout.names, self.initial[self.layout.num_shared :]
        fixed = {name: self.first[name] for name in self.first.keys() - {*names}}
        return Trained(self.layout, self.shared, personal, None, 0, {name: name for name in names}, fixed, None)
