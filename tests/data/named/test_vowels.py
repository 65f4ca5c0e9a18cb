"""Vowels by speaker."""

import numpy as np
import pytest
import torch

from turnout.core.checks import DataError
from turnout.data import vowels


def lines(speakers=3, classes=2, frames=5, separator="  "):
    """Lines in the format of the file: split, speaker, sex, ten ratios, vowel."""
    rng = np.random.default_rng(0)
    return [
        separator.join(["0", str(speaker), str(speaker % 2), *(f"{x:.3f}" for x in rng.normal(size=10)), str(vowel)])
        for speaker in range(speakers)
        for _ in range(frames)
        for vowel in range(classes)
    ]


@pytest.mark.parametrize("separator", ["  ", ", "])
def test_speakers_are_the_clients_of_standardized_features(tmp_path, separator):
    (tmp_path / "Vowels").mkdir()
    (tmp_path / "Vowels" / "vowel-context.data").write_text("\n".join(lines(separator=separator)) + "\n")
    source = vowels(tmp_path)
    assert source.x.shape == (30, 10)
    assert source.y.tolist() == [0, 1] * 15
    assert source.client_ids is not None
    assert source.client_ids.tolist() == [0] * 10 + [1] * 10 + [2] * 10
    torch.testing.assert_close(source.x.mean(0), torch.zeros(10), atol=1e-6, rtol=0.0)
    data = source.split(client_test_fraction=0.2)
    assert data.num_clients == 3
    assert data.name == "vowels"
    torch.testing.assert_close(data.train.x.mean(0), torch.zeros(10), atol=1e-6, rtol=0.0)  # of the rows for training


def test_missing_and_damaged_files_say_what_is_needed(tmp_path):
    with pytest.raises(DataError, match=r"vowels: no folder holds vowel-context.data.*Download vowel-context.data"):
        vowels(tmp_path)
    path = tmp_path / "vowel-context.data"
    for content in ("0 1 2\n", "\n".join([*lines(), "0 1"]), "\n".join([*lines(), lines()[0].replace("0", "x")]), ""):
        path.write_text(content)
        with pytest.raises(DataError, match=r"vowel-context.data: (got fields of shape .*, )?needed (\[n, )?14"):
            vowels(tmp_path)
