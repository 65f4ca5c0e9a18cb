"""Words of a text, and their vectors from a file in GloVe's text format."""

from __future__ import annotations

import os
import re
from collections.abc import Container
from pathlib import Path

import numpy as np

from turnout.core.checks import DataError
from turnout.data.directory import data_directory
from turnout.data.reading import UNPACKING_ERRORS, open_unpacked

_LONGEST_LINE = 1 << 20
"""Bytes of a line of word vectors, which files of another kind exceed."""

_WORD = re.compile(r"[\w']+|[.,!?;]")


def split_words(text: str) -> list[str]:
    """Return the words of a text as LEAF cuts them: runs of letters, digits, ``_`` and ``'``, and each of ``. , ! ? ;``."""
    return _WORD.findall(text)


def locate_vectors(file: str | os.PathLike[str], directory: str | os.PathLike[str] | None = None) -> Path:
    """Return a file of word vectors: where its name says, or else in the data directory or its folder ``GloVe``.

    Raises:
        DataError: if it is in none of these places; says which they are.
    """
    root = data_directory(directory)
    places = [Path(file).expanduser(), root / "GloVe" / file, root / file]
    path = next((path for path in places if path.is_file()), None)
    if path is None:
        raise DataError(
            f"word vectors: no file {', '.join(map(str, dict.fromkeys(places)))}. Unpack glove.6B.zip from "
            f"nlp.stanford.edu/projects/glove into {root / 'GloVe'}, or write vectors=FILE"
        )
    return path


def read_vectors(path: Path, wanted: Container[str]) -> dict[str, np.ndarray]:
    """Return the vectors, float32 ``[D]``, of those `wanted` words that a file in GloVe's text format has.

    A line is a word and its D numbers, with blanks between; D is that of the first line. Only the lines of wanted words
    are read closely, because such files have a million others. Words with blanks in them are passed over.

    Raises:
        DataError: for a file that cannot be read, a line that is no text in UTF-8, or one of a wanted word with too few
            numbers or something else among them.
    """
    vectors: dict[str, np.ndarray] = {}
    dimension = None
    try:
        # As bytes, whose lines end at line feeds alone: some words hold other characters that end a line of text.
        with open_unpacked(path) as file:
            for number, content in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), start=1):
                line = _line(content, f"{path}: line {number}")
                if dimension is None:
                    dimension = len(line.split()) - 1
                word, _, numbers = line.rstrip("\r\n").partition(" ")
                if word not in wanted or word in vectors:
                    continue
                values = numbers.split()
                if len(values) <= dimension:
                    vectors[word] = _vector(values, dimension, f"{path}: line {number}, {word!r}")
    except UNPACKING_ERRORS as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    return vectors


def _line(content: bytes, where: str) -> str:
    """Return a line as text."""
    needed = "needed a file in GloVe's text format, a word and its numbers in each line, in UTF-8"
    if len(content) == _LONGEST_LINE:
        raise DataError(f"{where}: it has {_LONGEST_LINE:,} bytes or more; {needed}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: {error}; {needed}") from error


def _vector(values: list[str], dimension: int, where: str) -> np.ndarray:
    if len(values) < dimension or not values:
        raise DataError(
            f"{where}: found {len(values)} numbers, expected {dimension or 'at least one'} as in the first line: needed a "
            "file in GloVe's text format, a word and its numbers in each line"
        )
    try:
        with np.errstate(over="ignore"):  # which is refused below
            vector = np.array(values, dtype=np.float32)
    except ValueError as error:
        raise DataError(f"{where}: {error}; needed a word and its numbers in each line") from error
    if not np.isfinite(vector).all():
        raise DataError(f"{where}: the vector has NaN or infinity")
    return vector


def vector_table(words: dict[str, int], path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of some words in a table, and the row of each word.

    A word is looked up as it is written, then in lower case, so that files with and without capitals will do.

    Args:
        words: numbered from 1.
        path: of a file in GloVe's text format.

    Returns:
        The table, float32 ``[V, D]``, whose row 0 is all zeros; and the row of word 1, 2, ..., int32, behind that of
        number 0, which is 0 as it is for words without a vector.

    Raises:
        DataError: for a damaged file, or one that has none of the words.
    """
    vectors = read_vectors(path, {spelling for word in words for spelling in (word, word.lower())})
    if not vectors:
        raise DataError(
            f"{path}: has none of the {len(words)} words of the data, such as {', '.join(map(repr, list(words)[:3]))}: "
            "needed a file in GloVe's text format, a word and its numbers in each line"
        )
    row_of = {spelling: row for row, spelling in enumerate(vectors, start=1)}
    rows = [row_of.get(word, row_of.get(word.lower(), 0)) for word in words]
    table = np.stack([np.zeros_like(next(iter(vectors.values()))), *vectors.values()])
    return table, np.array([0, *rows], dtype=np.int32)
