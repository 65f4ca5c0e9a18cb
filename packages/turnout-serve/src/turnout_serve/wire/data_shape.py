"""The shape of examples, which the first client reports to a server that has no data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter

from turnout.core.checks import ConfigurationError, counted
from turnout.data.federated import FederatedData
from turnout_serve.wire.edge import BIG, WHOLE, read

InputType = Literal["float32", "float64", "int64"]
"""Types of inputs of `turnout.data.declared`."""

MOST_NUMBERS = 1 << 18
"""Maximum size of an example, and of its labels, that a server takes from a client; an operator may declare more."""

MOST_OUTPUTS = 1 << 22
"""Maximum outputs of a model for an example: as many as there are classes for each label."""

MOST_MODEL = 1 << 28
"""Maximum bytes of a model whose shape of examples a client has reported."""

_AXES = 6
_Size = Annotated[int, Field(strict=True, ge=1, le=BIG), WHOLE]


@dataclass(frozen=True)
class DataShape:
    """Shape of the examples of a client, from which a server can build a model.

    Attributes:
        inputs: shape of an example as input of the model.
        input_type: one of `InputType`.
        target_shape: shape of the labels of an example; ``()`` is one label.
        classes: number of classes, one more than the largest label; None where targets are numbers.
        outputs: number of targets of an example; None where targets are labels.

    >>> shape = DataShape((8, 8), "float32", (), classes=10)
    >>> print(shape)
    inputs [8, 8] of float32 and 10 classes
    >>> shape.settings()
    {'inputs': [8, 8], 'input_type': 'float32', 'target_shape': [], 'classes': 10}
    """

    inputs: Annotated[tuple[_Size, ...], Field(max_length=_AXES)]
    input_type: InputType
    target_shape: Annotated[tuple[_Size, ...], Field(max_length=_AXES)] = ()
    classes: _Size | None = None
    outputs: _Size | None = None

    @classmethod
    def of(cls, data: FederatedData) -> DataShape:
        """Return the shape of data; inputs of any floating type are reported as float32, to which clients convert them."""
        y, kind = data.train.y, "float32" if data.input_dtype.is_floating_point else "int64"
        if data.num_classes is not None:
            return cls(data.input_shape, kind, tuple(y.shape[1:]), classes=data.num_classes)
        return cls(data.input_shape, kind, tuple(y.shape[1:-1]), outputs=y.shape[-1] if y.dim() > 1 else 1)

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> DataShape:
        """Validate a shape from a client.

        Raises:
            Malformed: if types are others, or sizes are beyond the limits.
        """
        return read(_OF_CLIENT.validate_python, fields)

    @property
    def num_outputs(self) -> int:
        """Outputs of a model for an example."""
        return math.prod(self.target_shape) * (self.classes or self.outputs or 1)

    def settings(self) -> dict[str, Any]:
        """Return the options of `turnout.data.declared`, which are also the fields of a message."""
        number = {"outputs": self.outputs} if self.classes is None else {"classes": self.classes}
        shapes = {"inputs": list(self.inputs), "input_type": self.input_type, "target_shape": list(self.target_shape)}
        return shapes | number

    def within(self, declared: Mapping[str, Any]) -> DataShape:
        """Return this shape with the declarations of a server: more classes, or another floating type.

        Args:
            declared: options of `turnout.data.declared`.

        Raises:
            ConfigurationError: if the two disagree.
        """
        shape, declared = self, with_numbers_of_classes(declared)
        if self.classes is not None and (classes := declared.get("classes", 0)) > self.classes:
            shape = replace(shape, classes=classes)
        if self.input_type != "int64" and declared.get("input_type") == "float64":
            shape = replace(shape, input_type="float64")
        settings = shape.settings()
        if any(settings.get(name) != value for name, value in declared.items()):
            declaration = ", ".join(f"{name}={value}" for name, value in declared.items())
            raise ConfigurationError(f"the examples of this client have {self}, and the server declares {declaration}")
        if self.input_type == "int64" and "classes" not in declared:
            raise ConfigurationError(
                f"the examples of this client have {self}: of tokens, the server has to declare the size of the vocabulary "
                "(--classes)"
            )
        return shape

    def check(self, client: DataShape) -> None:
        """Check that a client has examples of this shape, and no labels beyond its classes.

        Raises:
            ConfigurationError: if not, with both shapes.
        """
        more = self.classes is not None and client.classes is not None and client.classes > self.classes
        if more or _comparable(self) != _comparable(client):
            raise ConfigurationError(f"the examples of this client have {client}, and those of the run {self}")

    def __str__(self) -> str:
        many = "es" * (self.classes != 1)
        number = counted(self.outputs or 0, "output") if self.classes is None else f"{self.classes:,} class{many}"
        labels = f" for each label of {list(self.target_shape)}" if self.target_shape else ""
        return f"inputs {list(self.inputs)} of {self.input_type} and {number}{labels}"


def with_numbers_of_classes(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return declarations with the number of classes in place of their names."""
    classes = declared.get("classes")
    return {**declared, "classes": len(classes)} if isinstance(classes, list | tuple) else dict(declared)


def _comparable(shape: DataShape) -> DataShape:
    """Return a shape with one floating type, and without the number of classes, of which a client may have fewer."""
    kind = "int64" if shape.input_type == "int64" else "float32"
    return replace(shape, input_type=kind, classes=None if shape.classes is None else 1)


def within_limits(shape: DataShape) -> DataShape:
    """Check that a shape is within the limits for shapes from clients.

    Raises:
        ValueError: if both or neither of classes and outputs are given, or sizes are beyond the limits.
    """
    if (shape.classes is None) == (shape.outputs is None):
        raise ValueError("needed one of classes and outputs")
    sizes = math.prod(shape.inputs), shape.classes or shape.outputs or 1
    if not shape.inputs or max(sizes) > MOST_NUMBERS or shape.num_outputs > MOST_OUTPUTS:
        raise ValueError(
            f"the examples have {shape}; without a declaration of the server's operator (--inputs, --classes), one has 1 "
            f"to {MOST_NUMBERS:,} numbers and as many labels, and a model gives at most {MOST_OUTPUTS:,}"
        )
    return shape


_OF_CLIENT = TypeAdapter(Annotated[DataShape, AfterValidator(within_limits)])
