"""Sent140 tweets."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from turnout import Experiment, data, models
from turnout.algorithms import fedavg
from turnout.cli.settings import Settings
from turnout.core.checks import ConfigurationError, DataError
from turnout.data import WordVectors, leaf_tweets, sent140
from turnout.pieces.local import Sgd

VECTORS = {"good": [1, 0, 1], "bad": [0, 1, -1], "day": [0.5, 0.5, 0], "!": [0.25, 0, 0]}
TWEETS = {
    "ann": [("Good day!", 1), ("bad bad zzz day", 0)],
    "bob": [("nothing known", 0), ("good", "4"), ("a good day , not a bad one !", 4)],
}


def write(folder, tweets: dict[str, list[tuple[str, Any]]]) -> None:
    user_data = {
        user: {"x": [[str(i), "Mon May 11", "NO_QUERY", user, text, "training"] for i, (text, _) in enumerate(said)],
               "y": [mood for _, mood in said]}
        for user, said in tweets.items()
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    content = {"users": [*user_data], "num_samples": [len(said) for said in tweets.values()], "user_data": user_data}
    (folder / "all_data_niid_0_keep_1.json").write_text(json.dumps(content))


@pytest.fixture
def directory(tmp_path):
    write(tmp_path / "Sent140" / "train", TWEETS)
    write(tmp_path / "Sent140" / "test", {"bob": [("day good", "0")], "ann": [("! bad", 2)]})
    (tmp_path / "GloVe").mkdir()
    lines = [f"{word} {' '.join(map(str, vector))}\n" for word, vector in VECTORS.items()]
    (tmp_path / "GloVe" / "glove.6B.300d.txt").write_text("".join(lines))
    return tmp_path


def said(source, part: str = "x") -> list[list[list[float]]]:
    """Return the inputs of the model without padding: the vectors of each tweet's words."""
    (words,) = source.transforms
    tweets = words.apply(getattr(source, part), None)
    lengths = [max(tweet.any(dim=1).nonzero().flatten().tolist(), default=-1) + 1 for tweet in tweets]
    return [tweet[:length].tolist() for tweet, length in zip(tweets, lengths, strict=True)]


def of(*words: str) -> list[list[float]]:
    return [VECTORS.get(word, [0, 0, 0]) for word in words]


def test_tweets_become_word_vectors(directory):
    source = sent140(directory)
    assert source.x.shape == (5, 25)
    assert source.x.dtype == torch.int32
    assert said(source) == [
        of("good", "day", "!"),
        of("bad", "bad", "zzz", "day"),
        [],
        of("good"),
        of("a", "good", "day", ",", "not", "a", "bad", "one", "!"),
    ]
    assert said(source, "test_x") == [of("day", "good"), of("!", "bad")]
    assert source.y.tolist() == [1, 0, 0, 1, 1]
    assert source.test_y is not None
    assert source.test_y.tolist() == [0, 0]
    assert source.num_classes == 2
    assert source.client_names == ("ann", "bob")
    assert source.client_ids is not None
    assert source.client_ids.tolist() == [0, 0, 1, 1, 1]
    assert source.test_client_ids is not None
    assert source.test_client_ids.tolist() == [1, 0]
    assert source.recipe == {
        "source": "sent140",
        "vectors": "glove.6B.300d.txt",
        "sequence_length": 25,
        "average": False,
    }


def test_only_the_first_words_are_used(directory):
    assert said(sent140(directory, sequence_length=2)) == [
        of("good", "day"), of("bad", "bad"), [], of("good"), of("a", "good"),
    ]  # fmt: skip


def test_averages_omit_words_without_vectors(directory):
    source = sent140(directory, average=True)
    assert source.transforms == ()
    expected = [
        np.mean(of("good", "day", "!"), axis=0),
        np.mean(of("bad", "bad", "day"), axis=0),
        [0, 0, 0],
        of("good")[0],
        np.mean(of("good", "day", "bad", "!"), axis=0),
    ]
    np.testing.assert_allclose(source.x.numpy(), expected, atol=1e-6)
    assert source.test_x is not None
    np.testing.assert_allclose(source.test_x[0].numpy(), np.mean(of("day", "good"), axis=0), atol=1e-6)


def test_averages_equal_those_of_sequences(directory):
    sequences, averages = sent140(directory, sequence_length=3), sent140(directory, sequence_length=3, average=True)
    for tweet, mean in zip(said(sequences), averages.x.tolist(), strict=True):
        known = [vector for vector in tweet if any(vector)] or [[0, 0, 0]]
        assert mean == pytest.approx(np.mean(known, axis=0).tolist())


def test_test_words_have_vectors(directory, tmp_path):
    write(tmp_path / "only" / "train", {"ann": [("good", 1)]})
    write(tmp_path / "only" / "test", {"ann": [("bad", 0)]})
    source = leaf_tweets(
        tmp_path / "only" / "train", tmp_path / "only" / "test", vectors=directory / "GloVe/glove.6B.300d.txt", name="t"
    )
    assert said(source, "test_x") == [of("bad")]
    assert source.name == "t"


def test_sequences_and_averages_train_with_their_models(directory):
    for average, model in ((False, models.TextLstm(hidden=4, dense=3)), (True, models.Mlp(hidden=(4,)))):
        federation = sent140(directory, average=average).split()
        assert federation.client_test is not None
        assert federation.client_test.sizes.tolist() == [1, 1]
        assert federation.input_shape == ((3,) if average else (25, 3))
        histories = {
            engine: Experiment(
                federation, model, fedavg(local=Sgd(lr=0.5, steps=2, batch_size=2)), rounds=3, engine=engine
            )
            .run()
            .history
            for engine in ("vectorized", "one_by_one")
        }
        losses = [history.final("test_loss") for history in histories.values()]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
        assert np.isfinite(losses[0])


def test_command_line_selects_a_model(directory):
    settings = Settings.of({"data": {"name": "sent140", "directory": str(directory), "sequence_length": 7}})
    experiment = settings.experiment()
    assert experiment.model == models.TextLstm()
    assert experiment.data.input_shape == (7, 3)
    assert isinstance(experiment.data.transforms[0], WordVectors)


def test_missing_files_are_named(directory, tmp_path):
    with pytest.raises(DataError, match=r"sent140: no folder holds train/.*Run LEAF's data/sent140/preprocess.sh"):
        data.load("sent140", tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"word vectors: no file glove.twitter.27B.200d.txt, .*GloVe"):
        sent140(directory, vectors="glove.twitter.27B.200d.txt")
    with pytest.raises(ConfigurationError, match="sequence_length: got 0, needed a whole number >= 1"):
        sent140(directory, sequence_length=0)


@pytest.mark.parametrize(
    ("tweet", "mood", "message"),
    [
        (
            "good day",
            1,
            r"sent140: an input of user 'ann' is 'good day', needed a list whose fifth entry is the tweet's",
        ),
        (["1", "Mon", "NO_QUERY", "ann"], 1, "an input of user 'ann' is .*, needed a list whose fifth entry"),
        (["1", "Mon", "NO_QUERY", "ann", 5], 1, "an input of user 'ann' is .*, needed a list whose fifth entry"),
        (["1", "Mon", "NO_QUERY", "ann", "good"], 3, "a label of user 'ann' is 3, needed 0 or 1, or 0, 2 or 4"),
        (["1", "Mon", "NO_QUERY", "ann", "good"], None, "a label of user 'ann' is None, needed 0 or 1"),
    ],
)
def test_invalid_tweets_are_refused(directory, tweet, mood, message):
    content = {"users": ["ann"], "num_samples": [1], "user_data": {"ann": {"x": [tweet], "y": [mood]}}}
    (directory / "Sent140/train/all_data_niid_0_keep_1.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        sent140(directory)
