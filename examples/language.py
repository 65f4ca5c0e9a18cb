"""Fine-tune a language model by LoRA with clients who hold texts, and save the adapter.

    pip install 'turnout[transformers]'
    python examples/language.py
    python examples/language.py --base /models/gpt2 --texts texts.jsonl --device cuda --rule fedsa_lora

``--base`` is a folder with weights and a tokenizer, or a name on the Hub. ``--texts`` has a line for each text, such as
``{"text": "...", "client": "..."}``. Without them a tiny GPT-2 learns to spell a few sentences first, to be adapted.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import turnout as to

TINY = {
    "model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 256, "n_positions": 64,
    "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
ANIMALS, DEEDS = ("cat", "dog", "owl", "fox", "hen", "cow"), ("sleeps", "runs", "sings", "eats")

RULES: dict[str, Callable[[to.Sgd], to.Algorithm]] = {
    "fedavg": to.fedavg,
    "fedau": to.fedau,
    "ffa_lora": to.fedavg,  # and the model's A is frozen, see main
    "fedsa_lora": lambda local: to.fedper(local, personal="*lora_B*", cohort_size=6),
}


def main() -> None:
    """Fine-tune, and say what came of it."""
    options = _options()
    local = to.Sgd(lr=options.lr, steps=options.steps, batch_size=options.batch_size)
    base = options.base or _tiny_base(local)
    texts = _example_texts() if options.texts is None else _read(Path(options.texts))
    source = to.data.from_tokens(
        {"input_ids": _tokens(base, texts["text"]), "client": texts["client"]},
        client_id="client",
        max_length=options.length,
    )
    frozen = ("*lora_A*",) if options.rule == "ffa_lora" else ()
    experiment = to.Experiment(
        data=source.split(test_fraction=0.0, client_test_fraction=0.2),
        model=to.models.HuggingFace(base, lora=options.rank, frozen=frozen, dtype=options.dtype),
        algorithm=RULES[options.rule](local),
        population=to.Population(availability=to.availability.Bernoulli(mean=0.8)),
        rounds=options.rounds,
        evaluate_every=max(1, options.rounds // 5),
        device=options.device,
    )
    result = experiment.run(options.folder, progress=True)
    sent = sum(tensor.numel() for tensor in result.state_dict().values())
    loss = result.history.final("test_loss")
    print(f"{options.rule}: {sent:,} numbers trained; perplexity on clients' own test texts {math.exp(loss):.2f}")
    if options.folder is not None:
        adapter = Path(options.folder) / "adapter"
        result.model.network.save_pretrained(adapter)  # type: ignore[operator]
        print(f"adapter for peft.PeftModel.from_pretrained: {adapter}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="folder with weights and tokenizer, or a name on the Hub")
    parser.add_argument("--texts", help="JSON lines with 'text' and 'client'")
    parser.add_argument("--rule", choices=RULES, default="fedavg")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--length", type=int, default=128, help="tokens of a text")
    parser.add_argument("--dtype", default="float32", help="of the base, bfloat16 on a GPU")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", help="where the run and the adapter go")
    return parser.parse_args()


def _read(path: Path) -> dict[str, list[str]]:
    """Return the columns of a file of JSON lines."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return {name: [str(row[name]) for row in rows] for name in ("text", "client")}


def _tokens(base: str, texts: list[str]) -> list[list[int]]:
    """Return the numbers of the base's tokenizer; the tiny one has letters."""
    if not any(Path(base).glob("tokenizer*")) and Path(base).is_dir():
        return [list(text.encode()) for text in texts]
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(base)(texts)["input_ids"]


def _example_texts(clients: int = 8, each: int = 20) -> dict[str, list[str]]:
    """Return sentences of clients who each know one animal, and what it does."""
    told = [
        (f"client {client}", f"the {ANIMALS[client % 6]} {DEEDS[(client + i % 2) % 4]} today")
        for client in range(clients)
        for i in range(each)
    ]
    return {"text": [text for _, text in told], "client": [client for client, _ in told]}


def _tiny_base(local: to.Sgd) -> str:
    """Return the folder of a tiny GPT-2 that has learnt to spell sentences of all animals and deeds."""
    texts = [f"the {animal} {deed} today" for animal in ANIMALS for deed in DEEDS] * 4
    data = to.data.from_tokens({"input_ids": [list(text.encode()) for text in texts]}, num_classes=256)
    experiment = to.Experiment(
        data=data.split(to.partition.Iid(), 1, test_fraction=0.0),
        model=to.models.HuggingFace(json.dumps(TINY), lora=None),
        algorithm=to.fedavg(to.Sgd(lr=local.lr, steps=100, batch_size=16)),
        rounds=2,
        evaluate_every=2,
    )
    result = experiment.run()
    print(f"a tiny base, perplexity {math.exp(result.history.final('train_loss')):.2f} on its own texts")
    folder = tempfile.mkdtemp(prefix="turnout-base-")
    result.model.network.save_pretrained(folder)  # type: ignore[operator]
    return folder


if __name__ == "__main__":
    main()
