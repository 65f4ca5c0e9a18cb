"""Convert between the arrays of a Flower model and a vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import torch
from torch import nn

from turnout.base.algorithm import Algorithm
from turnout.core.checks import ConfigurationError
from turnout.engine.parameters import Layout
from turnout.record.trained import Trained
from turnout_serve.wire.format import WireError


@dataclass(frozen=True, eq=False)
class Arrays:
    """The arrays of a model as a vector ``[P]``, in the smallest type that can represent all of them.

    The vector holds floating-point arrays: parameters, and running statistics of BatchNorm, which are averaged like them.
    Other arrays, such as counts of batches, keep their initial values. The shared part ``[P_u]`` comes first in the vector.

    Attributes:
        first: the initial model.
        personal: the names of arrays that do not leave their client.
    """

    first: dict[str, torch.Tensor]
    personal: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not any(value.is_floating_point() for value in self.first.values()):
            names = ", ".join(self.first) or "no arrays"
            raise ConfigurationError(
                f"initial_arrays: got {names}, needed floating-point numbers, as those of model.state_dict()"
            )
        if wrong := [name for name, value in self.first.items() if value.is_complex()]:
            raise ConfigurationError(
                f"initial_arrays: {wrong[0]} holds complex numbers, which would never be trained: send its real view, as "
                "torch.view_as_real gives it"
            )

    @classmethod
    def of(cls, algorithm: Algorithm, record: Any) -> Arrays:
        """Return the arrays of an ``ArrayRecord``, divided into a shared and a personal part by an algorithm.

        A personalization selects parameters of a module. The module is reconstructed from the names of the arrays. A layer
        whose weight is a vector is a normalization layer, because linear layers, convolutions and embeddings have matrices.
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
        """The names and shapes of the arrays in the vector."""
        shapes = {name: tuple(value.shape) for name, value in self.first.items() if value.is_floating_point()}
        names = sorted(shapes, key=self.personal.__contains__)  # stable: the model's order within each part
        num_shared = sum(self.first[name].numel() for name in names if name not in self.personal)
        return Layout(tuple(names), tuple(shapes[name] for name in names), num_shared)

    def vector(self, arrays: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the arrays of a model as a vector.

        Raises:
            WireError: if names or shapes differ from those of this model.
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
        """The initial model, ``[P]``."""
        return self.vector(self.first)

    @property
    def shared(self) -> torch.Tensor:
        """The shared part of the initial model, ``[P_u]``."""
        return self.initial[: self.layout.num_shared]

    def tensors(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return a vector as arrays in the types of the initial model, which completes a shared part ``[P_u]``."""
        whole = torch.cat([vector, self.initial[len(vector) :]])
        return self.first | {name: part.to(self.first[name].dtype) for name, part in self.layout.split(whole).items()}

    def trained(self) -> Trained:
        """Return the model and its layout for a checkpoint."""
        names, personal = self.layout.names, self.initial[self.layout.num_shared :]
        fixed = {name: self.first[name] for name in self.first.keys() - {*names}}
        return Trained(self.layout, self.shared, personal, None, 0, {name: name for name in names}, fixed, None)
