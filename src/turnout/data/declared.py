"""Declare the shape of data that only clients have, for a server."""

from __future__ import annotations

import numpy as np
import torch

from turnout.core.checks import count, known_name, refuse
from turnout.data.directory import declare
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.data.source import SOURCES

_EXAMPLES = 128
"""The number of placeholder examples, that of the largest minibatch with which a model is tried."""

_TYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64}

declare("declared", elsewhere="with clients: data.inputs=SHAPE data.classes=C say what a server needs")


@SOURCES.register
def declared(
    inputs: int | tuple[int, ...],
    classes: int | tuple[str, ...] | None = None,
    outputs: int | None = None,
    *,
    input_type: str = "float32",
    target_shape: tuple[int, ...] = (),
    num_clients: int = 1,
    categories: dict[str, tuple[str, ...]] | None = None,
    mean: dict[str, float] | None = None,
    std: dict[str, float] | None = None,
) -> FederatedData:
    """Shapes of examples that only clients have, which are sufficient for a server.

    The data contain zeros, with which a server tries the model, and no test examples. They cannot be simulated.

    Args:
        inputs: shape of an example as the model's input, such as ``(3, 32, 32)``; 64 is ``(64,)``.
        classes: number of classes (C), where targets are labels, or their names; for language modeling the size of the
            vocabulary.
        outputs: number of values to predict for an example, where targets are numbers.
        input_type: ``"float32"``, ``"float64"``, or ``"int64"`` for tokens.
        target_shape: shape of the labels of an example, ``(T,)`` for labels of T tokens; ``()`` is one label.
        num_clients: N, for pieces with options for each client (known rates, groups).
        categories, mean, std: categories of columns, and scales of numbers, that the tables of all clients have to declare
            (see `from_table`); so do names of classes. A client whose table has others is refused.

    Raises:
        ConfigurationError: if sizes are not positive, or not exactly one of `classes` and `outputs` is set.

    Example:
        >>> declared(64, classes=10)
        FederatedData('declared', 1 client, 128 examples of shape [64], 128 to 128 each, median 128, 10 classes)
    """
    shape = (inputs,) if isinstance(inputs, int) else tuple(inputs)
    for name, sizes in (("inputs", shape), ("target_shape", target_shape)):
        for size in sizes:
            count(name, size)
    known_name("input_type", input_type, _TYPES)
    count("num_clients", num_clients)
    if (classes is None) == (outputs is None):
        raise refuse(
            "classes",
            given=classes,
            needed="either classes or outputs",
            instead="Write classes=10 for ten labels, or outputs=1 for a number to predict",
        )
    n = max(_EXAMPLES, num_clients)
    names = None if classes is None or isinstance(classes, int) else tuple(classes)
    if names is not None and len(set(names)) < len(names):
        raise refuse("classes", given=names, needed="different names")
    num_classes = classes if classes is None or isinstance(classes, int) else len(classes)
    x, y = torch.zeros(n, *shape, dtype=_TYPES[input_type]), _targets(n, num_classes, outputs, target_shape)
    offsets = np.linspace(0, n, num_clients + 1).astype(np.int64)
    known: dict[str, object] = {"classes": names, "categories": categories, "mean": mean, "std": std}
    recipe = dict[str, object](source="declared") | {name: value for name, value in known.items() if value}
    return FederatedData("declared", Shards(x, y, offsets), num_classes, recipe=recipe)


def _targets(n: int, num_classes: int | None, outputs: int | None, target_shape: tuple[int, ...]) -> torch.Tensor:
    """Return placeholder targets of n examples: labels, or numbers to predict."""
    if num_classes is not None:
        count("classes", num_classes)
        # The largest label is among them, so that a model with too few outputs fails.
        labels = (num_classes - 1 - torch.arange(n)) % num_classes
        return labels.reshape(n, *(1 for _ in target_shape)).expand(n, *target_shape).contiguous()
    assert outputs is not None
    count("outputs", outputs)
    return torch.zeros(n, *target_shape, *((outputs,) if outputs > 1 else ()))
