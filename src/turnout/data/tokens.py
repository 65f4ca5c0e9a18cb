"""Make sources from tokenized texts, for language modeling and for classification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, DataError, count, counted, known_name
from turnout.data.arrays import from_arrays, stack_targets
from turnout.data.huggingface import check_split, number_of_classes, of_test
from turnout.data.source import Source
from turnout.data.targets import IGNORED
from turnout.data.values import as_array


def from_tokens(
    dataset: Any,
    *,
    label: str | None = None,
    client_id: str | None = None,
    test: Any = None,
    max_length: int | None = None,
    num_classes: int | None = None,
    name: str = "tokens",
) -> Source:
    """Make a source from tokenized texts, such as the output of a Hugging Face tokenizer; every text is read once.

    Without `label` the task is language modeling: inputs are the tokens of a text but the last, and the target at each
    position is the next token. With `label` each text has one label. Texts are padded to int64 ``[n, T]`` with `IGNORED`
    (-100) on the right, which models such as `turnout.models.HuggingFace` treat as padding; targets that do not count in the
    loss are -100 as well.

    Args:
        dataset: a Hugging Face ``Dataset``, the output of a tokenizer, or any mapping of columns: ``input_ids``, token
            numbers of each text; ``attention_mask``, optional, 0 for padding on either side; ``labels``, optional and only
            without `label`, the tokens to predict at the positions of ``input_ids``, -100 for none.
        label: name of the column of labels; None is language modeling.
        client_id: name of the column with the client of each text; None if there is none.
        test: the official test split, with the same columns; it is pooled if it lacks that of `client_id`.
        max_length: number of tokens to which texts are truncated; None does not truncate.
        num_classes: C, for language modeling the size of the vocabulary; by default that of the label column, else one
            more than the largest.
        name: name of the data in reports.

    Raises:
        ConfigurationError: if columns are missing.
        DataError: if a text has no tokens or, in language modeling, no token to predict.

    Example:
        >>> source = from_tokens({"input_ids": [[5, 6, 7], [8, 9]]})
        >>> source.x.tolist(), source.y.tolist()
        ([[5, 6], [8, -100]], [[6, 7], [9, -100]])
    """
    if max_length is not None:
        count("max_length", max_length)
    x, y, ids = _read(dataset, label, client_id, max_length)
    test_x, test_y, test_ids = (
        (None, None, None) if test is None else _read(test, label, of_test(test, client_id), max_length)
    )
    if test_x is not None and test_y is not None:
        length = max(x.shape[1], test_x.shape[1])
        x, test_x = _longer(x, length), _longer(test_x, length)
        y, test_y = _longer(y, length), _longer(test_y, length)
    if label is not None:
        num_classes = number_of_classes(dataset, label, test, num_classes)
    parts = {"client_ids": ids, "test_x": test_x, "test_y": test_y, "test_client_ids": test_ids}
    return from_arrays(x, y, **parts, num_classes=num_classes, name=name)


def _read(
    dataset: Any, label: str | None, client_id: str | None, max_length: int | None
) -> tuple[torch.Tensor, torch.Tensor, list[Any] | None]:
    """Read inputs, targets and client ids of one split."""
    names = list(dataset) if isinstance(dataset, Mapping) and "input_ids" in dataset else check_split(dataset)
    for column in ("input_ids", label, client_id):
        if column is not None:
            known_name("column", column, names)
    texts = _cut(dataset, "input_ids", names, max_length)
    for i, text in enumerate(texts):
        if text.min(initial=0) < 0:
            raise DataError(f"text {i} has the token {text.min()}, needed numbers >= 0")
    ids = None if client_id is None else list(dataset[client_id])
    if label is not None:
        _check_lengths(texts, 1, "a token")
        return _padded(texts), stack_targets(list(dataset[label]), torch.float32), ids
    targets = texts if "labels" not in names else _cut(dataset, "labels", names, max_length)
    _check_lengths(texts, 2, "two tokens, the second of which is to be predicted")
    _check_same_lengths({"input_ids": texts, "labels": targets})
    return _padded([text[:-1] for text in texts]), _padded([target[1:] for target in targets]), ids


def _check_same_lengths(columns: Mapping[str, Sequence[np.ndarray]]) -> None:
    """Check that two columns have as many entries for each text."""
    (one, texts), (other, marks) = columns.items()
    if len(texts) != len(marks):
        raise DataError(f"{one!r} has {counted(len(texts), 'text')} and {other!r} has {len(marks)}")
    for i, (text, mark) in enumerate(zip(texts, marks, strict=True)):
        if len(text) != len(mark):
            raise DataError(f"text {i} has {len(text)} tokens in {one!r} and {len(mark)} in {other!r}")


def _cut(dataset: Any, column: str, names: Sequence[str], max_length: int | None) -> list[np.ndarray]:
    """Return the unmasked tokens of each text in a column, truncated to `max_length`."""
    texts = list(dataset[column])
    if texts and isinstance(texts[0], str):
        raise ConfigurationError(f"column {column!r} holds text: give the tokenizer's numbers")
    rows = [_row(text, f"text {i}") for i, text in enumerate(texts)]
    if "attention_mask" in names:
        marks = [_row(mask, f"the attention_mask of text {i}") for i, mask in enumerate(dataset["attention_mask"])]
        _check_same_lengths({column: rows, "attention_mask": marks})
        rows = [row[mark.astype(bool)] for row, mark in zip(rows, marks, strict=True)]
    return [row[:max_length] for row in rows]


def _row(values: Any, what: str) -> np.ndarray:
    """Return the token numbers of a text."""
    row = as_array(values, what)
    if row.ndim != 1 or (len(row) and row.dtype.kind not in "biu"):
        raise DataError(f"{what} is {row.dtype} {list(row.shape)}, needed a list of whole numbers")
    return row.astype(np.int64)


def _check_lengths(texts: Sequence[np.ndarray], least: int, needed: str) -> None:
    """Raise an error for a text that is too short."""
    short = next((i for i, text in enumerate(texts) if len(text) < least), None)
    if short is not None:
        raise DataError(f"text {short} has {len(texts[short])} tokens, needed {needed}: leave such texts out")


def _padded(rows: Sequence[np.ndarray]) -> torch.Tensor:
    """Pad rows with `IGNORED` on the right to one tensor of at least two columns, which distinguishes labels of tokens."""
    longest = max((len(row) for row in rows), default=0)
    table = np.full((len(rows), max(longest, 2)), IGNORED, dtype=np.int64)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return torch.from_numpy(table)


def _longer(values: torch.Tensor, length: int) -> torch.Tensor:
    """Pad rows with `IGNORED` on the right to a length; labels of texts are unchanged."""
    return (
        values if values.dim() == 1 else torch.nn.functional.pad(values, (0, length - values.shape[1]), value=IGNORED)
    )
