"""Fine-tune a language model on clients' instructions: LoRA, AdamW, the loss of answers alone, perplexity before and after.

    pip install '.[transformers]'
    python examples/finetune.py                                            # a tiny random GPT-2, no download
    python examples/finetune.py --tiny qwen2 --algorithm fedex_lora
    python examples/finetune.py --base /models/qwen --data alpaca.json --device cuda --dtype bfloat16 --batch-size 4

``--data`` is JSON, JSON lines or Parquet with records such as ``{"instruction": "...", "output": "...", "client": "..."}``.
``--base`` is a folder with weights and a tokenizer, or a name on the Hub. Without them clients teach a random model to answer
which letter follows another one.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import turnout as to
from turnout.core.schedule import ByStep, Cosine, LinearWarmup

TINY: dict[str, dict[str, Any]] = {
    "gpt2": {
        "model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 256, "n_positions": 64,
        "bos_token_id": 0, "eos_token_id": 0, "initializer_range": 0.2,
    },
    "qwen2": {
        "model_type": "qwen2", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 0,
        "initializer_range": 0.2,
    },
}  # fmt: skip
TARGETS = {
    "gpt2": ("c_attn", "c_proj", "c_fc"),
    "qwen2": ("q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"),
}

RECIPES: dict[str, Callable[[to.AdamW], to.Algorithm]] = {
    **{name: to.ALGORITHMS[name] for name in ("fedavg", "fedau", "diloco", "fedex_lora", "flora", "flexlora")},
    "hetlora": lambda local: to.hetlora(local, ranks=(4, 8, 16)),
    "raflora": lambda local: to.raflora(local, ranks=(4, 8, 16)),
    "ffa_lora": to.fedavg,  # and the model's A is frozen, see main
    "rolora": lambda local: to.fedavg(
        replace(local, weight_decay=0.0, keep_state=False), also=(to.local.Alternating(),)
    ),
    "fedsa_lora": lambda local: to.fedper(local, personal="*lora_B*", cohort_size=6),
}


def main() -> None:
    """Fine-tune, and print the perplexity of the answers in clients' test examples."""
    options = _options()
    records = options.data or _examples()
    tiny = json.dumps(TINY[options.tiny])
    tokenizer, base = (_letters, tiny) if options.base is None else (_tokenizer(options.base), options.base)
    end = 0 if options.base is None else None
    source = to.data.from_instructions(
        records, tokenizer, template=options.template, answer=options.answer, end=end, max_length=options.length,
        pack=options.pack,
    )  # fmt: skip
    lr = options.lr or (0.01 if options.base is None else 2e-4)
    local = to.AdamW(
        lr=ByStep(LinearWarmup(Cosine(lr, rounds=options.rounds), rounds=1)),
        steps=options.steps,
        batch_size=options.batch_size,
        accumulate=options.accumulate,
        max_norm=1.0,
        weight_decay=0.01,
        keep_state=options.keep_state,
    )
    experiment = to.Experiment(
        data=source.split(test_fraction=0.0, client_test_fraction=0.2),
        model=to.models.HuggingFace(
            base,
            lora=options.rank,
            alpha=2.0 * options.rank,
            targets=TARGETS[options.tiny] if options.base is None else (),
            frozen=("*lora_A*",) if options.algorithm == "ffa_lora" else (),
            dtype=options.dtype,
        ),
        algorithm=RECIPES[options.algorithm](local),
        population=to.Population(availability=to.availability.Bernoulli(mean=0.8)),
        rounds=options.rounds,
        evaluate_every=max(1, options.rounds // 5),
        device=options.device,
        seed=options.seed,
    )
    result = experiment.run(options.folder, progress=options.progress)
    losses = [row for row in result.history.rounds.column("test_loss").to_pylist() if row is not None]
    tensors = result.state_dict()
    trained = sum(tensor.numel() for name, tensor in tensors.items() if not name.endswith("base_offset"))
    print(f"{options.algorithm}: {trained:,} numbers trained, perplexity of answers on clients' test examples:")
    print(" -> ".join(f"{math.exp(loss):.2f}" for loss in losses))
    if options.folder is not None:
        adapter = Path(options.folder) / "adapter"
        result.export(adapter, format="peft")
        print(f"adapter for peft.PeftModel.from_pretrained: {adapter}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="folder with weights and tokenizer, or a name on the Hub")
    parser.add_argument("--tiny", choices=TINY, default="gpt2", help="random model in place of --base")
    parser.add_argument("--data", help="JSON, JSON lines or Parquet")
    parser.add_argument("--template", help="of the prompt, fields in braces")
    parser.add_argument("--answer", default="output", help="field with the answer")
    parser.add_argument("--algorithm", choices=RECIPES, default="fedavg")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--lr", type=float, help="default: 2e-4, and 0.01 for a tiny model")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=8, help="examples in a micro-batch")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches to a step")
    parser.add_argument("--keep-state", action="store_true", help="clients keep Adam's moments from round to round")
    parser.add_argument("--length", type=int, default=512, help="tokens of an example")
    parser.add_argument("--pack", action="store_true", help="put short examples of a client into one row")
    parser.add_argument("--dtype", default="float32", help="of the base, bfloat16 on a GPU")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="where the run and the adapter go")
    parser.add_argument("--progress", action="store_true", help="show a bar")
    return parser.parse_args()


def _tokenizer(base: str) -> Any:
    """Return the tokenizer of a base."""
    from transformers import AutoTokenizer  # type: ignore[import-not-found]

    return AutoTokenizer.from_pretrained(base)


def _letters(text: str) -> list[int]:
    """Return the tokens of the tiny base, which are bytes."""
    return list(text.encode())


def _examples(clients: int = 8, each: int = 24) -> list[dict[str, str]]:
    """Return questions of clients who each ask about letters of their own."""
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    return [
        {
            "client": f"client {client}",
            "instruction": f"after {(letter := alphabet[(3 * client + i % 4) % 25])}?",
            "output": alphabet[alphabet.index(letter) + 1],
        }
        for client in range(clients)
        for i in range(each)
    ]


if __name__ == "__main__":
    main()
