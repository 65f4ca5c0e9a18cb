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
    statistics, or, if these are averaged, first the shared ones, then the running statistics, and last the personal ones.
    The shared part, which is exchanged, is ``vector[:num_shared]``.

    Attributes:
        names: names of the parameters in the module.
        shapes: shapes of the parameters.
        num_shared: length of the shared part; equal to `num_params` without personal parameters.
        num_statistics: length of the running statistics, whose steps have size 1.
        averages_statistics: whether running statistics are in the shared part.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    num_shared: int
    num_statistics: int = 0
    averages_statistics: bool = False

    @classmethod
    def of(
        cls,
        module: nn.Module,
        personal: Callable[[str], bool] = lambda _: False,
        statistics: Collection[str] = (),
        averages_statistics: bool = False,
    ) -> Layout:
        """Lay out the trainable parameters of a module.

        Args:
            module: the module.
            personal: function that returns True for the names of personal parameters.
            statistics: the names of running statistics.
            averages_statistics: whether these are shared; else they are personal as well.

        Raises:
            ConfigurationError: if there are no trainable parameters, if one has no shape yet (lazy layers), or if they are
                not all of one real floating-point type.
        """
        parameters = _trainable(module)
        of_statistics = 1 if averages_statistics else 3
        parts = {name: of_statistics if name in statistics else 2 * int(personal(name)) for name in parameters}
        names = sorted(parameters, key=parts.__getitem__)  # stable: module order within each part
        shapes = tuple(tuple(parameters[name].shape) for name in names)
        sizes = [sum(parameters[n].numel() for n in names if parts[n] == part) for part in range(4)]
        return cls(tuple(names), shapes, sizes[0] + sizes[1], sizes[of_statistics], averages_statistics)

    @property
    def statistics(self) -> slice:
        """The place of the running statistics in the vector."""
        end = self.num_shared if self.averages_statistics else self.num_params
        return slice(end - self.num_statistics, end)

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


def check_kind(module: nn.Module) -> None:
    """Raise an error if a parameter or buffer of a lazy layer has no shape yet, or if the module is TorchScript's."""
    # By name, because later versions of PyTorch lack the class.
    if "ScriptModule" in {base.__name__ for base in type(module).__mro__}:
        raise ConfigurationError(
            f"the model is a {type(module).__name__}, whose parameters no function can replace for each client: give the "
            "module from which torch.jit.script or torch.jit.trace made it"
        )
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        if isinstance(value, nn.UninitializedParameter | nn.UninitializedBuffer):
            raise ConfigurationError(
                f"{name!r} of {type(module).__name__} belongs to a lazy layer and has no shape yet: call the model on an "
                "example first, model(x), or write the layer with its number of inputs"
            )


def _trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trainable parameters of a module by name, all of one type."""
    trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not trainable:
        raise ConfigurationError(f"{type(module).__name__} has no trainable parameters: nothing could be learned")
    check_kind(module)
    dtypes = {p.dtype for p in trainable.values()}
    if len(dtypes) > 1 or not all(dtype.is_floating_point for dtype in dtypes):
        raise ConfigurationError(
            f"the parameters of {type(module).__name__} have the types {sorted(map(str, dtypes))}; one flat vector "
            "needs a single floating-point one: write model.float()"
        )
    return trainable
