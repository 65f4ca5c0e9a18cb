"""Find transformers of Hugging Face in a folder, on the Hub, or by a configuration, and write adapters that `peft` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from turnout.core.checks import CheckpointError, ConfigurationError
from turnout.core.extras import imported


def needed(package: str) -> Any:
    """Import a package of the extra.

    Raises:
        ConfigurationError: if it is not installed.
    """
    return imported(package, "a model of Hugging Face", ".[transformers]", package)


def plain(base: Any) -> Any:
    """Return a configuration as a mapping; anything else unchanged."""
    return base.to_dict() if hasattr(base, "to_dict") else str(base) if isinstance(base, Path) else base


def config_of(base: str) -> Any:
    """Return the configuration of a base."""
    transformers = needed("transformers")
    try:
        if base.lstrip().startswith("{"):
            options = json.loads(base)
            return transformers.AutoConfig.for_model(options.pop("model_type"), **options)
        return transformers.AutoConfig.from_pretrained(base)
    except KeyError as error:
        raise ConfigurationError(
            f"base {short(base)} has no {error}, which says what it is: 'gpt2', 'bert', ..."
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"base {short(base)}: {first_line(error)}") from error


def has_weights(base: str) -> bool:
    """Return whether there is more than a configuration; a name that is no path is one on the Hub, which has weights."""
    path = Path(base)
    if base.lstrip().startswith("{") or path.is_file():
        return False
    return not path.is_dir() or any(any(path.glob(pattern)) for pattern in ("*.safetensors", "pytorch_model*.bin"))


def files_of(base: str) -> list[Path]:
    """Return the configuration and the weights of a base that is a local folder or file; none of another."""
    if base.lstrip().startswith("{"):
        return []
    patterns = ("config.json", "*.safetensors", "pytorch_model*.bin")
    return [Path(base), *(path for pattern in patterns for path in Path(base).glob(pattern))]


def short(base: str) -> str:
    """Return a base as messages name it."""
    return repr(base) if len(base) < 80 else f"{base[:77]!r}..."


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().partition("\n")[0]


TASKS = {
    "causal_lm": ("CAUSAL_LM", "AutoModelForCausalLM"),
    "classification": ("SEQ_CLS", "AutoModelForSequenceClassification"),
}
"""The names of a task in `peft`, and of the class of `transformers` that loads a base for it."""

BASE = "base"
"""The folder within that of an adapter for a base that has no name."""


def name_of_base(model: nn.Module | None) -> str | None:
    """Return the folder or the name on the Hub of the weights of an adapted model's base; None where there is none."""
    configs = getattr(getattr(model, "network", None), "peft_config", {})
    name = next((config.base_model_name_or_path for config in configs.values()), None)
    return name if name and has_weights(name) else None


def task_of(model: nn.Module | None) -> str:
    """Return the class of `transformers` that loads the base of an adapted model."""
    configs = getattr(getattr(model, "network", None), "peft_config", {})
    task = next((str(getattr(config.task_type, "value", config.task_type)) for config in configs.values()), "CAUSAL_LM")
    return dict(TASKS.values()).get(task, "AutoModel")


def save_adapter(model: nn.Module, folder: Path) -> None:
    """Write a folder that ``PeftModel.from_pretrained(base, folder)`` reads.

    A base without a name, such as a random one that was made of a configuration, is written into the folder ``base`` within
    it: nothing else has its weights.

    A residual R in the frozen weights goes into the adapter, whose rank grows: the singular values
    of ``R + s B A`` above rounding are written.

    Raises:
        ConfigurationError: if a model has no adapter of `peft`.
        CheckpointError: if the folder cannot be written.
    """
    network: Any = getattr(model, "network", None)
    if not hasattr(network, "peft_config"):
        raise ConfigurationError(
            f"format='peft': {type(model).__name__} has no adapter of peft: export it to safetensors, or train "
            "HuggingFace(lora=8)"
        )
    layers = [layer for layer in network.modules() if hasattr(layer, "base_offset")]
    if layers:
        _enlarge(layers, network)
    try:
        # Embeddings are frozen; to ask whether their size changed, `peft` would look for the base on the Hub.
        network.save_pretrained(folder, save_embedding_layers=False)
        if name_of_base(model) is None and hasattr(network, "unload"):
            network.unload().save_pretrained(folder / BASE)
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be written: {error}. Give another folder") from error


@torch.no_grad()
def _enlarge(layers: list[Any], network: Any) -> None:
    """Move what was added to the frozen weights into the factors, of one rank for all layers and scale 1."""
    (name,) = network.peft_config
    decomposed = []
    for layer in layers:
        up, down = layer.lora_B[name].weight, layer.lora_A[name].weight
        total = layer.base_offset.double() + layer.scaling[name] * up.double() @ down.double()
        u, s, v = torch.linalg.svd(total, full_matrices=False)
        decomposed.append((u * s, v, int((s > s[0] * torch.finfo(up.dtype).eps).sum())))
    rank = max(1, *(number for _, _, number in decomposed))
    for layer, (up, down, _) in zip(layers, decomposed, strict=True):
        for factors, value in ((layer.lora_A, _padded(down[:rank], (rank, down.shape[1]))),
                               (layer.lora_B, _padded(up[:, :rank], (len(up), rank)))):  # fmt: skip
            linear = nn.Linear(value.shape[1], value.shape[0], bias=False)
            linear.weight.copy_(value)
            factors[name] = linear
        layer.r[name], layer.lora_alpha[name], layer.scaling[name] = rank, rank, 1.0
        # Nothing is left to add, and the file would hold as many zeros as the layer has weights.
        layer.register_buffer("base_offset", torch.zeros_like(layer.base_offset), persistent=False)
    config = network.peft_config[name]
    config.r, config.lora_alpha = rank, rank


def _padded(values: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    """Return a matrix with zeros below and to the right."""
    missing = shape[1] - values.shape[1], shape[0] - values.shape[0]
    return nn.functional.pad(values, (0, missing[0], 0, missing[1]))
