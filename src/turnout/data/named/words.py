"""Split texts into words, read word vectors in GloVe's text format, and look them up: an embedding that is not trained."""

from __future__ import annotations

import os
import re
from collections.abc import Container
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from turnout.core.checks import DataError
from turnout.data.directory import data_directory
from turnout.data.reading import UNPACKING_ERRORS, open_unpacked
from turnout.data.transforms import Transform

_LONGEST_LINE = 1 << 20
"""The limit of bytes per line, for files that are not in this format."""

_NEEDED = "needed a file in GloVe's text format, a word and its numbers in each line"

_WORD = re.compile(r"[\w']+|[.,!?;]")


def split_words(text: str) -> list[str]:
    """Split a text into words as in LEAF: runs of letters, digits, ``_`` and ``'``, and each of ``. , ! ? ;``."""
    return _WORD.findall(text)


def locate_vectors(file: str | os.PathLike[str], directory: str | os.PathLike[str] | None = None) -> Path:
    """Locate a file of word vectors by its path, or in the data directory or its folder ``GloVe``.

    Raises:
        DataError: if it is not there, with the searched paths.
    """
    root = data_directory(directory)
    paths = [Path(file).expanduser(), root / "GloVe" / file, root / file]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise DataError(
            f"word vectors: no file {', '.join(map(str, dict.fromkeys(paths)))}. Unpack glove.6B.zip from "
            f"nlp.stanford.edu/projects/glove into {root / 'GloVe'}, or write vectors=FILE"
        )
    return path


def read_vectors(path: Path, words: Container[str]) -> dict[str, np.ndarray]:
    """Read the vectors, float32 ``[D]``, of words from a file in GloVe's text format; words without a vector are left out.

    A line is a word and its D numbers, separated by blanks; D is that of the first line. Only the lines of `words` are
    parsed, because such files have a million others. Words that contain blanks are skipped.

    Raises:
        DataError: if a file cannot be read, a line is not UTF-8, or a vector has too few or invalid numbers.
    """
    vectors: dict[str, np.ndarray] = {}
    dimension = None
    try:
        # Read as bytes, whose lines end only at line feeds: some words contain other line separators of Unicode.
        with open_unpacked(path) as file:
            for number, content in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), start=1):
                line = _line(content, f"{path}: line {number}")
                if dimension is None:
                    dimension = len(line.split()) - 1
                word, _, numbers = line.rstrip("\r\n").partition(" ")
                if word not in words or word in vectors:
                    continue
                values = numbers.split()
                if len(values) <= dimension:
                    vectors[word] = _vector(values, dimension, f"{path}: line {number}, {word!r}")
    except UNPACKING_ERRORS as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    return vectors


def _line(content: bytes, where: str) -> str:
    """Decode a line."""
    needed = f"{_NEEDED}, in UTF-8"
    if len(content) == _LONGEST_LINE:
        raise DataError(f"{where}: it has {_LONGEST_LINE:,} bytes or more; {needed}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: {error}; {needed}") from error


def _vector(values: list[str], dimension: int, where: str) -> np.ndarray:
    if len(values) < dimension or not values:
        raise DataError(
            f"{where}: found {len(values)} numbers, expected {dimension or 'at least one'} as in the first line: {_NEEDED}"
        )
    try:
        with np.errstate(over="ignore"):  # infinity raises an error below
            vector = np.array(values, dtype=np.float32)
    except ValueError as error:
        raise DataError(f"{where}: {error}; needed a word and its numbers in each line") from error
    if not np.isfinite(vector).all():
        raise DataError(f"{where}: the vector has NaN or infinity")
    return vector


def vector_table(words: dict[str, int], path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return a table of the vectors of words, and the row of each word.

    A word is looked up in its original case, then in lower case.

    Args:
        words: numbered from 1.
        path: path of a file in GloVe's text format.

    Returns:
        The table, float32 ``[V, D]``, whose row 0 is all zeros; and the rows of the words 0, 1, 2, ..., int32, which are 0
        for number 0 and for words without a vector.

    Raises:
        DataError: if a file is damaged or has none of the words.
    """
    vectors = read_vectors(path, {spelling for word in words for spelling in (word, word.lower())})
    if not vectors:
        raise DataError(
            f"{path}: has none of the {len(words)} words of the data, such as {', '.join(map(repr, list(words)[:3]))}: "
            f"{_NEEDED}"
        )
    row_of = {spelling: row for row, spelling in enumerate(vectors, start=1)}
    rows = [row_of.get(word, row_of.get(word.lower(), 0)) for word in words]
    table = np.stack([np.zeros_like(next(iter(vectors.values()))), *vectors.values()])
    return table, np.array([0, *rows], dtype=np.int32)


@dataclass(frozen=True, eq=False)
class WordVectors(Transform):
    """Look up words in a fixed table, ``x <- table[x]``.

    An embedding that is not trained is neither sent nor averaged, so it is part of the data and not of the model.

    Attributes:
        table: float32 ``[V, D]``, a vector for each word.

    Raises:
        DataError: if a table is not float32 ``[V, D]``, or inputs are not row numbers ``[n, T]``.
    """

    random: ClassVar[bool] = False
    enlarges: ClassVar[bool] = True
    table: np.ndarray

    def __post_init__(self) -> None:
        if self.table.ndim != 2 or self.table.dtype != np.float32:
            raise DataError(
                f"WordVectors: got a table of {self.table.dtype} {list(self.table.shape)}, needed float32 of shape [V, D]"
            )

    def apply(self, x: torch.Tensor, keys: torch.Tensor | None) -> torch.Tensor:
        """See `Transform.apply`; inputs are ``[n, T]`` and become ``[n, T, D]``."""
        if x.ndim != 2 or x.is_floating_point():
            raise DataError(
                f"WordVectors needs row numbers of its table [n, T], got inputs of {x.dtype} {list(x.shape)}"
            )
        return _on_device(self, x.device)[x.long()]


@lru_cache(maxsize=4)
def _on_device(words: WordVectors, device: torch.device) -> torch.Tensor:
    """Return the table on a device; cached, so that it is copied only once."""
    return torch.from_numpy(words.table).to(device)
