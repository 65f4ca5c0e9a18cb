"""Convert between the named parameters of a model and a flat vector."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from turnout.core.checks import CheckpointError, ConfigurationError


@dataclass(frozen=True)
class Layout:
    """The layout of parameters in a flat vector ``[P]``.

    Parameters are in the order of the module: first the shared ones, then the personal ones, and last the running
    statistics. The shared part, which is exchanged, is ``vector[:num_shared]``.

    Attributes:
        names: names of the parameters in the module.
        shapes: shapes of the parameters.
        num_shared: length of the shared part; equal to `num_params` without personal parameters.
        num_statistics: length of the running statistics at the end, whose steps have size 1.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    num_shared: int
    num_statistics: int = 0

    @classmethod
    def of(
        cls,
        module: nn.Module,
        personal: Callable[[str], bool] = lambda _: False,
        statistics: Collection[str] = (),
    ) -> Layout:
        """Lay out the trainable parameters of a module.

        Args:
            module: the module.
            personal: function that returns True for the names of personal parameters.
            statistics: the names of running statistics, which are personal as well.

        Raises:
            ConfigurationError: if there are no trainable parameters, if one has no shape yet (lazy layers), or if they are
                not all of one real floating-point type.
        """
        parameters = _trainable(module)
        parts = {name: 2 if name in statistics else int(personal(name)) for name in parameters}
        names = sorted(parameters, key=parts.__getitem__)  # stable: module order within each part
        shapes = tuple(tuple(parameters[name].shape) for name in names)
        num_shared, num_statistics = (sum(parameters[n].numel() for n in names if parts[n] == part) for part in (0, 2))
        return cls(tuple(names), shapes, num_shared, num_statistics)

    @property
    def sizes(self) -> list[int]:
        """The number of elements of each parameter."""
        return [math.prod(shape) for shape in self.shapes]

    @property
    def shared_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the shared parameters, in the order of ``vector[:num_shared]``."""
        ends = itertools.accumulate(self.sizes)
        return tuple(shape for shape, end in zip(self.shapes, ends, strict=True) if end <= self.num_shared)

    @property
    def num_params(self) -> int:
        """P, the length of the vector."""
        return sum(self.sizes)

    def per_element(self, values: Sequence[float] | Sequence[int]) -> torch.Tensor:
        """Return the value of each element's parameter, ``[P]``, from one value per parameter.

        >>> Layout(("weight", "bias"), ((2, 2), (2,)), num_shared=6).per_element([3, 5])
        tensor([3, 3, 3, 3, 5, 5])
        """
        return torch.tensor(values).repeat_interleave(torch.tensor(self.sizes))

    def flatten(self, module: nn.Module) -> torch.Tensor:
        """Return the present parameters of a module as a new vector ``[P]``."""
        named = dict(module.named_parameters())
        return torch.cat([named[name].detach().reshape(-1) for name in self.names])

    def split(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return views of a vector ``[P]`` as named parameters; the backward of `split` is a single `cat`."""
        parts = vector.split(self.sizes)
        return {name: part.view(shape) for name, shape, part in zip(self.names, self.shapes, parts, strict=True)}

    def load(self, module: nn.Module, vector: torch.Tensor) -> None:
        """Copy a vector ``[P]`` into the parameters of a module."""
        if vector.shape != (self.num_params,):
            raise CheckpointError(
                f"a vector of {tuple(vector.shape)} numbers does not fit a model of {self.num_params} parameters"
            )
        named = dict(module.named_parameters())
        with torch.no_grad():
            for name, value in self.split(vector).items():
                named[name].copy_(value)


def _trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trainable parameters of a module by name, all of one type."""
    trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not trainable:
        raise ConfigurationError(f"{type(module).__name__} has no trainable parameters: nothing could be learnt")
    lazy = [name for name, p in trainable.items() if isinstance(p, nn.parameter.UninitializedParameter)]
    if lazy:
        raise ConfigurationError(
            f"the parameter {lazy[0]!r} of {type(module).__name__} has no shape yet: call the model on an example first"
        )
    dtypes = {p.dtype for p in trainable.values()}
    if len(dtypes) > 1 or not all(dtype.is_floating_point for dtype in dtypes):
        raise ConfigurationError(
            f"the parameters of {type(module).__name__} have the types {sorted(map(str, dtypes))}; one flat vector "
            "needs a single floating-point one: write model.float()"
        )
    return trainable
