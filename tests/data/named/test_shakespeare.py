"""Shakespeare's roles."""

from collections import Counter
from string import ascii_lowercase
from typing import Any

import numpy as np
import pytest
import torch

from turnout.core.checks import ConfigurationError, DataError
from turnout.data.named.shakespeare import ALPHABET, SHAKESPEARE, character_indices, parse_play, read_roles, shakespeare

PLAY = """\tTHE TOY

DRAMATIS PERSONAE

FIRST\t(a person who never speaks here.)

\tTHE TOY

ACT I

SCENE I\tA room.

\t[Enter ANNA and BERT,
\twith torches]

ANNA\tWhat   now?
\t[Aside] He sleeps.

\t[A bell. Exit without a closing bracket

BERT\tNothing
\tyet, Anna.

\tTHE TOY

ACT II

SCENE I\tThe same.
\tA stray line of a place.

ANNA \tCome.

\tEPILOGUE

\tThese lines are nobody's.
"""

LONG = "ACT I\n\nSCENE I\tX.\n\nANNA\t{}\n\nBERT\t{}\n"


@pytest.fixture
def write_plays(tmp_path):
    """Write one text as every play."""

    def write(text: str):
        folder = tmp_path / "Shakespeare" / "plays"
        folder.mkdir(parents=True, exist_ok=True)
        for file in SHAKESPEARE.files:
            (folder / file).write_text(text)
        return tmp_path

    return write


def decode(indices) -> str:
    return "".join(ALPHABET[i] for i in indices)


def test_speeches_omit_directions_headings_and_titles():
    assert parse_play(PLAY) == [("ANNA", "What now? He sleeps."), ("BERT", "Nothing yet, Anna."), ("ANNA", "Come.")]


def test_text_without_acts_has_no_speeches():
    assert parse_play("SONNETS\n\nI.\n\nFROM\tfairest creatures") == []


def test_alphabet_has_80_characters_and_maps_others_to_the_last():
    assert len(set(ALPHABET)) == len(ALPHABET) == 80
    assert character_indices(ALPHABET).tolist() == list(range(80))
    assert character_indices("$\u00e9\u00ff\u20ac\U0001f600\ud800").tolist() == [79] * 6


def test_windows_predict_every_following_character(write_plays):
    directory = write_plays("\n" + LONG.format("abcdefgh", "xyz"))
    source = shakespeare(directory, sequence_length=3, min_examples=1)
    assert source.client_names is not None
    assert source.client_ids is not None
    first = source.client_ids == 0
    assert [decode(row) for row in source.x[torch.from_numpy(first)]] == ["abc", "bcd", "cde", "def", "efg"]
    assert decode(source.y[torch.from_numpy(first)]) == "defgh"
    # Three characters leave no fourth to predict, so BERT is left out.
    assert source.client_names == tuple(f"{file.removesuffix('.txt')}/ANNA" for file in SHAKESPEARE.files)
    assert np.bincount(source.client_ids).tolist() == [5] * 37
    assert source.x.dtype == torch.uint8


@pytest.mark.parametrize("stride", [1, 2, 3, 5, 7, 50])
@pytest.mark.parametrize("length", [4, 5, 8, 9, 10, 23])
def test_strides_take_every_kth_window_of_each_role(write_plays, stride, length):
    text = ascii_lowercase[:length]
    directory = write_plays("\n" + LONG.format(text, text[::-1]))
    every = shakespeare(directory, sequence_length=3, min_examples=1)
    some = shakespeare(directory, sequence_length=3, min_examples=1, stride=stride)
    assert every.client_ids is not None
    assert some.client_ids is not None
    for k in range(74):
        kept = torch.from_numpy(some.client_ids == k)
        assert torch.equal(some.x[kept], every.x[torch.from_numpy(every.client_ids == k)][::stride])
        assert torch.equal(some.y[kept], every.y[torch.from_numpy(every.client_ids == k)][::stride])


def test_speeches_of_a_role_are_joined_by_line_ends(write_plays):
    source = shakespeare(write_plays("\n" + PLAY), sequence_length=25, min_examples=1)
    assert decode([*source.x[0], source.y[0]]) == "What now? He sleeps.\nCome."


def test_roles_with_too_few_examples_are_omitted(write_plays):
    directory = write_plays("\n" + LONG.format("abcdef", "uvwxy"))  # 3 and 2 windows of 3
    source = shakespeare(directory, sequence_length=3, min_examples=3)
    assert source.client_names is not None
    assert {name.split("/")[1] for name in source.client_names} == {"ANNA"}


def test_error_if_no_role_is_long_enough(write_plays):
    directory = write_plays("\n" + LONG.format("abcdef", "uvwxy"))
    with pytest.raises(DataError, match=r"no role has 2 windows of 80 characters \(the longest has 6\)"):
        shakespeare(directory)


def test_file_without_speeches_is_named(write_plays):
    directory = write_plays("\n" + PLAY)
    (directory / "Shakespeare/plays/hamlet.txt").write_text("To be")
    with pytest.raises(DataError, match=r"hamlet.txt: found no speech, expected a line `ACT I`"):
        shakespeare(directory)


@pytest.mark.parametrize("option", ["sequence_length", "stride", "min_examples"])
def test_options_are_positive_integers(option):
    wrong: dict[str, Any] = {option: 0}
    with pytest.raises(ConfigurationError, match=f"{option}: got 0, needed a whole number >= 1"):
        shakespeare(**wrong)


real = pytest.mark.skipif(SHAKESPEARE.find() is None, reason="Shakespeare's plays are not here: set TURNOUT_DATA")


@real
def test_downloaded_roles_load():
    roles = read_roles()
    assert len(roles) == 1351
    assert sum(map(len, roles.values())) == 30996
    assert sum(len(speeches) > 1 for speeches in roles.values()) == 1120
    assert roles["hamlet", "BERNARDO"][:2] == ["Who's there?", "Long live the king!"]
    # No running title got into the speech before an act.
    assert not any(
        speech.endswith("HAMLET") for (play, _), all_ in roles.items() if play == "hamlet" for speech in all_
    )
    used = Counter(character for speeches in roles.values() for character in "".join(speeches))
    assert {character for character in used if character not in ALPHABET} == {"$"}
    assert used["}"] == 0  # so the last index means "another character"


@real
def test_downloaded_examples_load():
    source = shakespeare(stride=7)
    assert source.client_ids is not None
    assert source.client_names is not None
    assert source.num_classes == 80
    assert len(source.client_names) > 1000
    assert np.bincount(source.client_ids).min() >= 2
    bernardo = torch.from_numpy(source.client_ids == source.client_names.index("hamlet/BERNARDO"))
    assert decode(source.x[bernardo][0]).startswith("Who's there?\nLong live the king!\nHe.\n")
