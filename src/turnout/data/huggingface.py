"""Make sources from Hugging Face datasets."""

from __future__ import annotations

from typing import Any

import torch

from turnout.core.checks import ConfigurationError, DataError, known_name
from turnout.data.arrays import float_type, from_arrays, stack_examples, stack_targets
from turnout.data.names import note_classes
from turnout.data.source import Source


def from_huggingface(
    dataset: Any,
    *,
    input: str = "image",
    label: str = "label",
    client_id: str | None = None,
    test: Any = None,
    num_classes: int | None = None,
    name: str = "huggingface",
) -> Source:
    """Make a source from a loaded Hugging Face ``datasets.Dataset``, by reading every example once.

    Images become float32 ``[n, C, H, W]`` in [0, 1]; lists of numbers (token indices, features) must have one length, and
    keep the type of the column.

    Args:
        dataset: one split, such as ``datasets.load_dataset("ylecun/mnist", split="train")``.
        input, label: names of the columns of inputs and of targets: integer labels, or numbers to predict.
        client_id: name of the column with the client of each example, such as ``"writer_id"``; None if there is none.
        test: the official test split, with the same columns; it is pooled if it lacks that of `client_id`.
        num_classes: C; by default that of the label column, else one more than the largest label; None for numbers to
            predict.
        name: name of the data in reports.

    Raises:
        ConfigurationError: if an object is not one split in memory or on disk, or lacks a column.
        DataError: if inputs are texts or differ in shape, or targets are not numbers.
    """
    x, y, ids = _columns(dataset, input, label, client_id)
    test_x, test_y, test_ids = (
        (None, None, None) if test is None else _columns(test, input, label, of_test(test, client_id))
    )
    num_classes = number_of_classes(dataset, label, test, num_classes)
    parts = {"client_ids": ids, "test_x": test_x, "test_y": test_y, "test_client_ids": test_ids}
    return from_arrays(x, y, **parts, num_classes=num_classes, name=name)


def _columns(
    dataset: Any, input: str, label: str, client_id: str | None
) -> tuple[torch.Tensor, torch.Tensor, list[Any] | None]:
    """Read the columns of inputs, labels and client ids of one split."""
    names = check_split(dataset)
    for column in (input, label, *([client_id] if client_id is not None else [])):
        known_name("column", column, names)
    formatted = getattr(dataset, "format", {}).get("type") not in (None, "custom")  # by a library, not by the user
    if formatted and type(feature_of(dataset, input)).__name__ == "Image":
        dataset = dataset.with_format(None)  # formats of arrays have levels, and NumPy's the colors last
    inputs, labels = list(dataset[input]), list(dataset[label])
    for part, values in ((input, inputs), (label, labels)):
        if values and isinstance(values[0], str):
            hint = (
                "tokenize it into indices, or use to.data.from_tokens,"
                if part == input
                else f"use dataset.class_encode_column({label!r})"
            )
            raise DataError(f"column {part!r} holds text: {hint} first")
    kind, of_labels = _declared(dataset, input), _declared(dataset, label)
    untyped = kind if kind is not None and kind.is_floating_point else torch.float32
    x = stack_examples(inputs, untyped, f"column {input!r}, example")
    if kind is not None and not kind.is_floating_point and not x.is_floating_point():
        x = x.to(kind)  # Python integers have no type
    untyped = of_labels if of_labels is not None and of_labels.is_floating_point else float_type(x)
    y = stack_targets(labels, untyped, f"column {label!r}, example")
    return x, y, None if client_id is None else list(dataset[client_id])


def feature_of(dataset: Any, column: str) -> Any:
    """Return what a data set of Hugging Face declares of a column; None if it declares nothing."""
    return (getattr(dataset, "features", None) or {}).get(column)


def number_of_classes(dataset: Any, label: str, test: Any, given: int | None) -> int | None:
    """Return the given number of classes, by default that which a column of labels declares; None if it declares none.

    Raises:
        DataError: if the test declares other classes, or the same in another order, by which its labels are numbered.
    """
    feature, other = (feature_of(part, label) for part in (dataset, test))
    names, of_test = (getattr(one, "names", None) for one in (feature, other))
    if names and of_test and names != of_test:
        raise DataError(
            f"column {label!r} has the classes {', '.join(names)}, and that of the test {', '.join(of_test)}: write "
            f"test.align_labels_with_mapping({{name: i for i, name in enumerate(dataset.features[{label!r}].names)}}, "
            f"{label!r})"
        )
    if given is not None:
        return given
    note_classes(f"column {label!r}", names)
    return getattr(feature, "num_classes", None)


def of_test(test: Any, client_id: str | None) -> str | None:
    """Return the column with the client of each test example; None if the test has no such column."""
    return client_id if client_id in getattr(test, "column_names", test) else None


def check_split(dataset: Any) -> list[str]:
    """Return the names of the columns; raise an error for an object that is not one split in memory or on disk."""
    if isinstance(dataset, dict):
        splits = ", ".join(map(repr, dataset))
        raise ConfigurationError(f"this is a dictionary of splits ({splits}): give one, e.g. dataset['train']")
    if not hasattr(dataset, "column_names") or not hasattr(dataset, "__len__"):
        raise ConfigurationError(
            f"{type(dataset).__name__} is no Hugging Face dataset with a length: load it with streaming=False"
        )
    return list(dataset.column_names)


def _declared(dataset: Any, column: str) -> torch.dtype | None:
    """Return the dtype of a column or of the items of its lists; None for others than torch's numbers."""
    feature = feature_of(dataset, column)
    while (inner := getattr(feature, "feature", None)) is not None:
        feature = inner
    return _TYPES.get(str(getattr(feature, "dtype", None)))


_TYPES = {
    name: getattr(torch, name) for name in ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
}
