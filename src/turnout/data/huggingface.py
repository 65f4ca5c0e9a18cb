"""Sources from Hugging Face datasets."""

from __future__ import annotations

from typing import Any

import torch

from turnout.core.checks import ConfigurationError, DataError, known_name
from turnout.data.arrays import from_arrays, stack_examples, stack_targets
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
    """Return a source from a loaded Hugging Face ``datasets.Dataset``; every example is read once, now.

    Images become float32 ``[n, C, H, W]`` in [0, 1]; lists of numbers (token indices, features) must be of one length, and
    keep the type that the columns declare.

    Args:
        dataset: one split, e.g. ``datasets.load_dataset("ylecun/mnist", split="train")``.
        input, label: names of the columns of inputs and of targets: whole-number labels, or numbers to predict.
        client_id: name of the column that says whose example it is, e.g. ``"writer_id"``; None if there is none.
        test: another split with the same columns, the official test split; without that of `client_id` it is nobody's.
        num_classes: C; by default that of the label column, where it says so, else one more than the largest label; none
            for numbers to predict.
        name: what reports call the data.

    Raises:
        ConfigurationError: if it is not one split held in memory or on disk, or lacks a column.
        DataError: if inputs are texts or differ in shape, or targets are no numbers.
    """
    x, y, ids = _columns(dataset, input, label, client_id)
    test_x, test_y, test_ids = (
        (None, None, None) if test is None else _columns(test, input, label, of_test(test, client_id))
    )
    if num_classes is None:
        num_classes = getattr((getattr(dataset, "features", None) or {}).get(label), "num_classes", None)
    parts = {"client_ids": ids, "test_x": test_x, "test_y": test_y, "test_client_ids": test_ids}
    return from_arrays(x, y, **parts, num_classes=num_classes, name=name)


def _columns(
    dataset: Any, input: str, label: str, client_id: str | None
) -> tuple[torch.Tensor, torch.Tensor, list[Any] | None]:
    """Read the columns of inputs, labels and client ids of one split."""
    names = check_split(dataset)
    for column in (input, label, *([client_id] if client_id is not None else [])):
        known_name("column", column, names)
    inputs, labels = list(dataset[input]), list(dataset[label])
    for part, values in ((input, inputs), (label, labels)):
        if values and isinstance(values[0], str):
            hint = (
                "tokenise it into indices, or use to.data.from_tokens,"
                if part == input
                else f"use dataset.class_encode_column({label!r})"
            )
            raise DataError(f"column {part!r} holds text: {hint} first")
    x = stack_examples(inputs, _declared(dataset, input) or torch.float32)
    y = stack_targets(labels, x, _declared(dataset, label))
    return x, y, None if client_id is None else list(dataset[client_id])


def of_test(test: Any, client_id: str | None) -> str | None:
    """Return the column that says whose a test example is; None where a test has no such column."""
    return client_id if client_id in getattr(test, "column_names", test) else None


def check_split(dataset: Any) -> list[str]:
    """Return the columns' names; refuse what is not one split of a Hugging Face data set, in memory or on disk."""
    if isinstance(dataset, dict):
        splits = ", ".join(map(repr, dataset))
        raise ConfigurationError(f"this is a dictionary of splits ({splits}): give one, e.g. dataset['train']")
    if not hasattr(dataset, "column_names") or not hasattr(dataset, "__len__"):
        raise ConfigurationError(
            f"{type(dataset).__name__} is no Hugging Face dataset with a length: load it with streaming=False"
        )
    return list(dataset.column_names)


def _declared(dataset: Any, column: str) -> torch.dtype | None:
    """Return the floating type that a column declares, also one of lists; None where it declares none."""
    feature = (getattr(dataset, "features", None) or {}).get(column)
    while (inner := getattr(feature, "feature", None)) is not None:
        feature = inner
    name = getattr(feature, "dtype", None)
    return {"float16": torch.float16, "float32": torch.float32, "float64": torch.float64}.get(str(name))
