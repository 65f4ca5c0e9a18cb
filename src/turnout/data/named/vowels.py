"""Load the vowels of 15 speakers, a small table whose natural clients are the speakers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from turnout.core.checks import DataError
from turnout.data.directory import Place, declare
from turnout.data.source import SOURCES, Source
from turnout.data.table import from_table

VOWELS = Place(
    "vowels",
    ("vowel-context.data",),
    ("Vowels", "vowels"),
    bare=(".",),
    remedy="Download vowel-context.data from the data set 'Connectionist Bench (Vowel Recognition - Deterding Data)' of the "
    "UCI Machine Learning Repository and put it there",
)

_SPEAKER, _FEATURES, _VOWEL, _COLUMNS = 1, slice(3, 13), 13, 14
"""The columns: the speaker, ten features, and the vowel. The first is of a split by speaker, the third the speaker's sex."""

declare("vowels", VOWELS, elsewhere="UCI Machine Learning Repository, Connectionist Bench (Vowel Recognition)")


@SOURCES.register
def vowels(directory: str | os.PathLike[str] | None = None) -> Source:
    """Vowels of British English, 11 classes, by speaker: 15 speakers with 66 examples each.

    Each speaker said 11 words, of which six frames were taken each. Inputs are ten log area ratios of a linear predictive
    analysis of a frame, standardized over the rows on which clients train. The file ``vowel-context.data`` is in the folder
    ``Vowels`` of the data directory; its fields are separated by spaces or commas.

    Args:
        directory: the data directory, or the folder that contains the file.

    Raises:
        DataError: if the file is missing or damaged.

    Reference: D. H. Deterding, "Speaker normalisation for automatic speech recognition", PhD thesis, University of
    Cambridge, 1989.
    """
    rows = _read(VOWELS.locate(directory) / VOWELS.files[0])
    columns = {f"ratio_{i}": column for i, column in enumerate(rows[:, _FEATURES].T)}
    table = {**columns, "speaker": rows[:, _SPEAKER].astype(int), "vowel": rows[:, _VOWEL].astype(int)}
    source = from_table(table, label="vowel", client="speaker", scale=True, task="classification", name="vowels")
    return replace(source, recipe={"source": "vowels"})


def _read(path: Path) -> np.ndarray:
    """Return the fields of a file of vowels, ``[n, 14]``."""
    try:
        rows = np.array(
            [line.replace(",", " ").split() for line in path.read_text("ascii").splitlines() if line.strip()]
        )
        rows = rows.astype(float)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: needed {_COLUMNS} numbers in each line: {error}. {VOWELS.remedy}") from error
    if rows.ndim != 2 or rows.shape[1] != _COLUMNS or not np.isfinite(rows).all():
        raise DataError(
            f"{path}: got fields of shape {list(rows.shape)}, needed [n, {_COLUMNS}] numbers. {VOWELS.remedy}"
        )
    return rows
