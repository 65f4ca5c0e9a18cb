"""Load Sent140: the sentiment of tweets by account, from LEAF's files, with word vectors."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from turnout.core.checks import DataError, count
from turnout.data.directory import Place, declare
from turnout.data.named.leaf import Folder, leaf_source, train_and_test
from turnout.data.named.words import WordVectors, locate_vectors, split_words, vector_table
from turnout.data.source import SOURCES, Source

SENT140 = Place(
    "sent140",
    ("train/*.json",),
    ("Sent140", "sent140", "sent140/data"),
    bare=(".", "data"),
    remedy="Run LEAF's data/sent140/preprocess.sh and put its folders train and test there",
)

_TEXT = 4  # of a tweet's identifier, date, query, account, text, ...
_MOODS = {"0": 0, "2": 0, "4": 1, "1": 1}

declare("sent140", SENT140, elsewhere="written by LEAF's data/sent140/preprocess.sh")


@SOURCES.register
def sent140(
    directory: str | os.PathLike[str] | None = None,
    *,
    vectors: str | os.PathLike[str] = "glove.6B.300d.txt",
    sequence_length: int = 25,
    average: bool = False,
) -> Source:
    """Sent140: the sentiment of tweets, 2 classes, by account; from the files that LEAF writes and word vectors.

    The ``.json`` files are in the folders ``train`` and, optionally, ``test`` in ``Sent140`` of the data directory, and word
    vectors in GloVe's text format in its folder ``GloVe``; see `leaf_tweets`.

    Args:
        directory: the data directory, or the folder that contains the folder ``train``.
        vectors: name or path of the file of word vectors.
        sequence_length, average: see `leaf_tweets`.

    Raises:
        ConfigurationError: if `sequence_length` < 1.
        DataError: if files are missing or damaged.

    Reference: A. Go, R. Bhayani and L. Huang, "Twitter Sentiment Classification using Distant Supervision", Stanford
    University, 2009.
    """
    count("sequence_length", sequence_length)
    train, test = train_and_test(SENT140.locate(directory))
    path = locate_vectors(vectors, directory)
    return leaf_tweets(train, test, vectors=path, sequence_length=sequence_length, average=average)


def leaf_tweets(
    train_directory: Folder,
    test_directory: Folder | None = None,
    *,
    vectors: str | os.PathLike[str],
    sequence_length: int = 25,
    average: bool = False,
    name: str = "sent140",
) -> Source:
    """LEAF's Sent140: tweets as their first words, with vectors from a file in GloVe's text format.

    Words are split as in LEAF. A word is looked up in its original case and then in lower case (LEAF and FedProx look up only
    the original, so with a lower-case file they have no vector for the first word of a sentence). Words without a vector, and
    positions after the last word, are zeros.

    Inputs are word numbers, int32 ``[n, sequence_length]``, which the transform `WordVectors` maps to vectors
    ``[n, sequence_length, D]`` for `TextLstm` in each minibatch; all at once would take D times the memory. With `average`
    they are the means of the vectors of the words that have one, float32 ``[n, D]``, for `Mlp` (zeros for a tweet without
    any). The natural client is the account. Label 1 is a positive sentiment (4 in the original), 0 any other.

    Args:
        train_directory, test_directory: folders of ``.json`` files.
        vectors: file of word vectors.
        sequence_length: number of words of a tweet that are used.
        average: use the mean of word vectors, without word order.
        name: name of the data in reports.

    Raises:
        ConfigurationError: if `sequence_length` < 1.
        DataError: if a file is damaged, an input is not a tweet, or no word of the data has a vector.

    References: S. Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097, 2018; J. Pennington, R.
    Socher and C. D. Manning, "GloVe: Global Vectors for Word Representation", EMNLP 2014.
    """
    count("sequence_length", sequence_length)
    words: dict[str, int] = {}

    def convert(user: str, tweets: list[Any], moods: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        numbers = np.zeros((len(tweets), sequence_length), dtype=np.int32)
        for row, tweet in zip(numbers, tweets, strict=True):
            tokens = split_words(_text(name, user, tweet))[:sequence_length]
            row[: len(tokens)] = [words.setdefault(word, len(words) + 1) for word in tokens]
        return numbers, np.array([_mood(name, user, mood) for mood in moods], dtype=np.int64)

    source = leaf_source(train_directory, test_directory, convert, 2, name)
    table, row_of = vector_table(words, Path(vectors))

    def inputs(numbers: torch.Tensor) -> torch.Tensor:
        rows = torch.from_numpy(row_of[numbers.numpy()])
        return F.embedding_bag(rows, torch.from_numpy(table), mode="mean", padding_idx=0) if average else rows

    recipe = {"vectors": Path(vectors).name, "sequence_length": sequence_length, "average": average}
    return replace(
        source,
        x=inputs(source.x),
        test_x=None if source.test_x is None else inputs(source.test_x),
        transforms=() if average else (WordVectors(table),),
        recipe=source.recipe | recipe,
    )


def _text(name: str, user: str, tweet: Any) -> str:
    if not isinstance(tweet, list) or len(tweet) <= _TEXT or not isinstance(tweet[_TEXT], str):
        raise DataError(
            f"{name}: an input of user {user!r} is {tweet!r}, needed a list whose fifth entry is the tweet's text"
        )
    return tweet[_TEXT]


def _mood(name: str, user: str, mood: Any) -> int:
    if str(mood) not in _MOODS:
        raise DataError(f"{name}: a label of user {user!r} is {mood!r}, needed 0 or 1, or 0, 2 or 4 as in the original")
    return _MOODS[str(mood)]
