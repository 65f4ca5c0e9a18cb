"""Base class of model specifications: plain options that become a module once the sizes of the data are known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from turnout.core.checks import ConfigurationError, check_seed, count, probability, refuse
from turnout.core.random import stream
from turnout.core.registry import Family, Registered
from turnout.core.system import memory_bytes

if TYPE_CHECKING:
    from turnout.data.federated import FederatedData
    from turnout.data.shards import Shards


class _WithoutNormals(TorchFunctionMode):
    """Skips normal initial values: for those of a tensor without memory torch imports its compiler, which takes 2 seconds."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Return the tensor as it is in place of calling `normal_`, `kaiming_normal_` and their like."""
        arguments = kwargs or {}
        if func.__name__.endswith("normal_"):
            return arguments["tensor"] if "tensor" in arguments else args[0]
        return func(*args, **arguments)


@dataclass(frozen=True)
class ModelSpec(Registered, ABC):
    """A model without its input and output sizes, which come from the data.

    Subclasses are frozen dataclasses of plain values and build the model in `module`. Every built-in model calls its last
    layer ``output``, so that this layer can be named, for instance as the personal part.

    Attributes:
        loss: the loss it is trained with; None for that of the experiment, cross-entropy by default.
    """

    family = Family("model", "models", ("turnout.models",), returns=nn.Module)

    loss: ClassVar[Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None] = None

    def build(self, input_shape: tuple[int, ...], num_classes: int, seed: int = 0) -> nn.Module:
        """Make the module, on the CPU, with weights that depend on `seed` alone.

        The global random numbers are neither read nor advanced.

        Args:
            input_shape: shape of one example: ``(64,)``, ``(1, 28, 28)``, or ``(80,)`` for 80 character indices.
            num_classes: C; the module maps a minibatch ``[M, *input_shape]`` to logits ``[M, C]``, or to so many numbers to
                predict.
            seed: a whole number >= 0.

        Raises:
            ConfigurationError: if sizes are not whole numbers >= 1, or do not fit the model.
        """
        sizes("input_shape", input_shape, instead="Write the shape of one example, without the minibatch axis")
        count("num_classes", num_classes)
        check_seed(seed)
        self.check_size(tuple(input_shape), num_classes, memory_bytes())
        # torch.manual_seed would also seed the accelerators, which fork_rng does not restore here.
        with torch.device("cpu"), torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(stream("model weights", seed))
            return self.module(tuple(input_shape), num_classes)

    def check_size(self, input_shape: tuple[int, ...], num_classes: int, most: float) -> None:
        """Refuse a model whose parameters need more than `most` bytes, before any memory is taken.

        Raises:
            ConfigurationError: if it needs more, with both numbers.
        """
        with torch.device("meta"), _WithoutNormals(), torch.random.fork_rng(devices=[]):  # nothing is allocated
            parameters = self.module(input_shape, num_classes).parameters()
            needed = sum(p.numel() * p.element_size() for p in parameters)
        if needed > most:
            raise ConfigurationError(
                f"{type(self).__name__}: its parameters need {needed:,} bytes, with room for {most:,}: write smaller layers"
            )

    def fits(self, data: FederatedData) -> None:
        """Refuse data that the model cannot be trained on, beyond what `build` finds in their sizes."""

    def smoothness(self, shards: Shards) -> float | None:
        """L, a Lipschitz constant of the gradients of all clients' losses, where it is known; None where it is not."""
        return None

    @abstractmethod
    def module(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Make the module from sizes that are whole numbers >= 1, drawing its weights from torch's CPU generator.

        Raises:
            ConfigurationError: if an `input_shape` does not fit the model.
        """


def sizes(name: str, value: Any, *, least: int = 1, instead: str = "") -> None:
    """Refuse what is not a tuple of at least `least` whole numbers >= 1."""
    whole = isinstance(value, tuple) and all(type(size) is int and 1 <= size < 2**31 for size in value)
    if not whole or len(value) < least:
        length = f"of length >= {least} " if least else ""
        raise refuse(name, given=value, needed=f"a tuple {length}of whole numbers >= 1 and < 2**31", instead=instead)


def images(name: str, input_shape: tuple[int, ...], poolings: int, fewer: str) -> tuple[int, int, int]:
    """Return channels, height and width of images; refuse other inputs, and images too small for so many poolings."""
    side = 2**poolings
    if len(input_shape) != 3 or min(input_shape[1:]) < side:
        raise refuse(
            f"input_shape of {name}",
            given=input_shape,
            needed=f"(channels, height, width) with height and width >= {side}",
            instead=f"Write x.transpose(0, 3, 1, 2) if colors are last, fewer {fewer}, or Mlp() for other inputs",
        )
    return input_shape


def dropout_rate(name: str, value: float) -> None:
    """Refuse a rate of dropout outside [0, 1)."""
    probability(name, value)
    if value == 1:
        raise refuse(name, given=value, needed="a probability below 1", instead="At 1 every unit is dropped, always")


DropoutRate = Annotated[float, dropout_rate]
"""A probability below 1."""
