"""Word vectors."""

from pathlib import Path

import numpy as np
import pytest

from turnout.core.checks import DataError
from turnout.data.named.words import locate_vectors, read_vectors, split_words, vector_table


@pytest.fixture
def glove(tmp_path):
    """Vectors of three numbers in GloVe's text format."""

    def put(*lines: str, name: str = "vectors.txt") -> Path:
        path = tmp_path / name
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return put


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("my, what a day!", ["my", ",", "what", "a", "day", "!"]),
        ("I can't... @you: http://x.y/1_2", ["I", "can't", ".", ".", ".", "you", "http", "x", ".", "y", "1_2"]),
        ("  #Montréal? n°1; ", ["Montréal", "?", "n", "1", ";"]),
        ("", []),
        ("&:-(", []),
    ],
)
def test_texts_are_split_like_leaf(text, words):
    assert split_words(text) == words


def test_only_required_vectors_are_read(glove):
    path = glove("the 1 2 3", "cat 0.5 -1e-3 4", "dog nan 1 2", "été 7 8 9", "cat 9 9 9")
    vectors = read_vectors(path, {"cat", "été", "cow"})
    assert {word: vector.tolist() for word, vector in vectors.items()} == {
        "cat": pytest.approx([0.5, -0.001, 4.0]),  # the first of the two
        "été": [7.0, 8.0, 9.0],
    }
    assert vectors["cat"].dtype == np.float32


def test_unusual_words_are_accepted(glove):
    path = glove("the 1 2 3", ". . . 4 5 6", "at\x85night 1 1 1", "\u2028 2 2 2", ". 7 8 9")
    assert {w: v.tolist() for w, v in read_vectors(path, {".", "the", "at", "night"}).items()} == {
        "the": [1, 2, 3],
        ".": [7, 8, 9],
    }


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["the 1 2 3", "cat 1 2"], r"vectors.txt: line 2, 'cat': found 2 numbers, expected 3 as in the first line"),
        (["cat"], "line 1, 'cat': found 0 numbers, expected at least one"),
        (["cat 1 two 3"], "line 1, 'cat': could not convert string to float: 'two'; needed a word and its numbers"),
        (["cat 1 inf 3"], "line 1, 'cat': the vector has NaN or infinity"),
    ],
)
def test_damaged_line_is_named(glove, lines, message):
    with pytest.raises(DataError, match=message):
        read_vectors(glove(*lines), {"cat"})


def test_words_without_vectors_are_zero(glove):
    path = glove("sun 1 1 1", "happy 2 2 2", "Paris 3 3 3", "paris 4 4 4")
    words = {word: number for number, word in enumerate(["Happy", "xyzzy", "Paris", "happy", "PARIS", "sun"], start=1)}
    table, rows = vector_table(words, path)
    assert table.dtype == np.float32
    assert table[rows].tolist() == [[0] * 3, [2] * 3, [0] * 3, [3] * 3, [2] * 3, [4] * 3, [1] * 3]
    assert len(table) == 5  # a word that is written in two ways has one vector
    assert table[0].tolist() == [0, 0, 0]


def test_file_without_required_words_is_refused(glove):
    path = glove("4 3", "chat 1 2 3")
    with pytest.raises(
        DataError, match=r"has none of the 2 words of the data, such as 'sun', 'cat': needed a file in Glo"
    ):
        vector_table({"sun": 1, "cat": 2}, path)


def test_vectors_are_found_by_path_and_in_the_data_directory(glove, tmp_path, monkeypatch):
    path = glove("a 1", name="here.txt")
    assert locate_vectors(path) == path
    (tmp_path / "GloVe").mkdir()
    inside = glove("a 1", name="GloVe/there.txt")
    assert locate_vectors("there.txt", tmp_path) == inside
    monkeypatch.setenv("TURNOUT_DATA", str(tmp_path))
    assert locate_vectors("there.txt") == inside
    assert locate_vectors("here.txt") == path
    with pytest.raises(DataError, match=r"word vectors: no file no.txt, .*GloVe/no.txt.* Unpack glove.6B.zip from nlp"):
        locate_vectors("no.txt")
