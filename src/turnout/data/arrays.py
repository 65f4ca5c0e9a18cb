"""Make sources from arrays and from torch datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from turnout.core.checks import ConfigurationError, DataError
from turnout.core.other_names import explains_arguments
from turnout.data.pixels import unit_pixels
from turnout.data.source import Source
from turnout.data.values import as_tensor, number_clients
from turnout.data.weights import as_weights


@explains_arguments
def from_arrays(
    x: Any,
    y: Any,
    *,
    client_ids: Any = None,
    test_x: Any = None,
    test_y: Any = None,
    test_client_ids: Any = None,
    weights: Any = None,
    test_weights: Any = None,
    num_classes: int | None = None,
    name: str = "arrays",
) -> Source:
    """Make a source from NumPy arrays, torch tensors or lists.

    Arrays and tensors keep their dtype (float16, bfloat16, float32, float64, integers) and are neither scaled nor copied;
    Python numbers become float32, as in torch. Models of this package take the dtype of floating-point inputs; the dtype of
    your own module has to be that of the inputs.

    Args:
        x: inputs ``[n, ...]``.
        y: targets: integer labels ``[n]``, or floating-point numbers to predict ``[n]`` or ``[n, D]``.
        client_ids: the natural client of each example, integers or strings ``[n]``.
        test_x, test_y, test_client_ids: the official test split, if there is one.
        weights, test_weights: weights of examples, numbers > 0 ``[n]``, as ``sample_weight`` of scikit-learn.
        num_classes: C; by default one more than the largest label; None for numbers to predict.
        name: name of the data in reports.

    Raises:
        DataError: if shapes disagree, labels are outside of 0..C-1, or inputs or numbers to predict contain NaN or
            infinity.

    Example:
        >>> from_arrays([[0.5], [1.5]], [2, 0]).num_classes
        3
        >>> from_arrays([[0.5], [1.5]], [0.25, -1.0]).y
        tensor([ 0.2500, -1.0000])
    """
    inputs = as_inputs(x)
    untyped = float_type(inputs)
    labels = as_targets(y, untyped)
    test_inputs = None if test_x is None else as_inputs(test_x)
    test_labels = None if test_y is None else as_targets(test_y, untyped)
    ids, test_ids, names = None, None, None
    if client_ids is not None:
        ids, test_ids, names = number_clients(client_ids, test_client_ids)
    elif test_client_ids is not None:
        raise ConfigurationError("test_client_ids need client_ids: say which client holds each training example too")
    return Source(
        name=name,
        x=inputs,
        y=labels,
        num_classes=num_classes,
        test_x=test_inputs,
        test_y=test_labels,
        client_ids=ids,
        client_names=names,
        test_client_ids=test_ids,
        weights=as_weights(weights),
        test_weights=as_weights(test_weights),
        recipe={"source": name},
    )


@explains_arguments
def from_dataset(
    dataset: Any,
    *,
    client_id: Callable[[int], Any] | Sequence[Any] | None = None,
    test: Any = None,
    num_classes: int | None = None,
    name: str = "dataset",
) -> Source:
    """Make a source from a map-style torch ``Dataset`` of (input, target) pairs, by reading every example once.

    Inputs are tensors, arrays or PIL images (converted to float32 ``[C, H, W]`` in [0, 1]) of one shape. Targets are integer
    labels, or one or more floating-point numbers to predict. Random augmentation of the dataset is applied only once; use the
    transforms of a `Source` to draw it for every minibatch.

    Args:
        dataset: has ``len()`` and ``dataset[i] -> (input, target)``.
        client_id: the natural client of example i: a function of i, or a sequence with one id per example.
        test: another such dataset, the official test split.
        num_classes: C; by default one more than the largest label; None for numbers to predict.
        name: name of the data in reports.

    Raises:
        ConfigurationError: if a dataset has no length (a stream), or an example is not a pair.
        DataError: if examples have different shapes, and as `from_arrays` does.
    """
    x, y = _read_pairs(dataset)
    test_x, test_y = (None, None) if test is None else _read_pairs(test)
    ids = [client_id(i) for i in range(len(x))] if callable(client_id) else client_id
    return from_arrays(x, y, client_ids=ids, test_x=test_x, test_y=test_y, num_classes=num_classes, name=name)


def as_inputs(values: Any) -> torch.Tensor:
    """Convert inputs to a tensor of the same dtype; booleans become float32."""
    x = _with_examples(as_tensor(values, "inputs"), "inputs")
    return x.to(torch.float32) if x.dtype == torch.bool else x


def float_type(inputs: torch.Tensor) -> torch.dtype:
    """Return the dtype of Python floats among the targets of these inputs."""
    return inputs.dtype if inputs.is_floating_point() else torch.float32


def as_targets(values: Any, untyped: torch.dtype) -> torch.Tensor:
    """Convert targets to a tensor: labels to int64, numbers to predict to their dtype, Python floats to `untyped`."""
    y = as_tensor(values, "targets", untyped)
    _with_examples(y, "targets")
    if y.is_floating_point():
        return y
    if y.dtype == torch.uint64 and (y.view(torch.int64) < 0).any():
        raise DataError("targets: got a label >= 2**63, needed classes numbered from 0")
    return y.to(torch.int64).reshape(len(y)) if y.dim() == 2 and y.shape[1] == 1 else y.to(torch.int64)


def _with_examples(values: torch.Tensor, what: str) -> torch.Tensor:
    """Return values unchanged; raise an error for a scalar, which has no examples."""
    if values.dim() == 0:
        raise DataError(f"{what}: got the number {values.item()}, needed one entry for each example")
    return values


def example_tensor(value: Any, untyped: torch.dtype, what: str) -> torch.Tensor:
    """Convert one example to a tensor, Python floats to `untyped`, and a PIL image to float32 ``[C, H, W]`` in [0, 1]."""
    if hasattr(value, "getbands") and hasattr(value, "convert"):
        return torch.from_numpy(unit_pixels(value, what))
    return as_tensor(value, what, untyped)


def stack_examples(values: Iterable[Any], untyped: torch.dtype = torch.float32, what: str = "example") -> torch.Tensor:
    """Stack examples of one shape to a tensor ``[n, ...]``, with Python floats as `untyped`; `what` names them in errors.

    Raises:
        DataError: if the shape or dtype of an example differs from that of example 0.
    """
    examples = [example_tensor(value, untyped, f"{what} {i}") for i, value in enumerate(values)]
    for i, example in enumerate(examples):
        if example.shape != examples[0].shape or example.dtype != examples[0].dtype:
            raise DataError(
                f"{what} {i} has shape {list(example.shape)} and {example.dtype}, example 0 has "
                f"{list(examples[0].shape)} and {examples[0].dtype}: resize, pad or convert them to one shape and type"
            )
    return torch.stack(examples) if examples else torch.empty(0)


def stack_targets(values: list[Any], untyped: torch.dtype, what: str = "example") -> torch.Tensor:
    """Stack one target per example: integers to labels, numbers to predict in their dtype.

    Args:
        values: Python numbers, arrays or tensors.
        untyped: dtype of Python floats.
        what: name of examples in errors.
    """
    plain = values and all(isinstance(value, int | float) for value in values)
    return as_targets(values if plain else stack_examples(values, untyped, what), untyped)


def _read_pairs(dataset: Any) -> tuple[torch.Tensor, torch.Tensor]:
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise ConfigurationError(
            f"{type(dataset).__name__} has no length or cannot be indexed, needed a map-style dataset: write loader.dataset "
            "for that of a DataLoader, or list(stream)"
        )
    plain = torch.utils.data.TensorDataset
    if type(dataset).__getitem__ is plain.__getitem__ and len(dataset.tensors) == 2:
        return dataset.tensors[0], dataset.tensors[1]
    pairs = []
    for i in range(len(dataset)):
        pair = dataset[i]
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            given, instead = type(pair).__name__, "to.data.from_arrays(x, y)"
            if isinstance(pair, tuple | list):
                given, instead = f"{given} of {len(pair)}", "to.data.from_arrays(x, y, client_ids=clients)"
            elif isinstance(pair, dict):
                given, instead = f"{given} of {', '.join(pair)}", "[(row['x'], row['y']) for row in dataset]"
            raise ConfigurationError(
                f"example {i} of the dataset is a {given}, needed an (input, target) pair: write {instead}"
            )
        pairs.append(pair)
    x = stack_examples(x for x, _ in pairs)
    return x, stack_targets([y for _, y in pairs], float_type(x))
