"""A small reproduction, and made-up runs of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnout.record.query import History
from turnout.results.records import RunRecord
from turnout.workbench.reproduction.declaration import Reproduction
from turnout.workbench.reproduction.outcome import Outcome
from turnout.workbench.reproduction.reading import read

DECLARED = """
title = "Fast against slow"
reference = "Somebody, Table 7"
about = "Nothing is left open."
seeds = 4
measures = ["rounds", "final test_accuracy"]
curves = ["test_accuracy", { metric = "train_loss", log = "y" }, { metric = "test_accuracy", against = "bytes" }]

[common]
rounds = 6
evaluate_every = 1
model = "logistic"
data = { name = "digits", num_clients = 10, alpha = 1.0 }

[algorithms.fast]
algorithm = "fedavg"

[algorithms.slow]
algorithm = "fedavg"
local.lr = 0.01

[panels.easy]
title = "easy data"
to_accuracy = 0.5
paper = { fast = [2, "80 ± 1"], slow = 1000 }

[panels.hard]
title = "hard data"
to_accuracy = 0.9
rounds = 8
seeds = [5, 6]
data.alpha = 0.1
algorithms.slow.local.lr = 0.001

[panels.rare]
title = "rare data"
to_accuracy = 0.5
optional = true
only = ["fast"]

[[claims]]
text = "Fast is faster"
order = ["fast", "slow"]

[[claims]]
text = "Hard data make more of a difference"
measure = "final test_accuracy"
gains = { of = "fast", over = "slow" }
panels = ["easy", "hard"]
"""


@pytest.fixture
def declared(tmp_path: Path) -> Callable[..., Reproduction]:
    """``declared(old=new, ...)``: the reproduction, with pieces of its text replaced."""

    def make(*replaced: tuple[str, str]) -> Reproduction:
        text = DECLARED
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "made.toml"
        path.write_text(text, encoding="utf-8")
        reproduction = read(path, "paper/made")
        assert isinstance(reproduction, Reproduction)
        return reproduction

    return make


def run(algorithm: str, seed: int, accuracies: list[float], **columns: Any) -> RunRecord:
    """A run with one evaluation a round."""
    history = History()
    for i, accuracy in enumerate(accuracies, start=1):
        history.record(
            round=i, test_accuracy=accuracy, train_loss=1.5 - accuracy, bytes_up=500_000, bytes_down=500_000, **columns
        )
    return RunRecord(algorithm, seed, history, {"algorithm": {"name": algorithm}, "seed": seed})


@pytest.fixture
def outcome(declared: Callable[..., Reproduction]) -> Outcome:
    """Four seeds of easy data, two of hard data: fast reaches 50 % after 1 or 2 rounds, slow after 3 or never."""
    easy = [run("fast", seed, [0.3 if seed else 0.5, 0.6, 0.8]) for seed in range(4)]
    easy += [run("slow", seed, [0.1, 0.2, 0.5 if seed else 0.4]) for seed in range(4)]
    hard = [run("fast", seed, [0.3, 0.4, 0.5]) for seed in (5, 6)]
    hard += [run("slow", seed, [0.1, 0.1, 0.1]) for seed in (5, 6)]
    return Outcome(declared(), {"easy": easy, "hard": hard}, ("2 seeds instead of 4",))
