"""LEAF's FEMNIST, Shakespeare and Sent140."""

import json

import numpy as np
import pytest
import torch

from turnout import data
from turnout.core.checks import ConfigurationError, DataError
from turnout.data.named.leaf import leaf_characters, leaf_images, read_leaf_json
from turnout.data.named.shakespeare import ALPHABET
from turnout.data.partition import PowerLaw


def write(folder, file: str, user_data: dict) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    users = [*user_data]
    content = {"users": users, "num_samples": [len(user_data[u]["y"]) for u in users], "user_data": user_data}
    (folder / file).write_text(json.dumps(content))


@pytest.fixture
def femnist(tmp_path):
    def user(n: int, start: int) -> dict:
        return {"x": [[(start + i) / 10] * 784 for i in range(n)], "y": [start + i for i in range(n)]}

    write(tmp_path / "train", "b.json", {"f01": user(2, 5)})
    write(tmp_path / "train", "a.json", {"f02": user(3, 0), "f00": user(1, 8)})
    write(tmp_path / "test", "t.json", {"f02": user(1, 9), "a99": user(1, 1)})
    return tmp_path


def test_images_belong_to_their_users(femnist):
    source = leaf_images(femnist / "train", femnist / "test")
    assert source.client_names == ("f00", "f01", "f02", "a99")
    assert source.client_ids is not None
    assert source.test_client_ids is not None
    assert source.client_ids.tolist() == [2, 2, 2, 0, 1, 1]
    assert source.y.tolist() == [0, 1, 2, 8, 5, 6]
    assert source.x.shape == (6, 1, 28, 28)
    assert source.x[:, 0, 3, 3].tolist() == pytest.approx([0.0, 0.1, 0.2, 0.8, 0.5, 0.6])
    assert source.test_client_ids.tolist() == [2, 3]
    assert source.num_classes == 62
    assert leaf_images(femnist / "train").test_x is None


def test_images_can_be_flat(femnist):
    assert leaf_images(femnist / "train", shape=(784,)).x.shape == (6, 784)


def test_user_without_examples_is_omitted(tmp_path):
    write(tmp_path, "a.json", {"none": {"x": [], "y": []}, "some": {"x": [[1.0, 2.0]], "y": [0.0]}})
    source = leaf_images(tmp_path, shape=(2,), num_classes=2)
    assert source.client_names == ("some",)
    write(tmp_path, "a.json", {"none": {"x": [], "y": []}})
    with pytest.raises(DataError, match="no user has any examples"):
        leaf_images(tmp_path)


def test_selected_labels_are_renumbered(femnist):
    source = leaf_images(femnist / "train", femnist / "test", labels=(8, 2, 1))
    assert source.client_names == ("f00", "f02", "a99")
    assert source.client_ids is not None
    assert source.client_ids.tolist() == [1, 1, 0]
    assert source.y.tolist() == [2, 1, 0]
    assert source.x[:, 0, 0, 0].tolist() == pytest.approx([0.1, 0.2, 0.8])
    assert source.test_y is not None
    assert source.test_y.tolist() == [2]
    assert source.num_classes == 3
    assert leaf_images(femnist / "train", labels=(8,), num_classes=26).num_classes == 26
    with pytest.raises(DataError, match="no user has any examples"):
        leaf_images(femnist / "train", femnist / "test", labels=(5,))


@pytest.mark.parametrize("labels", [(), (1, 1), (1, -1), (1.0,), [1, 2], (True,)])
def test_invalid_selected_labels_are_refused(tmp_path, labels):
    with pytest.raises(
        ConfigurationError, match=r"labels: got .*, needed a tuple of different whole numbers >= 0, or None"
    ):
        leaf_images(tmp_path, labels=labels)


def test_femnist_is_found_in_the_data_directory(femnist, monkeypatch):
    expected = leaf_images(femnist / "train", femnist / "test")
    for source in (data.femnist(femnist), data.load("femnist", femnist)):
        assert torch.equal(source.x, expected.x)
        assert source.test_y is not None
        assert source.test_y.tolist() == [9, 1]
        assert source.name == "femnist"
    (femnist / "FEMNIST").mkdir()
    for part in ("train", "test"):
        (femnist / part).rename(femnist / "FEMNIST" / part)
    monkeypatch.setenv("TURNOUT_DATA", str(femnist))
    assert torch.equal(data.femnist(labels=(8, 2, 1), num_classes=26).y, torch.tensor([2, 1, 0]))
    for file in (femnist / "FEMNIST" / "test").iterdir():
        file.unlink()
    assert data.femnist().test_x is None


def test_missing_femnist_explains_how_to_create_it(tmp_path):
    with pytest.raises(DataError, match=r"femnist: no folder holds train/.*Run LEAF's data/femnist/preprocess.sh"):
        data.femnist(tmp_path)


def test_folb_federation_of_letters(tmp_path):
    """Neighboring letters a to j, three for each client."""
    user = {"x": [[0.5] * 784 for _ in range(620)], "y": list(range(62)) * 10}
    write(tmp_path / "train", "a.json", {"f00": user, "f01": user})
    source = data.femnist(tmp_path, labels=tuple(range(36, 46)), num_classes=26)
    split = source.split(PowerLaw(classes_per_client=3, least=2), 20, test_fraction=0, client_test_fraction=0.1)
    assert split.num_classes == 26
    assert split.client_test is not None
    held = split.label_counts() + split.client_test.label_counts(26)
    assert [set(np.flatnonzero(mine)) for mine in held] == [{(u + j) % 10 for j in range(3)} for u in range(20)]


def test_characters_are_indices_of_the_alphabet(tmp_path):
    texts = ["Now is the winter " * 10, "of our discontent$" * 10]
    write(tmp_path, "s.json", {"RICHARD": {"x": [text[:80] for text in texts], "y": [text[80] for text in texts]}})
    source = leaf_characters(tmp_path)
    assert source.x.shape == (2, 80)
    decoded = ["".join(ALPHABET[i] for i in row) for row in source.x]
    assert decoded == [texts[0][:80], texts[1][:80].replace("$", ALPHABET[-1])]
    assert source.y.tolist() == [ALPHABET.index(text[80]) for text in texts]
    assert source.y.dtype == torch.int64
    assert source.num_classes == 80


def test_raw_tweets_are_read(tmp_path):
    tweet = ["147", "Mon", "NO_QUERY", "someone", "my, what a day!", "0"]
    write(tmp_path, "tweets.json", {"someone": {"x": [tweet], "y": ["4"]}})
    assert read_leaf_json(tmp_path) == (["someone"], [[tweet]], [["4"]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"users": ["a"], "user_data": {"a": {"x": [', "a.json: not a LEAF file .*preprocess.sh"),
        ('{"users": ["a"], "user_data": {}}', "a.json: not a LEAF file .KeyError: 'a'"),
        (
            r'{"users": ["\ud800"], "user_data": {"\ud800": {"x": [], "y": []}}}',
            r"a user is called .*, needed a text that",
        ),
        ("[1, 2]", "a.json: not a LEAF file .TypeError"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1]], "y": [0, 1]}}}', "user 'a' has 1 inputs but 2 labels"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1]], "y": [0]}}}', "input of user 'a' is not 784 numbers"),
        ('{"users": ["a"], "user_data": {"a": {"x": ["hello"], "y": [0]}}}', "input of user 'a' is not 784 numbers"),
        (
            json.dumps({"users": ["a"], "user_data": {"a": {"x": [[0] * 784], "y": ["b"]}}}),
            "label of user 'a' is not a class index",
        ),
        (
            json.dumps({"users": ["a"], "user_data": {"a": {"x": [[0] * 784], "y": [62]}}}),
            "labels run from 62 to 62, but num_classes=62",
        ),
    ],
)
def test_damaged_file_is_refused(tmp_path, content, message):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataError, match=message):
        leaf_images(tmp_path)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ("abc", "d", "an input of user 'a' is 'abc', needed a string of length 80"),
        ("a" * 80, "de", "a label of user 'a' is 'de', needed a string of length 1"),
        (["a"], "d", "needed a string of length 80"),
    ],
)
def test_text_of_wrong_length_is_refused(tmp_path, x, y, message):
    write(tmp_path, "a.json", {"a": {"x": [x], "y": [y]}})
    with pytest.raises(DataError, match=message):
        leaf_characters(tmp_path)


def test_folder_without_files_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"no .json files here"):
        leaf_images(tmp_path)
    with pytest.raises(DataError, match=r"no .json files here"):
        leaf_images(tmp_path / "nowhere")
