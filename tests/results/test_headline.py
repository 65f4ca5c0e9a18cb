"""The result of a language model is its perplexity, and its data are texts."""

import pytest
import torch
from torch import nn

import turnout as to
from turnout.cli.run import final
from turnout.record.query import History
from turnout.results.records import RunRecord
from turnout.results.table import cells, comparison


def record(algorithm: str, perplexity: float, seed: int) -> RunRecord:
    history = History()
    history.record(round=1, test_accuracy=0.0, test_loss=5.0, test_perplexity=perplexity + seed)
    return RunRecord(algorithm, seed, history)


def test_perplexity_is_the_result_and_the_first_column() -> None:
    records = [record(name, value, seed) for name, value in (("fedavg", 9.0), ("fedau", 7.0)) for seed in (0, 1)]
    assert final(records[0].history) == "test perplexity 9 after 1 round"
    assert repr(to.Result(records[0].history, None, None)).endswith("test perplexity 9)")  # type: ignore[arg-type]
    keys, _ = cells(comparison(records))
    assert keys[:2] == ["test_perplexity", "gap_of_test_perplexity_to_fedavg"]


class NextToken(nn.Module):
    """Logits of the next token, from the present one alone."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Embedding(7, 7)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.logits(tokens.clamp(min=0))


def test_perplexity_of_a_language_model_is_recorded_without_being_asked_for() -> None:
    tokens = {"input_ids": [[1, 2, 3, 4, 5], [4, 5], [6, 1, 2]] * 4, "owner": [0, 1, 1] * 4}
    data = to.data.from_tokens(tokens, client_id="owner", num_classes=7).split(
        test_fraction=0.0, client_test_fraction=0.5
    )
    result = to.Experiment(data, NextToken(), to.fedavg(to.Sgd(lr=0.5)), rounds=3).run()
    own = data.client_test
    assert own is not None
    right = to.metrics.perplexity(result.model(own.x).detach(), own.y)
    assert result.history.final("test_perplexity") == pytest.approx(right, rel=1e-6)
    assert f"test perplexity {right:.3g}" in repr(result)
    assert final(result.history) == f"test perplexity {right:.4g} after 3 rounds"
    for client, found in enumerate(result.clients["test_perplexity"].to_pylist()):
        x, y = own.client(client)
        assert found == pytest.approx(to.metrics.perplexity(result.model(x).detach(), y), rel=1e-6)


def test_labels_of_tokens_have_no_perplexity() -> None:
    tokens = {"input_ids": [[1, 2, 3], [4, 5, 6]] * 4, "tags": [[0, 1, 0], [1, 1, 0]] * 4}
    data = to.data.from_tokens(tokens, label="tags", num_classes=7).split(to.partition.Iid(), num_clients=2)
    result = to.Experiment(data, NextToken(), to.fedavg(to.Sgd(lr=0.5)), rounds=1).run()
    assert "train_perplexity" not in result.history.column_names


def test_tokens_are_texts_with_a_vocabulary() -> None:
    tokens = {"input_ids": [[1, 2, 3], [4, 5]] * 4, "owner": [0, 0, 1, 1] * 2}
    source = to.data.from_tokens(tokens, client_id="owner", num_classes=7)
    assert repr(source).startswith("Source('tokens', 8 texts of up to 2 tokens, a vocabulary of 7 tokens")
    data = source.split(test_fraction=0.0)
    assert "8 texts of up to 2 tokens" in repr(data)
    assert "a vocabulary of 7 tokens" in repr(data)
    labeled = to.data.from_arrays(torch.rand(8, 3), torch.arange(8) % 2)
    assert "8 examples of shape [3], 2 classes" in repr(labeled)
