"""Transformers of Hugging Face with LoRA, small and random, from a configuration."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import turnout as to
from turnout.core.checks import ConfigurationError, DataError
from turnout.engine.loss import cross_entropy
from turnout.engine.objective import Objective
from turnout.models import HuggingFace
from turnout.simulation.simulation import Simulation

transformers = pytest.importorskip("transformers", reason="an extra of 170 MB: pip install '.[transformers]'")
peft = pytest.importorskip("peft", reason="an extra of 170 MB: pip install '.[transformers]'")

GPT2 = {
    "model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2, "vocab_size": 30, "n_positions": 16,
    "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
BERT = {
    "model_type": "bert", "num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32,
    "vocab_size": 30, "max_position_embeddings": 16, "pad_token_id": 0,
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32,
    "vocab_size": 30, "max_position_embeddings": 16,
}  # fmt: skip
LANGUAGE = HuggingFace(json.dumps(GPT2), lora=2)
TOPICS = HuggingFace(json.dumps(BERT), task="classification", lora=2)
DECODER = HuggingFace(json.dumps(GPT2), task="classification", lora=2)
EVERY = pytest.mark.parametrize(
    "spec",
    [LANGUAGE, TOPICS, DECODER, HuggingFace(json.dumps(LLAMA), lora=2)],
    ids=["gpt2", "bert", "gpt2-classifier", "llama"],
)
LOCAL = to.Sgd(lr=0.5, steps=4, batch_size=8)


def texts(n=64):
    """Texts that count up by 1, 2 or 3, which is their label."""
    rng = np.random.default_rng(0)
    steps = np.arange(n) % 3
    rows = [
        [int(first + step * j) % 29 + 1 for j in range(length)]
        for first, step, length in zip(rng.integers(0, 29, n), steps + 1, rng.integers(4, 10, n), strict=True)
    ]
    return {"input_ids": rows, "label": steps.tolist()}


def data(spec, clients=4, **options):
    label = "label" if spec.task == "classification" else None
    return to.data.from_tokens(texts(), label=label, num_classes=3 if label else 30).split(
        to.partition.Iid(), clients, **options
    )


def run(spec, algorithm=None, rounds=2, **options):
    own: Any = {"client_test_fraction": 0.25} if algorithm is not None and algorithm.personal is not None else {}
    experiment = to.Experiment(
        data=data(spec, **own), model=spec, algorithm=algorithm or to.fedavg(LOCAL), rounds=rounds, **options
    )
    return experiment.run()


def vector(result):
    return torch.cat([value.reshape(-1) for value in result.state_dict().values()])


def network_of(model) -> Any:
    return model.network


def experiment_model(spec, seed=0):
    return spec.build((9,), 3 if spec.task == "classification" else 30, seed)


@EVERY
def test_vector_has_only_trained_parameters(spec):
    model = experiment_model(spec)
    objective = Objective(model)
    names = objective.layout.names
    assert all("lora_" in name or "classifier" in name or "score" in name for name in names)
    assert len(names) >= 2
    assert objective.layout.num_params == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert objective.layout.num_params < sum(p.numel() for p in model.parameters()) / 4


@EVERY
def test_vectorized_training_equals_one_by_one(spec):
    results = [vector(run(spec, engine=engine)) for engine in ("vectorized", "one_by_one")]
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_base_is_stored_once_for_all_copies():
    objective = Objective(experiment_model(LANGUAGE))
    base = objective.network.constants
    for alone in (False, True):
        objective.network.alone = alone
        copy = objective.network.module_of_thread()
        held = dict(copy.named_parameters(remove_duplicate=False))
        shared = [name for name in base if name in held and held[name].data_ptr() == base[name].data_ptr()]
        assert len(shared) == sum(not p.requires_grad for p in copy.parameters())


@EVERY
def test_padding_changes_nothing(spec):
    model = experiment_model(spec).eval()
    short = torch.tensor([[1, 5, 9]])
    long = torch.tensor([[1, 5, 9, -100, -100]])
    with torch.no_grad():
        expected, found = model(short), model(long)
    torch.testing.assert_close(found if spec.task == "classification" else found[:, :3], expected, rtol=1e-4, atol=1e-5)


def test_loss_equals_that_of_the_library():
    model = experiment_model(LANGUAGE).eval()
    rows = torch.randint(1, 30, (4, 8))
    with torch.no_grad():
        theirs = network_of(model)(input_ids=rows, labels=rows).loss
        source = to.data.from_tokens({"input_ids": rows.tolist()})
        ours = cross_entropy(model(source.x), source.y).mean()
    torch.testing.assert_close(ours, theirs)


def test_step_equals_that_of_peft_and_sgd():
    """One client, one full-batch step: the adapter of `peft` under `torch.optim.SGD`."""
    spec = HuggingFace(json.dumps(GPT2 | {"resid_pdrop": 0.0, "embd_pdrop": 0.0}), lora=2)
    federation, model = data(spec, clients=1, test_fraction=0.0), experiment_model(spec)
    step = to.fedavg(to.Sgd(lr=0.5, steps=1, batch_size=64))
    result = to.Experiment(data=federation, model=spec, algorithm=step, rounds=1).run()
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    x, y = federation.train.client(0)
    counts = (y != -100).sum(dim=1, keepdim=True)
    losses = torch.nn.functional.cross_entropy(model(x).transpose(1, 2), y, reduction="none")  # 0 where y is -100
    (losses / counts).sum(dim=1).mean().backward()
    torch.optim.SGD(trained.values(), lr=0.5).step()
    for name, value in result.state_dict().items():
        torch.testing.assert_close(value, trained[name].detach(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("lora", "gain"), [(2, 0.01), (None, 0.3)])
def test_training_learns(lora, gain):
    """Low-rank updates of the attention of a random base have a small effect."""
    result = run(replace(LANGUAGE, lora=lora), to.fedavg(replace(LOCAL, lr=1.0)), rounds=12, evaluate_every=4)
    losses = result.rounds.column("test_loss").drop_null().to_pylist()
    assert losses[-1] < losses[0] - gain


@pytest.mark.parametrize(
    ("name", "spec", "algorithm", "options"),
    [
        ("FedSA-LoRA", LANGUAGE, to.fedper(LOCAL, personal="*lora_B*", cohort_size=3), {}),
        ("FedSA-LoRA", TOPICS, to.fedper(LOCAL, personal=("*lora_B*", "*classifier*"), cohort_size=3), {}),
        ("FFA-LoRA", replace(LANGUAGE, frozen=("*lora_A*",)), to.fedavg(LOCAL), {}),
        ("FedAU", TOPICS, to.fedau(LOCAL), {}),
        ("FedAU, B personal", LANGUAGE, to.fedau(LOCAL, also=(to.personalization.Personal("*lora_B*"),)), {}),
        ("FedStaleWeight", LANGUAGE, to.fedstaleweight(LOCAL), {"pace": to.pace.Buffered(buffer_size=2)}),
        ("Scaffold-P", TOPICS, to.scaffold_p(LOCAL, personal="*lora_B*", cohort_size=3), {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_recipe_runs(name, spec, algorithm, options):
    result, objective = run(spec, algorithm, **options), Objective(experiment_model(spec))
    assert torch.isfinite(vector(result)).all()
    before = objective.layout.split(objective.initial)
    moved = {key: not torch.equal(value, before[key]) for key, value in result.state_dict().items()}
    if name == "FedSA-LoRA":  # the shared model's B is the first one; each client has its own
        assert any(moved.values())
        assert all("lora_A" in key for key, value in moved.items() if value)
        own = [result.state_dict(client) for client in range(4)]
        assert any(not torch.equal(own[0][key], own[1][key]) for key in before if "lora_B" in key)
    elif name == "FFA-LoRA":
        assert all("lora_B" in key for key in moved)
        assert all(moved.values())
    elif name in ("FedAU", "FedStaleWeight"):  # of A, some gradients are smaller than its last digit
        assert all(value for key, value in moved.items() if "lora_B" in key)


def test_folder_has_only_the_adapter_and_restores_the_model(tmp_path):
    experiment = to.Experiment(data=data(LANGUAGE), model=LANGUAGE, algorithm=to.fedavg(LOCAL), rounds=2, seed=3)
    result, again = experiment.run(tmp_path / "run"), to.load(tmp_path / "run")
    x = torch.randint(1, 30, (3, 9))
    with torch.no_grad():
        torch.testing.assert_close(again.model(x), result.model(x), rtol=0.0, atol=0.0)
    base = sum(p.numel() * 4 for p in result.model.parameters())
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.safetensors")) < base
    network_of(again.model).save_pretrained(tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_config.json").is_file()


def test_weights_in_a_folder_are_the_base(tmp_path):
    config = transformers.AutoConfig.for_model(**GPT2)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "base")
    spec = replace(LANGUAGE, base=str(tmp_path / "base"))
    one, other = (experiment_model(spec, seed) for seed in (0, 1))
    name = "network.base_model.model.transformer.wte.weight"
    assert torch.equal(one.get_parameter(name), other.get_parameter(name))
    random = (experiment_model(LANGUAGE, seed).get_parameter(name) for seed in (0, 1))
    assert not torch.equal(*random)
    (tmp_path / "only").mkdir()
    config.save_pretrained(tmp_path / "only")
    experiment_model(replace(LANGUAGE, base=str(tmp_path / "only")))


@pytest.mark.parametrize("spec", [LANGUAGE, TOPICS])
def test_half_precision_base(spec):
    spec = replace(spec, dtype="bfloat16")
    model = experiment_model(spec)
    assert {p.dtype for p in model.parameters() if p.requires_grad} == {torch.float32}
    assert torch.bfloat16 in {p.dtype for p in model.parameters()}
    assert torch.isfinite(vector(run(spec))).all()


def test_functional_dropout_of_the_base_can_be_disabled():
    opt = {
        "model_type": "opt", "num_hidden_layers": 1, "hidden_size": 16, "ffn_dim": 16, "num_attention_heads": 2,
        "vocab_size": 30, "max_position_embeddings": 16, "word_embed_proj_dim": 16,
    }  # fmt: skip
    spec = replace(LANGUAGE, base=json.dumps(opt))
    with pytest.raises(ConfigurationError, match="draws random numbers in forward"):
        run(spec)
    assert torch.isfinite(vector(run(replace(spec, base_dropout=False)))).all()


def test_encoder_with_attention_masks_only():
    base = json.dumps(BERT | {"model_type": "deberta-v2", "num_hidden_layers": 1})
    model = experiment_model(replace(TOPICS, base=base)).eval()
    with torch.no_grad():
        short, long = model(torch.tensor([[1, 5, 9]])), model(torch.tensor([[1, 5, 9, -100]]))
    torch.testing.assert_close(short, long, rtol=1e-4, atol=1e-5)


def test_whole_base_is_trained_without_lora():
    model = experiment_model(replace(LANGUAGE, lora=None))
    assert all(p.requires_grad for p in model.parameters())


def test_run_is_independent_of_chunks():
    def trained(budget):
        simulation = Simulation(
            to.Experiment(data=data(LANGUAGE), model=LANGUAGE, algorithm=to.fedavg(LOCAL), memory_budget=budget)
        )
        simulation.round()
        return simulation.state.params

    torch.testing.assert_close(trained(1 << 30), trained(1 << 20), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base": "/nowhere/at/all"}, "base '/nowhere/at/all': "),
        ({"base": '{"n_layer": 1}'}, "has no 'model_type'"),
        ({"base": '{"model_type": "gtp2"}'}, "base .*gtp2"),
        ({"base": TOPICS.base}, "is no causal model, .* write is_decoder=true"),
        ({"base": '{"model_type": "t5"}'}, "base .* for task 'causal_lm': "),
        ({"targets": ("nothing",)}, r"targets: got \('nothing',\), needed endings of .* such as "),
        ({"frozen": ("*lora_C*",)}, r"frozen: '\*lora_C\*' matches none of .*lora_A"),
    ],
)
def test_unsupported_bases_are_refused(changes, message, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigurationError, match=message):
        experiment_model(replace(LANGUAGE, **changes))


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # between the two packages
@pytest.mark.parametrize("name", ["fedavg", "fedex_lora", "flora", "flexlora"])
def test_exported_adapter_equals_the_trained_model(name, tmp_path):
    """Also after an interruption, and with changed frozen weights of a base with transposed ones (GPT-2's Conv1D)."""
    data_of_run = data(LANGUAGE)
    local = to.AdamW(lr=0.05, steps=4, batch_size=8)
    run = to.Experiment(data=data_of_run, model=LANGUAGE, algorithm=to.ALGORITHMS[name](local), rounds=3)
    replace(run, rounds=1).run(tmp_path / "run")
    result, whole = run.run(tmp_path / "run", resume=True), run.run()
    assert all(torch.equal(*pair) for pair in zip(result.model.parameters(), whole.model.parameters(), strict=True))
    loaded = to.load(tmp_path / "run")
    folder = loaded.export(tmp_path / "adapter", format="peft", card=True)
    card = (folder / "model-card.md").read_text()
    assert 'base = AutoModelForCausalLM.from_pretrained("adapter/base")' in card
    assert 'PeftModel.from_pretrained(base, "adapter")' in card
    assert "Keep the folder `base` within `adapter`, which has its weights." in card
    base = transformers.AutoModelForCausalLM.from_pretrained(folder / "base").eval()
    for one, other in zip(base.parameters(), network_of(experiment_model(LANGUAGE)).unload().parameters(), strict=True):
        assert torch.equal(one, other)
    tokens = torch.tensor([[1, 5, 9, 2], [3, 3, 4, 7]])
    with torch.no_grad():
        alone = base(input_ids=tokens).logits
        expected = result.model(tokens)
        found = peft.PeftModel.from_pretrained(base, folder).eval()(input_ids=tokens).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert (found - alone).abs().max() > 1e-3
    assert all("lora_" in written for written in load_file(folder / "adapter_model.safetensors"))
    scored = run.data.test if run.data.test is not None else run.data.train
    with torch.no_grad():
        losses = cross_entropy(result.model(scored.x), scored.y)
    assert float(losses.mean()) == pytest.approx(result.history.final("test_loss"), rel=1e-5)


def test_only_adapters_are_exported_to_peft(tmp_path):
    result = run(replace(LANGUAGE, lora=None), rounds=1)
    with pytest.raises(ConfigurationError, match="format='peft': Transformer has no adapter of peft"):
        result.export(tmp_path, format="peft")


def test_perplexity_and_a_user_metric_are_recorded():
    def confident(outputs, targets):
        return float(outputs.softmax(-1).amax(-1)[targets >= 0].mean())

    result = run(LANGUAGE, metrics=("perplexity", confident))
    assert result.history.final("test_perplexity") > 1
    assert 0 < result.history.final("test_confident") <= 1


@pytest.mark.parametrize(
    ("spec", "of", "needed"),
    [(LANGUAGE, TOPICS, "the next token at each token"), (TOPICS, LANGUAGE, "one label for each text")],
)
def test_targets_of_the_other_task_are_refused(spec, of, needed):
    message = (
        rf"task='{spec.task}' needs {needed} as targets, those of .* are torch.int64 .*: read texts with to.data.from_"
    )
    with pytest.raises(ConfigurationError, match=message):
        to.Experiment(data=data(of), model=spec, rounds=1).run()


def test_tokens_of_another_tokenizer_are_refused():
    source = to.data.from_tokens({"input_ids": [[1, 2, 44]] * 4})
    with pytest.raises(DataError, match=r"has the token 44, and the base .* knows 0 to 29"):
        to.Experiment(data=source.split(to.partition.Iid(), 2), model=LANGUAGE, rounds=1).run()
