"""Arbitrary torch modules train, or are refused with the reason."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import turnout as to
from turnout.data.shards import Shards

from .tiny import Branch, classification

DATA = classification(sizes=(20, 9, 12))
LOCAL = to.Sgd(lr=0.1, steps=2, batch_size=8)


class Encoder(nn.Module):
    def __init__(self, attention_dropout=0.0):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True)
        self.layer.self_attn.dropout = attention_dropout
        self.output = nn.Linear(16, 4)

    def forward(self, x):
        return self.output(self.layer(x.unflatten(1, (4, 4))).flatten(1))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.recurrent, self.output = kind(4, 5, batch_first=True), nn.Linear(5, 4)

    def forward(self, x):
        return self.output(self.recurrent(x.unflatten(1, (4, 4)))[0][:, -1])


def run(module, **options):
    given = {"data": DATA, "algorithm": to.fedavg(local=LOCAL), "rounds": 1, "evaluate_every": 1}
    return to.Experiment(model=module, **(given | options)).run()


class Words(nn.Module):
    """Embedded whole numbers, 0 to 9."""

    def __init__(self, kind: Callable[..., nn.Module] = nn.Embedding, **options: Any):
        super().__init__()
        self.embedding, self.output = kind(10, 5, **options), nn.Linear(5, 4)

    def forward(self, x):
        return self.output(self.embedding(x).reshape(len(x), -1, 5).mean(dim=1))


class Several(nn.Module):
    """Outputs in a tuple or a dictionary."""

    def __init__(self, kind):
        super().__init__()
        self.output, self.kind = nn.Linear(16, 4), kind

    def forward(self, x):
        outputs = self.output(x)
        return (outputs, outputs.sum(dim=1)) if self.kind is tuple else {"logits": outputs}


def words(largest=9):
    x = torch.randint(0, 10, (41, 6), generator=torch.Generator().manual_seed(0))
    x[-1, -1] = largest
    return replace(DATA, train=Shards(x, DATA.train.y, DATA.train.offsets), test=None)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(16, 8)), nn.ReLU(), nn.Linear(8, 4)),
        nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(16, 8)), nn.ReLU(), nn.Linear(8, 4)),
        Encoder(),
        Recurrent(nn.RNN),
        Recurrent(nn.GRU),
        Recurrent(nn.LSTM),
        nn.Sequential(nn.Unflatten(1, (1, 16)), nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(28, 4)),
        nn.Sequential(nn.Unflatten(1, (1, 4, 2, 2)), nn.Conv3d(1, 2, 2), nn.Flatten(), nn.Linear(6, 4)),
    ],
    ids=lambda module: type(module).__name__,
)
def test_modules_train_unchanged(module):
    result = run(module)
    assert result.summary()["train_loss"] > 0
    assert any(not torch.equal(value, result.state_dict()[name]) for name, value in module.state_dict().items())


def same_with_both_engines(module, **options):
    found = [run(module, engine=engine, **options).state_dict() for engine in ("vectorized", "one_by_one")]
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name])
    assert any(not torch.equal(value, module.state_dict()[name]) for name, value in found[0].items())


@pytest.mark.parametrize(
    ("kind", "options"),
    [(nn.Embedding, {}), (nn.Embedding, {"padding_idx": 3, "scale_grad_by_freq": True}), (nn.EmbeddingBag, {})],
)
def test_embeddings_of_integers_train(kind, options):
    same_with_both_engines(Words(kind, **options), data=words())


@pytest.mark.parametrize("kind", [tuple, dict])
def test_tuple_and_dictionary_outputs_need_a_matching_loss(kind):
    key = 0 if kind is tuple else "logits"

    def loss(outputs, targets):
        return nn.functional.cross_entropy(outputs[key], targets, reduction="none")

    same_with_both_engines(Several(kind), loss=loss)
    with pytest.raises(
        to.ConfigurationError, match=f"returns a {kind.__name__}, and the loss cross_entropy .* Give a loss"
    ):
        run(Several(kind))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Words(max_norm=1.0),
            r"'embedding' \(Embedding\) has max_norm=1.0, which changes .*: leave max_norm out",
        ),
        (lambda: Words(nn.EmbeddingBag, sparse=True), r"\(EmbeddingBag\) has sparse=True, which has sparse gradients"),
        (
            lambda: nn.Sequential(old_weight_norm(nn.Linear(16, 4))),
            r"'0' \(Linear\) has a weight_norm of torch.nn.utils, .* cannot copy",
        ),
    ],
)
def test_unsupported_layers_are_refused_with_a_correction(make, message):
    with pytest.raises(to.ConfigurationError, match=message):
        run(make(), data=words())


def old_weight_norm(layer):
    with pytest.warns(FutureWarning):
        return nn.utils.weight_norm(layer)


def test_integers_outside_an_embedding_are_refused_in_any_split():
    with pytest.raises(to.ConfigurationError, match=r"whole numbers from 0 to 10, .*; an Embedding has a row for each"):
        run(Words(), data=words(largest=10))


def test_data_dependent_branch_trains_one_by_one():
    with pytest.warns(RuntimeWarning, match=r"clients are computed one by one, because torch.func.vmap cannot batch"):
        result = run(Branch())
    assert result.summary()["train_loss"] > 0
    with pytest.raises(to.ConfigurationError, match=r"engine='vectorized': .* write engine='one_by_one'"):
        run(Branch(), engine="vectorized")


def test_attention_dropout_is_refused_with_a_correction():
    with pytest.raises(
        to.ConfigurationError, match=r"'layer.self_attn' \(MultiheadAttention\) has dropout=0.1 .* to 0.0"
    ):
        run(Encoder(attention_dropout=0.1))


def test_loss_modules_are_losses():
    by_module, by_default = run(to.models.Logistic(), loss=nn.CrossEntropyLoss()), run(to.models.Logistic())
    assert by_module.summary()["train_loss"] == pytest.approx(by_default.summary()["train_loss"])


def test_models_larger_than_memory_are_refused_with_their_size():
    with pytest.raises(
        to.ConfigurationError, match=r"Mlp: its parameters need 400,003,040,000,040 bytes, with room for"
    ):
        to.models.Mlp((10_000_000, 10_000_000)).build((64,), 10)


def test_function_selects_personal_parameters():
    def chosen(choose):
        return to.personalization.Personal(choose).chosen(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))

    assert chosen(lambda name: name.endswith("bias")) == {"0.bias", "1.bias"}
    for choose, what in ((lambda _: True, "all"), (lambda _: False, "none")):
        with pytest.raises(to.ConfigurationError, match=f"chose {what} of 0.weight, 0.bias"):
            chosen(choose)
