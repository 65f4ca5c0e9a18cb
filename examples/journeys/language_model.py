"""Train a small language model on the texts of several libraries, and let it write.

    pip install .                                           # in a clone of turnout; nothing is downloaded
    python examples/journeys/language_model.py
    python examples/journeys/language_model.py --rounds 600   # a quarter of an hour

Each client has the documentation of one module of Python's standard library, which differ in length and style. The figures
that are wanted: the perplexity of a character, beside that of equal chances, and a text that the model writes.
"""

from __future__ import annotations

import argparse
import importlib
import inspect

import numpy as np
import torch
from torch import nn

import turnout as to

MODULES = (
    *("argparse", "asyncio", "collections", "csv", "datetime", "decimal", "email.message", "fractions", "json", "logging"),
    *("pathlib", "random", "statistics", "string", "subprocess", "tarfile", "threading", "traceback", "unittest", "zipfile"),
)  # fmt: skip
LENGTH = 64


class Causal(nn.Module):
    """Two blocks of attention over the characters before."""

    def __init__(self, vocabulary: int, width: int = 48) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(vocabulary, width), nn.Embedding(LENGTH, width)
        self.attentions = nn.ModuleList(nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(2))
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 96), nn.ReLU(), nn.Linear(96, width)) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next character at each place, ``[b, T, V]``; ids below 0 are padding."""
        length = ids.shape[1]
        x = self.letters(ids.clamp(min=0)) + self.places(torch.arange(length, device=ids.device))
        later = torch.ones(length, length, dtype=torch.bool, device=ids.device).triu(1)
        for norm, attention, layer in zip(self.norms, self.attentions, self.layers, strict=False):
            y = norm(x)
            x = x + attention(y, y, y, attn_mask=later, need_weights=False)[0]
            x = x + layer(x)
        return self.head(self.norms[2](x))


def documentation(name: str) -> str:
    """Return the docstrings of a module and of what it defines, as lower-case letters, spaces and full stops."""
    module = importlib.import_module(name)
    kinds = [value for _, value in inspect.getmembers(module) if inspect.isclass(value) or inspect.isfunction(value)]
    members = [value for value in kinds if value.__module__.startswith(name)]
    methods = [method for member in members for _, method in inspect.getmembers(member, inspect.isroutine)]
    texts = dict.fromkeys(filter(None, (inspect.getdoc(each) for each in (module, *members, *methods))))
    kept = (
        letter if letter.isalpha() and letter.isascii() else letter if letter == "." else " "
        for letter in " ".join(texts)
    )
    return " ".join("".join(kept).lower().split())


def main() -> None:
    """Train, and print the perplexity and a text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--characters", type=int, default=8000, help="at most so many of each client")
    options = parser.parse_args()
    texts = [documentation(name)[: options.characters] for name in MODULES]
    alphabet = sorted(set("".join(texts)))
    numbers = {letter: number for number, letter in enumerate(alphabet)}
    rows = [
        (name, [numbers[letter] for letter in text[start : start + LENGTH + 1]])
        for name, text in zip(MODULES, texts, strict=True)
        for start in range(0, len(text) - LENGTH, LENGTH)
    ]
    table = {"client": [name for name, _ in rows], "input_ids": [ids for _, ids in rows]}
    source = to.data.from_tokens(table, client_id="client", num_classes=len(alphabet))
    torch.manual_seed(0)
    experiment = to.Experiment(
        data=source.split(test_fraction=0.0, client_test_fraction=0.1),
        model=Causal(len(alphabet)),
        algorithm=to.fedau(to.AdamW(lr=0.003, steps=10, batch_size=16)),
        population=to.Population(availability=to.availability.Bernoulli(mean=0.4)),
        rounds=options.rounds,
        evaluate_every=max(options.rounds // 4, 1),
    )
    result = experiment.run()
    perplexity = result.history.final("test_perplexity")
    print(f"perplexity of a character: {perplexity:.2f}, and {len(alphabet)} if all were equally likely")
    print(written(result.model, alphabet, "return the ", 120))


def written(model: torch.nn.Module, alphabet: list[str], text: str, length: int) -> str:
    """Return a text with further characters, each drawn from the model's distribution."""
    rng = np.random.default_rng(0)
    for _ in range(length):
        ids = torch.tensor([[alphabet.index(letter) for letter in text[-LENGTH:]]])
        with torch.no_grad():
            logits = model(ids)
        chances = torch.softmax(logits[0, -1].double(), 0).numpy()
        text += alphabet[rng.choice(len(alphabet), p=chances / chances.sum())]
    return text


if __name__ == "__main__":
    main()
