"""Load Shakespeare's plays by speaking role, to predict the next character."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

from turnout.core.checks import DataError, count
from turnout.data.directory import REMOTE, Place, declare
from turnout.data.reading import read_bytes
from turnout.data.source import SOURCES, Source

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's 80 characters, in LEAF's order; other characters are mapped to the last one."""

SHAKESPEARE = Place(
    "shakespeare",
    tuple(Path(file.path).name for file in REMOTE["shakespeare"]),
    ("Shakespeare/plays", "shakespeare/plays", "Shakespeare", "shakespeare"),
    bare=("plays", "."),
)

declare("shakespeare", SHAKESPEARE)

_INDEX = np.full(256, len(ALPHABET) - 1, dtype=np.uint8)
_INDEX[np.frombuffer(ALPHABET.encode("latin-1"), dtype=np.uint8)] = np.arange(len(ALPHABET))

_RUNNING_TITLE = re.compile(r"\n\t[^a-z\n]*\n+(?=ACT )")  # the play's name, repeated above each ACT
_DIRECTION = re.compile(r"\[(?:[^\[\]\n]|\n(?!\n))*\]?")  # an unclosed bracket ends with its paragraph
_HEADING = re.compile(r"(ACT|SCENE)\b|\t(PROLOGUE|EPILOGUE)\.?$")


@SOURCES.register
def shakespeare(
    directory: str | os.PathLike[str] | None = None,
    sequence_length: int = 80,
    *,
    stride: int = 1,
    min_examples: int = 2,
) -> Source:
    """Shakespeare by speaking role: predict the next character after 80; a role in a play is a natural client.

    The speeches of a role are joined by line breaks, and the lines of a speech by blanks; stage directions are left out. Of
    the resulting characters c_1, ..., c_L example i is (c_{i+1}, ..., c_{i+80}) with the label c_{i+81}, for
    i = 0, stride, 2 stride, ... as in LEAF, except that LEAF also predicts the first 80 characters, from blanks.

    Inputs are indices into `ALPHABET`, uint8 ``[n, sequence_length]`` (0.3 GB for 4 million examples), which models convert
    to int64. Windows overlap: with a random split of a role's examples into training and test, as in LEAF, most test
    characters are also training characters. The 37 plays are in ``Shakespeare/plays`` of the data directory.

    Args:
        directory: the data directory, or the folder of the plays.
        sequence_length: length of the context in characters.
        stride: distance between windows; 1 predicts every character.
        min_examples: roles with fewer examples are left out.

    Raises:
        DataError: if a play is missing or damaged, or if no role is long enough.

    References: H. B. McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    AISTATS 2017; S. Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097, 2018.
    """
    for option, value in (("sequence_length", sequence_length), ("stride", stride), ("min_examples", min_examples)):
        count(option, value)
    texts = {role: "\n".join(filter(None, speeches)) for role, speeches in read_roles(directory).items()}
    lengths = np.array([len(text) for text in texts.values()])
    num_windows = np.maximum(0, -(-(lengths - sequence_length) // stride))
    long_enough = num_windows >= min_examples
    if not long_enough.any():
        raise DataError(
            f"shakespeare: no role has {min_examples} windows of {sequence_length} characters (the longest has "
            f"{lengths.max()}): write a smaller sequence_length, stride or min_examples"
        )
    # One flat text of all roles; window i of a role starts at the role's first character + i * stride.
    sizes, first = num_windows[long_enough], (np.cumsum(lengths) - lengths)[long_enough]
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    starts = np.repeat(first, sizes) + stride * within
    text = character_indices("".join(texts.values()))
    return Source(
        name="shakespeare",
        x=torch.from_numpy(sliding_window_view(text, sequence_length)[starts]),
        y=torch.from_numpy(text[starts + sequence_length].astype(np.int64)),
        num_classes=len(ALPHABET),
        client_ids=np.repeat(np.arange(len(sizes)), sizes),
        client_names=tuple(
            f"{play}/{speaker}" for (play, speaker), keep in zip(texts, long_enough, strict=True) if keep
        ),
        recipe={
            "source": "shakespeare",
            "sequence_length": sequence_length,
            "stride": stride,
            "min_examples": min_examples,
        },
    )


def character_indices(text: str) -> np.ndarray:
    """Return the indices of characters in `ALPHABET`, uint8 ``[len(text)]``; other characters have the last index."""
    codes = np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), dtype="<u4")
    return _INDEX[np.minimum(codes, 255)]  # 255 is not in the alphabet


def read_roles(directory: str | os.PathLike[str] | None = None) -> dict[tuple[str, str], list[str]]:
    """Read the speeches of every role, ``{(play, speaker): [speech, ...]}``, with plays in sorted order.

    Raises:
        DataError: if a play is missing or has no speech.
    """
    folder = SHAKESPEARE.locate(directory)
    roles: dict[tuple[str, str], list[str]] = {}
    for file in SHAKESPEARE.files:
        path = folder / file
        speeches = parse_play(_text(path))
        if not speeches:
            expected = "a line `ACT I`, then speeches as SPEAKER, a tab, text"
            raise SHAKESPEARE.damaged(path, found="no speech", expected=expected)
        for speaker, speech in speeches:
            roles.setdefault((path.stem, speaker), []).append(speech)
    return roles


def _text(path: Path) -> str:
    """Read the text of a play, with line feeds as line ends."""
    return read_bytes(path).decode("latin-1").replace("\r\n", "\n").replace("\r", "\n")


def parse_play(text: str) -> list[tuple[str, str]]:
    """Parse the speeches (speaker, text) of a play, in order.

    Speeches begin after the line ``ACT I``. A speech starts with ``SPEAKER<TAB>text``, and its further lines with a tab.
    Stage directions in brackets and the play's running title are removed, and white space is collapsed to single blanks.
    """
    _, begins, body = text.partition("\nACT I\n")
    body = _DIRECTION.sub("", _RUNNING_TITLE.sub("\n", body)) if begins else ""
    speeches: list[tuple[str, list[str]]] = []
    speaking = False
    for line in body.split("\n"):
        if _HEADING.match(line):
            speaking = False
        elif line.startswith("\t"):
            if speaking:
                speeches[-1][1].append(line)
        elif "\t" in line:
            speaker, _, first = line.partition("\t")
            speeches.append((speaker.strip(), [first]))
            speaking = True
    return [(speaker, " ".join(re.sub(r"[|\]]", " ", " ".join(lines)).split())) for speaker, lines in speeches]
