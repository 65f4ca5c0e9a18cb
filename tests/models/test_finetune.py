"""The example of fine-tuning, offline."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="an extra of 170 MB: pip install '.[transformers]'")
pytest.importorskip("peft", reason="an extra of 170 MB: pip install '.[transformers]'")

EXAMPLE = Path(__file__).parents[2] / "examples/finetune.py"


def finetuned(monkeypatch, capsys, *options):
    """Return the output, and the perplexities in it."""
    monkeypatch.setattr(sys, "argv", ["finetune.py", *options])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    return printed, [float(number) for number in re.findall(r"(\d+\.\d+)(?: ->|\n)", printed)]


def test_perplexity_falls(monkeypatch, capsys, tmp_path):
    records = [{"question": a, "reply": b, "client": a} for a, b in ("xy", "yz", "zx") for _ in range(10)]
    path = tmp_path / "data.json"
    path.write_text(json.dumps(records))
    options = ("--data", str(path), "--template", "{question}", "--answer", "reply", "--folder", str(tmp_path / "run"))
    printed, perplexities = finetuned(monkeypatch, capsys, *options, "--rounds", "6", "--steps", "5")
    assert perplexities[-1] < perplexities[0] / 2
    assert "adapter for peft" in printed
    assert (tmp_path / "run/adapter/adapter_config.json").is_file()


@pytest.mark.parametrize("algorithm", ["diloco", "rolora", "ffa_lora", "fedsa_lora", "fedex_lora", "raflora"])
def test_every_algorithm_runs(monkeypatch, capsys, algorithm):
    _, perplexities = finetuned(monkeypatch, capsys, "--algorithm", algorithm, "--rounds", "2", "--steps", "2")
    assert all(1 < perplexity < 1000 for perplexity in perplexities)


def test_random_qwen_trains_on_packed_examples(monkeypatch, capsys):
    options = (
        "--tiny",
        "qwen2",
        "--algorithm",
        "flora",
        "--pack",
        "--length",
        "40",
        "--template",
        "{instruction}",
        "--rounds",
        "4",
        "--steps",
        "5",
    )
    _, perplexities = finetuned(monkeypatch, capsys, *options)
    assert perplexities[-1] < perplexities[0]
