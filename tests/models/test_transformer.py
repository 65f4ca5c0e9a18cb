"""Language models without their packages."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import turnout as to
from turnout.core.checks import ConfigurationError
from turnout.engine.objective import Objective
from turnout.models import HuggingFace, Transformer


class Stub(nn.Module):
    """A network with the used interface of a ``PreTrainedModel``: running or masked means of embeddings."""

    def __init__(self, causal=True, attention="eager", **config):
        super().__init__()
        self.config = SimpleNamespace(pad_token_id=7, _attn_implementation=attention, **config)
        self.causal, self.dtype, self.device = causal, torch.float32, torch.device("cpu")
        self.embedding, self.output = nn.Embedding(10, 4), nn.Linear(4, 10)

    @property
    def base_model(self):
        return self.body

    def body(self, input_ids, attention_mask):
        x = self.embedding(input_ids)
        if self.causal:
            return SimpleNamespace(last_hidden_state=x.cumsum(dim=-2) * attention_mask[..., None])
        weights = attention_mask.softmax(dim=-1)[:, 0] if attention_mask.dim() == 4 else attention_mask[:, None] / 2.0
        return SimpleNamespace(last_hidden_state=weights @ x + 0 * x)

    def forward(self, input_ids, attention_mask):
        return SimpleNamespace(logits=self.output(self.body(input_ids, attention_mask).last_hidden_state))


@pytest.mark.parametrize("causal", [True, False])
def test_padding_changes_nothing(causal):
    model = Transformer(Stub(causal))
    assert (model.causal, model.padding) == (causal, 7)
    short, long = torch.tensor([[1, 2, 3]]), torch.tensor([[1, 2, 3, -100, -100]])
    torch.testing.assert_close(model(long)[:, :3], model(short))


def test_unbatchable_attention_is_refused():
    with pytest.raises(ConfigurationError, match=r"attention 'sdpa' cannot be batched over clients: .*'eager'"):
        Transformer(Stub(attention="sdpa"))


def test_classifier_requires_a_padding_token():
    class StubForSequenceClassification(Stub):
        def __init__(self, **config):
            super().__init__(**config)
            self.config.pad_token_id = None

    assert Transformer(StubForSequenceClassification(eos_token_id=3)).padding == 3
    with pytest.raises(ConfigurationError, match="no pad_token_id, by which a classifier finds the end"):
        Transformer(StubForSequenceClassification())


def test_large_models_train_one_by_one_on_a_cpu():
    assert Objective(Transformer(Stub())).choose(torch.zeros(2, 3).long()).engine == "vectorized"
    assert Objective(Transformer(Stub())).choose(torch.zeros(300, 90).long()).engine == "one_by_one"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base": ""}, "base: got '', needed a folder"),
        ({"base": 3}, "base: got 3"),
        ({"task": "summary"}, "unknown task 'summary'"),
        ({"dtype": "int8"}, "unknown dtype 'int8'"),
        ({"lora": 0}, "lora: got 0, .* It is the rank"),
        ({"alpha": 0.0}, "alpha: got 0"),
        ({"lora_dropout": 1.0}, "lora_dropout: got 1"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        HuggingFace(**options)


def test_configuration_is_stored_as_text():
    spec = HuggingFace({"model_type": "gpt2", "n_layer": 1})  # type: ignore[arg-type]
    assert spec == HuggingFace('{"model_type": "gpt2", "n_layer": 1}')
    assert json.loads(spec.base)["n_layer"] == 1
    assert hash(spec)


def test_missing_packages_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigurationError, match=r"needs transformers, .*: pip install '\.\[transformers\]'"):
        HuggingFace('{"model_type": "gpt2"}').build((8,), 10)


def test_texts_are_token_numbers():
    with pytest.raises(
        ConfigurationError, match=r"input_shape of HuggingFace: got \(3, 8, 8\), .* to.data.from_tokens"
    ):
        HuggingFace('{"model_type": "gpt2"}').build((3, 8, 8), 10)


@pytest.mark.parametrize(
    ("task", "label", "needed"), [("causal_lm", "label", "next token"), ("classification", None, "one label")]
)
def test_targets_follow_the_task(task, label, needed):
    texts = {"input_ids": [[1, 2, 3]] * 4, "label": [0, 1, 0, 1]}
    data = to.data.from_tokens(texts, label=label).split(to.partition.Iid(), 2)
    with pytest.raises(ConfigurationError, match=f"task='{task}' needs .*{needed}.* as targets"):
        HuggingFace('{"model_type": "gpt2"}', task=task).fits(data)
