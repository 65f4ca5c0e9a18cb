"""Write the card that describes an exported model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from turnout.core.display import markdown_cell
from turnout.data.preparation import FILE, Preparation
from turnout.data.transformer import FittedTransform
from turnout.export import usage
from turnout.models.pretrained import BASE, name_of_base, task_of
from turnout.protocol.published import published_settings
from turnout.record.schema import explain
from turnout.results.names import name_of
from turnout.version import __version__

if TYPE_CHECKING:
    from turnout.record.query import History

CARD = "model-card.md"
"""The name of a model card beside an exported model."""


def card_of(
    name: str,
    history: History,
    tensors: Mapping[str, torch.Tensor],
    config: Mapping[str, Any] | None,
    file: str,
    format: str,
    client: int | None = None,
    preparation: usage.Prepared | None = None,
    module: nn.Module | None = None,
) -> str:
    """Return a model card in Markdown: what was trained, on what, how well it does, and how to load it.

    Args:
        name: name of the run.
        history: records of the run.
        tensors: the model's state dict.
        config: the run's configuration as plain values; None where it is not known.
        file: the name of the model's file.
        format: format of the file, ``"safetensors"``, ``"onnx"``, ``"executorch"`` or, of a folder, ``"peft"``.
        client: client whose model it is; None is the shared one.
        preparation: how rows of a table become inputs; None for other data.
        module: the model; None where it is not known.
    """
    config = config or {}
    config = published_settings(config) if history.is_private else config
    algorithm = config.get("algorithm", {}).get("name")
    facts = {
        "Algorithm": algorithm,
        "Model": _kind(config.get("model")),
        "Serves": None if client is None else f"client {client}",
        "Parameters": f"{sum(tensor.numel() for tensor in tensors.values()):,} in {len(tensors)} tensors",
        "Data": _data(config.get("data", {})),
        "Transforms of inputs": _transforms(config.get("data") or {}),
        **({} if preparation is None else usage.described(preparation)),
        "Rounds": f"{history.last_round:,}",
        "Seed": config.get("seed"),
        "Written by": f"turnout {__version__}",
    }
    settings = {key: value for key, value in config.items() if key != "data"}  # which may name files of this machine
    by = markdown_cell(algorithm or "an algorithm")
    lines = ["---", "library_name: pytorch", "tags:", "- federated-learning", "- turnout", "---", ""]
    lines += [f"# {markdown_cell(name)}", "", f"A model trained by federated learning with turnout: {by}.", ""]
    lines += _table(("", ""), {key: value for key, value in facts.items() if value is not None})
    lines += ["", "## Evaluation", "", *_evaluation(history)]
    lines += ["", "## How to load it", "", *_loading(file, format, module)]
    if isinstance(preparation, Preparation) and format == "safetensors":
        code = usage.usage(file, module, preparation, usage.loss_of(config))
        lines += ["", "## How to apply it to rows of a table", "", f"Without turnout, with `{FILE}` beside it:", ""]
        lines += ["```python", *code, "```"]
    elif isinstance(preparation, FittedTransform):
        lines += [
            "",
            "Its inputs were made by a transform of scikit-learn, which is not part of this file: save that too.",
        ]
    lines += ["", "## Settings", "", "```json", json.dumps(settings, indent=2), "```", ""]
    return "\n".join(lines)


def _evaluation(history: History) -> list[str]:
    """Return lines on the final figures of a run, how it ended, its clients, and its differential privacy."""
    summary = history.summary()
    figures = {key: value for key, value in summary.items() if isinstance(value, int | float)}
    scores = {name_of(key): f"{value:.4g}" for key, value in figures.items() if key.startswith(("test_", "train_"))}
    notes = [f"Means over the last tenth of the {history.last_round:,} rounds."]
    if note := explain(history.stopped_by or ""):
        notes.append(f"{note[0].upper()}{note[1:]}.")
    if (fairness := summary.get("fairness")) is not None:
        notes.append(
            f"Over clients, the mean {name_of(fairness['of'])} is {fairness['mean']:.4g}, its standard deviation "
            f"{fairness['spread']:.4g}, and the mean of the worst tenth {fairness['worst']:.4g}."
        )
    if (epsilon := figures.get("epsilon")) is None:
        notes.append("The run had no differential privacy.")
    else:
        notes.append(f"The run had client-level differential privacy with epsilon {epsilon:.4g}.")
    return [*_table(("metric", "value"), scores), *(line for note in notes for line in ("", note))]


def _loading(file: str, format: str, module: nn.Module | None) -> list[str]:
    """Return lines of Markdown with code that loads the file, and rebuilds the module where it is a plain one."""
    code = None if module is None else usage.module_code(module)
    rebuilt = [] if code is None else ["from collections import OrderedDict", "", "from torch import nn"]
    if format == "peft":
        return _loading_adapter(file, module)
    lines = {
        "onnx": [
            "import onnxruntime",
            "",
            f'session = onnxruntime.InferenceSession("{file}")',
            '(output,) = session.run(None, {"input": x})  # x: a NumPy array [M, ...]',
        ],
        "executorch": [
            "from executorch.extension.training import _load_for_executorch_for_training_from_buffer as load",
            "",
            f'buffer = open("{file}", "rb").read()',
            "module = load(buffer)",
            'loss, outputs = module.forward_backward("forward", (x, y))',
        ],
        "torch": ["import torch", "", f'model.load_state_dict(torch.load("{file}", weights_only=True))'],
        "safetensors": [
            *rebuilt,
            "from safetensors.torch import load_file",
            "",
            *([] if code is None else [f"model = {code}"]),
            f'model.load_state_dict(load_file("{file}"))',
        ],
    }
    return ["```python", *lines[format], "```"]


def _loading_adapter(file: str, module: nn.Module | None) -> list[str]:
    """Return lines of Markdown with code that loads an adapter on its base, and what to keep of the base."""
    base, kind = name_of_base(module), task_of(module)
    where = base or f"{file}/{BASE}"
    kept = (
        f"`{base}` in the version that was trained"
        if base
        else f"the folder `{BASE}` within `{file}`, which has its weights"
    )
    return [
        "```python",
        "from peft import PeftModel",
        f"from transformers import {kind}",
        "",
        f'base = {kind}.from_pretrained("{where}")',
        f'model = PeftModel.from_pretrained(base, "{file}")',
        "```",
        "",
        f"The adapter changes the weights of its base and fits no other. Keep {kept}.",
    ]


def _data(data: Mapping[str, Any]) -> str | None:
    """Return a description of the training data."""
    if not data:
        return None
    known = data.get("num_examples") is not None  # it is left out of private runs
    examples = f"{data['num_examples']:,} examples of " if known else ""
    clients = f"{data['num_clients']:,} clients" if data.get("num_clients") is not None else "unknown clients"
    return f"{data.get('name')}: {examples}{clients}"


def _transforms(data: Mapping[str, Any]) -> str | None:
    """Return the transforms of inputs, without which the model gives other outputs; random ones are of training alone."""
    texts = []
    for transform in data.get("transforms") or ():
        options = dict(transform) if isinstance(transform, Mapping) else {"kind": transform}
        texts.append(f"{options.pop('kind')}({', '.join(f'{name}={value}' for name, value in options.items())})")
    return ", then ".join(texts) or None


def _kind(value: Any) -> str | None:
    """Return the class name in a description."""
    return value.get("kind") if isinstance(value, Mapping) else None if value is None else str(value)


def _table(titles: tuple[str, str], rows: Mapping[str, Any]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [" | ".join(map(markdown_cell, row)) for row in rows.items()]
    return [f"| {titles[0]} | {titles[1]} |", "|---|---|", *(f"| {line} |" for line in lines)]
