"""Data sets of tokens."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import turnout as to
from turnout.core.checks import ConfigurationError, DataError
from turnout.data import from_tokens
from turnout.engine.loss import cross_entropy
from turnout.engine.reading import score

TEXTS = [[5, 6, 7, 8], [9, 4], [3, 3, 3]]


def test_target_is_the_next_token():
    source = from_tokens({"input_ids": TEXTS})
    assert source.x.tolist() == [[5, 6, 7], [9, -100, -100], [3, 3, -100]]
    assert source.y.tolist() == [[6, 7, 8], [4, -100, -100], [3, 3, -100]]
    assert (source.x.dtype, source.y.dtype, source.num_classes) == (torch.int64, torch.int64, 9)


def test_padding_on_either_side_is_removed():
    left = [[0, 0, *text[:2]] for text in TEXTS]
    right = [[*text[:2], 0, 0] for text in TEXTS]
    masked = [
        from_tokens({"input_ids": ids, "attention_mask": [mask] * 3})
        for ids, mask in ((left, [0, 0, 1, 1]), (right, [1, 1, 0, 0]))
    ]
    for source in masked:
        assert source.x.tolist() == [[5, -100], [9, -100], [3, -100]]


def test_only_labeled_tokens_are_targets():
    labels = [[-100, -100, 7, 8], [-100, 4], [3, 3, 3]]
    source = from_tokens({"input_ids": TEXTS, "labels": labels})
    assert source.y.tolist() == [[-100, 7, 8], [4, -100, -100], [3, 3, -100]]


def test_labeled_texts_keep_all_tokens():
    columns = {"input_ids": TEXTS, "topic": [1, 0, 1], "who": ["b", "a", "b"]}
    source = from_tokens(columns, label="topic", client_id="who", test=columns | {"input_ids": [[1] * 6] * 3})
    assert source.x.tolist() == [[5, 6, 7, 8, -100, -100], [9, 4] + [-100] * 4, [3, 3, 3] + [-100] * 3]
    assert (source.y.tolist(), source.num_classes, source.client_names) == ([1, 0, 1], 2, ("a", "b"))
    assert source.test_x is not None
    assert source.test_x.shape == (3, 6)


def test_texts_are_truncated():
    assert from_tokens({"input_ids": TEXTS}, max_length=3).x.tolist() == [[5, 6], [9, -100], [3, 3]]


def test_hugging_face_data_set_is_read():
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"input_ids": TEXTS, "attention_mask": [[1] * len(text) for text in TEXTS]})
    assert torch.equal(from_tokens(table).y, from_tokens({"input_ids": TEXTS}).y)


@pytest.mark.parametrize(
    ("columns", "options", "error", "message"),
    [
        ({"input_ids": [[1, 2], []]}, {"label": "input_ids"}, DataError, "text 1 has 0 tokens, needed a token"),
        ({"input_ids": [[1, 2], [3]]}, {}, DataError, "text 1 has 1 tokens, needed two tokens"),
        (
            {"input_ids": [[1, 2]], "labels": [[1]]},
            {},
            DataError,
            "text 0 has 2 tokens in 'input_ids' and 1 in 'labels'",
        ),
        ({"input_ids": [[1, 2]], "labels": [[1, -100]]}, {}, DataError, "no token of example 0 counts"),
        ({"input_ids": [[1, 2]]}, {"label": "topic"}, ConfigurationError, "unknown column 'topic'"),
        ({"input_ids": ["words"]}, {}, ConfigurationError, "give the tokenizer's numbers"),
        ({"train": {}}, {}, ConfigurationError, "give one, e.g. dataset"),
        ({"input_ids": [[1, 2]]}, {"max_length": 0}, ConfigurationError, "max_length: got 0"),
    ],
)
def test_invalid_tokens_are_refused(columns, options, error, message):
    with pytest.raises(error, match=message):
        from_tokens(columns, **options)


def test_token_cross_entropy_ignores_padding():
    outputs, targets = torch.randn(2, 4, 7), torch.tensor([[1, 2, -100, -100], [0, 6, 5, 3]])
    theirs = torch.nn.functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none")
    expected = torch.stack([theirs[0, :2].mean(), theirs[1].mean()])
    torch.testing.assert_close(cross_entropy(outputs, targets), expected)


def test_token_accuracy_ignores_padding():
    outputs = torch.nn.functional.one_hot(torch.tensor([[1, 2, 0], [0, 1, 1]])).float()
    assert score(outputs, torch.tensor([[1, 0, -100], [0, 1, 1]])).tolist() == [0.5, 1.0]


class Bigrams(torch.nn.Module):
    """Logits of the next token from a table."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(10, 10)

    def forward(self, x):
        return self.table(x.clamp(min=0))


def test_padding_does_not_change_a_run():
    def params(longest):
        texts = np.random.default_rng(0).integers(0, 10, (60, 6)).tolist()
        data = from_tokens({"input_ids": texts}, test={"input_ids": [[1] * longest]}, num_classes=10)
        assert data.x.shape[1] == longest - 1
        torch.manual_seed(0)
        clients = data.split(to.partition.Iid(), 6)
        assert not clients.has_labels
        result = to.Experiment(data=clients, model=Bigrams(), rounds=3, evaluate_every=3).run()
        assert 0 <= result.history.final("test_accuracy") <= 1
        return result.state_dict()["table.weight"]

    torch.testing.assert_close(params(6), params(9))


def test_options_for_text_labels_are_refused():
    source = from_tokens({"input_ids": TEXTS * 9})
    with pytest.raises(DataError, match=r"targets are numbers of shape \[22, 3\]: write Iid"):
        source.split(to.partition.Dirichlet(alpha=0.1), 3)
    with pytest.raises(ConfigurationError, match=r"flip_labels: got 0\.5, needed 0"):
        source.split(to.partition.Iid(), 3, flip_labels=0.5)
    data = source.split(to.partition.Iid(), 3)
    with pytest.raises(ConfigurationError, match=r"label_groups: .* no class labels"):
        to.Experiment(data=data, model=Bigrams(), label_groups=((1,),))


def test_model_without_a_row_for_padding_is_refused_with_the_remedy():
    class Texts(torch.nn.Module):
        def __init__(self, remedy):
            super().__init__()
            self.remedy = remedy
            self.embedding = torch.nn.Embedding(50, 4, padding_idx=0)
            self.output = torch.nn.Linear(4, 3)

        def forward(self, x):
            return self.output(self.embedding(x.clamp(min=0) if self.remedy else x).mean(1))

    texts = {"input_ids": [[5, 2, 9, 4], [7, 1], [3, 3, 8]] * 4, "topic": [0, 1, 2] * 4}
    data = to.data.from_tokens(texts, label="topic").split(to.partition.Iid(), num_clients=2)
    to.Experiment(data=data, model=Texts(True), rounds=1).run()
    with pytest.raises(to.ConfigurationError, match=r"padded with -100.*self\.embedding\(x\.clamp\(min=0\)\)"):
        to.Experiment(data=data, model=Texts(False), rounds=1).run()


def test_label_column_may_define_the_number_of_classes():
    features = {"input_ids": SimpleNamespace(), "topic": SimpleNamespace(num_classes=5)}
    columns = {"input_ids": [[5, 2], [7, 1]], "topic": [0, 1]}

    class Split(dict):
        column_names = ("input_ids", "topic")

    split = Split(columns)
    split.features = features  # type: ignore[attr-defined]
    assert from_tokens(split, label="topic").num_classes == 5
    assert from_tokens(split, label="topic", num_classes=3).num_classes == 3
    assert from_tokens(columns, label="topic").num_classes == 2
